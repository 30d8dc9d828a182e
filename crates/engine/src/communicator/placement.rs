//! The block of a linked schedule that every rank has built itself: found or published by each rank
//! on its own, so that no start waits for another rank.

use crate::context::{Context, PendingLinks, Wakeup};
use crate::error::Error;
use crate::linked::block::LinkIdentity;
use crate::linked::executor::{LinkedExecutor, LongStaging};
use crate::linked::frame::ProgramLayout;
use crate::linked::program::{LinkedProgram, ProgramOptions};
use crate::memory::{Pending, Turn};
use crate::node::membership::Member;
use crate::protocol::link_table::{self, Lookup};
use crate::signature::Signature;
use crate::state::CommunicatorState;
use crate::trace::{ProgramTrace, Trace};
use crate::window::InflightWindow;
use crate::window::queue::RunQueue;
use goal::link::Linked;
use shm::segment::Offset;
use std::sync::Arc;

/// Progress of a linked schedule towards its block.
#[derive(Debug)]
pub(crate) enum Placement {
    /// The block is not known yet.
    Unplaced(Box<UnplacedSchedule>),
    /// The schedule has its block.
    Placed,
    /// The schedule will never have a block.
    Failed(Error),
}

/// A linked schedule with a block that this rank has not found, and the runs started meanwhile.
#[derive(Debug)]
pub(crate) struct UnplacedSchedule {
    pub(crate) site: LinkSite,
    pub(crate) identity: LinkIdentity,
    pub(crate) linked: Linked,
    pub(crate) layout: ProgramLayout,
    pub(crate) runs: RunQueue<LinkedExecutor>,
    /// Turn of the block at this rank's memory, if there was too little or a run waits for it.
    pub(crate) turn: Option<Turn>,
    /// Other ranks had to release the entry of an older link at the last search.
    pub(crate) is_busy: bool,
}

/// A linked schedule with its block.
#[derive(Debug)]
pub(crate) struct PlacedSchedule {
    pub(crate) window: InflightWindow<LinkedExecutor>,
    pub(crate) block: Block,
}

/// The result of a search for a block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BlockSearch {
    /// The block has been found or published just now.
    Found(Block),
    /// The schedule has its block already.
    Placed,
    /// No rank has published the block, and this rank's part of the segment has no space for it.
    NoMemory,
    /// Another rank may still need the entry for an older link.
    Busy,
}

/// The block of a linked schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) at: Offset,
    /// This rank has allocated it, so this rank frees it.
    pub(crate) is_own: bool,
}

/// The part of a communicator that a link needs. It may outlive the communicator, but not the
/// communicator's state in the segment.
#[derive(Clone, Debug)]
pub(crate) struct LinkSite {
    /// The ranks in the job, by rank in the communicator.
    pub(crate) members: Vec<u32>,
    /// This rank.
    pub(crate) rank: u32,
    state: Arc<CommunicatorState>,
    wakeup: Wakeup,
    pending_links: Arc<PendingLinks>,
    /// The profile, and the communicator's name in it.
    trace: Option<(Arc<Trace>, u64)>,
}

impl LinkSite {
    pub(crate) fn of(context: &Context) -> Self {
        LinkSite {
            members: context.members.clone(),
            rank: context.rank,
            state: Arc::clone(&context.state),
            wakeup: context.wakeup.clone(),
            pending_links: Arc::clone(&context.pending_links),
            trace: context.trace.clone(),
        }
    }

    /// Places the schedule that the call with this sequence number linked in its block. `runs` have
    /// been started already.
    pub(crate) fn place(
        &self,
        member: &Member,
        (linked, layout): (Linked, ProgramLayout),
        block: Block,
        (sequence, call): (u64, Signature),
        runs: RunQueue<LinkedExecutor>,
    ) -> Result<PlacedSchedule, Error> {
        let rank = self.rank;
        let slots = layout.slots;
        let trace = self.trace.as_ref().map(|(trace, name)| {
            let own = &linked.ranks[rank as usize];
            let communicator = (*name, self.members.as_slice());
            ProgramTrace::new(Arc::clone(trace), communicator, (sequence, rank), call, own)
        });
        let node = member.node();
        let options = ProgramOptions { rank, skip_calc: node.skip_calc(), trace };
        let program = LinkedProgram::new(node.memory().clone(), block.at, linked, layout, options)?;
        let staging = LongStaging::new(Arc::clone(member.arena()), &program);
        let executor = LinkedExecutor::new(program, self.wakeup.clone());
        let window = InflightWindow::with_queue((executor, member.memory()), slots, staging, runs);
        Ok(PlacedSchedule { window, block })
    }
}

impl PlacedSchedule {
    /// Returns whether this rank has no tasks until it starts another run.
    pub(crate) fn is_idle(&self) -> bool {
        !self.window.has_queue() && self.window.executor.is_idle()
    }
}

impl UnplacedSchedule {
    /// Returns the block, which this rank allocates and publishes if no other rank has. Never waits.
    /// After the block has been found, and after an error, this rank does not search again.
    pub(crate) fn find_block(&mut self, member: &Member) -> Result<BlockSearch, Error> {
        let search = self.search(member);
        self.is_busy = matches!(search, Ok(BlockSearch::Busy));
        if !matches!(search, Ok(BlockSearch::NoMemory | BlockSearch::Busy)) {
            self.end_link();
        }
        search
    }

    fn search(&mut self, member: &Member) -> Result<BlockSearch, Error> {
        let LinkSite { state, pending_links, .. } = &self.site;
        let identity = self.identity;
        let sequence = identity.sequence;
        let segment = member.node().segment();
        loop {
            let entry = state.link_entry(sequence);
            let lookup = link_table::look_up(
                entry,
                sequence,
                |offset| identity.has_number(segment, Offset(offset)),
                |older| state.are_past_link(older),
            );
            let seen = match lookup {
                Lookup::Published(offset) => {
                    let at = Offset(offset);
                    self.check_block(member, at)?;
                    return Ok(BlockSearch::Found(Block { at, is_own: false }));
                }
                Lookup::Free(seen) if pending_links.may_publish(sequence) => seen,
                // A later call looks again: another rank, or an older link of this one, still needs
                // the entry.
                Lookup::Free(_) | Lookup::Busy => return Ok(BlockSearch::Busy),
            };
            let Some(at) = member.allocate_in_turn(self.layout.bytes(), &mut self.turn) else {
                return Ok(BlockSearch::NoMemory);
            };
            // Before `publish`: its Release makes the header visible with the block.
            identity.write(segment, at)?;
            if link_table::publish(entry, seen, sequence, at.0) {
                return Ok(BlockSearch::Found(Block { at, is_own: true }));
            }
            // Another rank was first. The next lookup finds its block.
            member.arena().free(at)?;
        }
    }

    /// Records that this rank does not read the entry of the link again.
    fn end_link(&self) {
        let LinkSite { state, pending_links, rank, .. } = &self.site;
        pending_links.end(self.identity.sequence, state.link_progress(*rank));
    }

    /// Places the schedule in its block.
    pub(crate) fn place(self, member: &Member, block: Block) -> Result<PlacedSchedule, Error> {
        let UnplacedSchedule { site, identity, linked, layout, runs, .. } = self;
        let call = (identity.sequence, identity.call);
        site.place(member, (linked, layout), block, call, runs)
    }

    /// Returns what the release of the memory waits for that the turns of the block and of its runs
    /// keep from other runs.
    pub(crate) fn pending(&self, is_blocked: impl Fn(u32) -> bool) -> Pending {
        if self.turn.is_none() {
            return Pending::Nothing;
        }
        let missing = self.site.state.not_yet(self.identity.sequence);
        let busy = if self.is_busy { Pending::Blocked } else { Pending::Nothing };
        busy.max(Pending::on(missing.into_iter(), is_blocked))
    }

    /// Checks that the block was published for the same call with the same schedules.
    fn check_block(&self, member: &Member, at: Offset) -> Result<(), Error> {
        let identity = &self.identity;
        if identity.has_schedules(member.node().segment(), at)? {
            return Ok(());
        }
        // Ranks in different calls explain different graphs, so that is reported first.
        self.site.state.find_mismatch(identity.sequence, identity.call)?;
        Err(Error::Environment(format!(
            "the ranks have built different graphs for {}: start all ranks with the same version \
             and the same settings",
            identity.call.describe(identity.sequence, true)
        )))
    }
}
