//! The block of a linked schedule that every rank has built itself: found or published by each rank
//! on its own, so that no start waits for another rank.

use crate::communicator::Communicator;
use crate::error::Error;
use crate::linked::block::LinkIdentity;
use crate::linked::executor::LinkedExecutor;
use crate::linked::frame::ProgramLayout;
use crate::memory::Turn;
use crate::protocol::link_table::{self, Lookup};
use crate::window::queue::RunQueue;
use goal::link::Linked;
use shm::segment::Offset;

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

/// A linked schedule whose block this rank has not found, and the runs started meanwhile.
#[derive(Debug)]
pub(crate) struct UnplacedSchedule {
    pub(crate) identity: LinkIdentity,
    pub(crate) linked: Linked,
    pub(crate) layout: ProgramLayout,
    pub(crate) runs: RunQueue<LinkedExecutor>,
    /// Turn of the block at this rank's memory, if there was too little or a run waits for it.
    pub(crate) turn: Option<Turn>,
    /// Other ranks had to release the entry of an older link at the last search.
    pub(crate) is_busy: bool,
}

/// The result of a search for a block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BlockSearch {
    /// The block has been found or published just now.
    Found(Block),
    /// The schedule has its block already.
    Placed,
    /// No rank has published the block, and this rank's part of the segment has no room for it.
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

impl Communicator {
    /// Returns the block of a link, which this rank allocates and publishes if no other rank has.
    /// Never waits.
    pub(crate) fn find_block(
        &self,
        identity: &LinkIdentity,
        bytes: u64,
        turn: &mut Option<Turn>,
    ) -> Result<BlockSearch, Error> {
        let context = &self.context;
        let sequence = identity.sequence;
        let entry = context.state.link_entry(sequence);
        let segment = context.member.node().segment();
        loop {
            let lookup = link_table::look_up(
                entry,
                sequence,
                |offset| identity.has_number(segment, Offset(offset)),
                |older| context.state.are_past_link(older),
            );
            let seen = match lookup {
                Lookup::Published(offset) => {
                    let at = Offset(offset);
                    self.check_block(identity, at)?;
                    return Ok(BlockSearch::Found(Block { at, is_own: false }));
                }
                Lookup::Free(seen) if context.may_publish_link(sequence) => seen,
                // A later call looks again: another rank, or an older link of this one, still needs
                // the entry.
                Lookup::Free(_) | Lookup::Busy => return Ok(BlockSearch::Busy),
            };
            let Some(at) = self.allocate_block(bytes, turn) else {
                return Ok(BlockSearch::NoMemory);
            };
            // Before `publish`, whose Release makes the header visible with the block.
            identity.write(segment, at)?;
            if link_table::publish(entry, seen, sequence, at.0) {
                return Ok(BlockSearch::Found(Block { at, is_own: true }));
            }
            // Another rank was first. The next lookup finds its block.
            self.arena().free(at)?;
        }
    }

    /// Allocates a block in this rank's part of the segment, when it is its turn.
    fn allocate_block(&self, bytes: u64, turn: &mut Option<Turn>) -> Option<Offset> {
        let member = &self.context.member;
        let memory = member.memory();
        if memory.admits(turn.as_ref()) {
            let allocate = || member.allocate_shared(bytes).ok();
            let again = || memory.release_reserve(turn.as_ref()).then(allocate).flatten();
            if let Some(at) = allocate().or_else(again) {
                return Some(at);
            }
        }
        // The turn keeps later runs of this rank from taking the memory that the block needs.
        if turn.is_none() {
            *turn = Some(memory.enqueue(bytes));
        }
        memory.record_shortage();
        None
    }

    /// Checks that the block was published for the same call with the same schedules.
    fn check_block(&self, identity: &LinkIdentity, at: Offset) -> Result<(), Error> {
        if identity.has_schedules(self.context.member.node().segment(), at)? {
            return Ok(());
        }
        // Ranks in different calls explain different graphs, so that is reported first.
        self.context.state.find_mismatch(identity.sequence, identity.call)?;
        Err(Error::Environment(format!(
            "the ranks have built different graphs for {}: start all ranks with the same version \
             and the same settings",
            identity.call.describe(identity.sequence, true)
        )))
    }
}
