//! Linking a schedule with the schedules of the other ranks.

use crate::communicator::Communicator;
use crate::communicator::linked_schedule::LinkedSchedule;
use crate::communicator::placement::{Block, LinkSite, UnplacedSchedule};
use crate::context::Offer;
use crate::error::Error;
use crate::linked::block::{LinkIdentity, hash_of};
use crate::linked::frame::ProgramLayout;
use crate::memory::MemoryHolder;
use crate::node::EngineKind;
use crate::node::membership::OwnerWork;
use crate::signature::Signature;
use crate::staging;
use crate::state::EXCHANGE_WORDS;
use crate::window::queue::RunQueue;
use goal::limits;
use goal::link::{LinkOptions, Linked, link};
use goal::schedule::Schedule;
use shm::segment::Offset;
use std::sync::{Arc, Weak};

impl Communicator {
    /// Links a schedule with the schedules of the other ranks, which this rank need not know. This
    /// is a collective call with a sequence number that waits for all ranks.
    ///
    /// # Errors
    /// Returns an error if the schedules do not match (every rank gets the same list), or if a rank
    /// has failed or is in another collective.
    pub fn link(
        self: &Arc<Self>,
        schedule: &Schedule,
        call: Signature,
    ) -> Result<Arc<LinkedSchedule>, Error> {
        let context = &self.context;
        let sequence = context.begin(call);
        let mut exchanges = context.exchanges();
        let bytes = schedule.as_bytes();
        let arena = context.member.arena();
        let memory = context.member.node().memory();
        let allocate = || arena.allocate(bytes.len() as u64, 64);
        let at = context.member.with_reclaim(allocate).map_err(Error::from);
        let placed = at.and_then(|at| memory.write(at, bytes).map(|()| at).map_err(Error::from));
        let own = placed.as_ref().ok().copied();
        // A rank without memory takes part in both exchanges as well. Otherwise the others would
        // wait for it instead of reporting the cause.
        let offer = Offer::of(placed);
        let mine = [offer.word(), bytes.len() as u64, 0, 0, 0, 0];
        // All ranks read the same schedules and compute the same tables, so the rest is the place of
        // the block.
        let all = exchanges.run(mine, sequence, call)?;
        let linked = self.read_and_link(&all, offer).map(|linked| {
            let layout = ProgramLayout::new(&linked);
            (linked, layout)
        });
        let needed = linked.as_ref().map_or(0, |(_, layout)| layout.bytes());
        // All ranks link the same bytes, so they agree on the result: either all of them expect a
        // block or none does.
        let block = match &linked {
            Ok(_) if context.rank == 0 => context.offer_to_all(needed, sequence),
            _ => Offer::none(),
        };
        let answers = exchanges.run([block.word(), 0, 0, 0, 0, 0], sequence, call)?;
        // All ranks have arrived at the second exchange, so they have read the schedule.
        if let Some(at) = own {
            arena.free(at)?;
        }
        let (linked, layout) = linked?;
        let purpose = || format!("the {needed} bytes that runs of this schedule need");
        let block = block.accept((0, answers[0][0]), purpose)?;
        let is_own = context.rank == 0;
        let block = Block { at: block, is_own };
        let runs = RunQueue::default();
        let call = (sequence, call);
        let placed =
            LinkSite::of(context).place(&context.member, (linked, layout), block, call, runs)?;
        let communicator = Arc::clone(self);
        let schedule = LinkedSchedule::with_block(communicator, call, (placed, needed));
        let schedule = Arc::new(schedule);
        self.add_holder(&schedule);
        Ok(schedule)
    }

    fn add_holder(&self, schedule: &Arc<LinkedSchedule>) {
        let holder = Arc::downgrade(schedule) as Weak<dyn MemoryHolder>;
        self.context.member.memory().add_holder(holder);
    }

    /// Links the schedules of all ranks, in rank order, which every rank has built itself. This is a
    /// collective call with a sequence number. It never waits: if the memory of the runs is not
    /// known yet, runs are queued.
    ///
    /// # Errors
    /// Returns an error if the schedules do not match, if a rank's part of the segment is too small
    /// for the runs, or if another rank has linked other schedules.
    pub fn link_all(
        self: &Arc<Self>,
        schedules: Vec<Schedule>,
        call: Signature,
    ) -> Result<Arc<LinkedSchedule>, Error> {
        let hash = hash_of(&schedules);
        let linked = link(schedules, self.link_options()).map_err(Error::Link)?;
        let layout = ProgramLayout::new(&linked);
        // All ranks refuse what none can ever place, before other ranks see the call.
        staging::check_capacity(self.arena(), layout.bytes())?;
        let sequence = self.context.begin_link(call);
        let identity = LinkIdentity::new(sequence, call, hash);
        let runs = RunQueue::default();
        let site = LinkSite::of(&self.context);
        let unplaced =
            UnplacedSchedule { site, identity, linked, layout, runs, turn: None, is_busy: false };
        let schedule = Arc::new(LinkedSchedule::without_block(Arc::clone(self), unplaced));
        self.add_holder(&schedule);
        if schedule.placed()?.is_none() {
            self.context.member.register(Arc::downgrade(&schedule) as Weak<dyn OwnerWork>);
        }
        Ok(schedule)
    }

    /// Returns the length of the block that [`link_all`](Self::link_all) of these schedules takes.
    ///
    /// # Errors
    /// Returns an error if the schedules do not match.
    pub fn block_bytes(&self, schedules: Vec<Schedule>) -> Result<u64, Error> {
        let linked = link(schedules, self.link_options()).map_err(Error::Link)?;
        Ok(ProgramLayout::new(&linked).bytes())
    }

    fn link_options(&self) -> LinkOptions {
        let node = self.context.member.node();
        LinkOptions {
            eager_limit: node.eager_limit(),
            staged_bytes: limits::STAGED,
            owner_runs_all: node.engine() == EngineKind::Caller,
            skip_calc: node.skip_calc(),
        }
    }

    /// Reads every rank's schedule and links them. `own` is what this rank has offered.
    fn read_and_link(&self, all: &[[u64; EXCHANGE_WORDS]], own: Offer) -> Result<Linked, Error> {
        own.accept_all(all.iter().map(|words| words[0]), || "its schedule".to_owned())?;
        let memory = self.context.member.node().memory();
        let read = |words: &[u64; EXCHANGE_WORDS]| -> Result<Schedule, Error> {
            Ok(memory.inspect(Offset(words[0]), words[1], Schedule::from_bytes)??)
        };
        let schedules = all.iter().map(read).collect::<Result<Vec<_>, Error>>()?;
        link(schedules, self.link_options()).map_err(Error::Link)
    }
}
