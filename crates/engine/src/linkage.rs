//! A schedule linked with those of the other ranks, as one rank sees it: linking, starting runs,
//! waiting for them.

use crate::board::EXCHANGE_WORDS;
use crate::call::Call;
use crate::error::Error;
use crate::group::{Group, let_go};
use crate::lane::{Argument, Lane, Run};
use crate::linking::{self, LinkOptions};
use crate::member::OwnWork;
use crate::node::EngineKind;
use crate::pending::{Course, Pending};
use crate::program::{self, Program, Setting};
use crate::run::{LinkedPlan, LongRooms};
use crate::trace::ProgramTrace;
use crate::wait::{self, Counted};
use goal::graph::Access;
use goal::schedule::Schedule;
use shm::segment::Offset;
use shm::sync::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Instant;

/// A schedule, linked: what its runs go through.
#[derive(Debug)]
pub struct Linkage {
    group: Arc<Group>,
    pub(crate) lane: Lane<LinkedPlan>,
    block: Offset,
    call: Call,
}

impl Group {
    /// Links a schedule with those of the other ranks: a collective call that waits for all of
    /// them, and is numbered like any other.
    ///
    /// # Errors
    /// When the schedules do not fit together (every rank gets the same list), a rank is in another
    /// collective, or gone.
    pub fn link(self: &Arc<Self>, schedule: &Schedule, call: Call) -> Result<Arc<Linkage>, Error> {
        let sequence = self.begin(call);
        let mut exchanges = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = schedule.as_bytes();
        let arena = self.member.arena();
        let memory = self.member.node().memory();
        let at = arena.allocate(bytes.len() as u64, 64).map_err(Error::from);
        let placed = at.and_then(|at| memory.write(at, bytes).map(|()| at).map_err(Error::from));
        let mine = match &placed {
            Ok(at) => [at.0, bytes.len() as u64, 0, 0, 0, 0],
            Err(_) => [0, 0, 1, 0, 0, 0],
        };
        let all = self.exchange(&mut exchanges, mine, sequence, call)?;
        let linked = self.read_and_link(&all, placed.as_ref().err());
        let needed = linked.as_ref().map_or(0, program::block_bytes);
        let block = match &linked {
            Ok(_) if self.rank == 0 => {
                self.member.allocate_shared(needed).map_or(u64::MAX, |at| at.0)
            }
            _ => 0,
        };
        let answers = self.exchange(&mut exchanges, [block, 0, 0, 0, 0, 0], sequence, call)?;
        if let Ok(at) = placed {
            arena.free(at)?;
        }
        let linked = linked?;
        let block = Offset(answers[0][0]);
        if block.0 == u64::MAX {
            return Err(Error::Environment(format!(
                "rank 0 of the communicator has no room for the {needed} bytes that runs of this schedule need: set \
                 TRADEWIND_ARENA_MIB to more"
            )));
        }
        self.linkage(linked, block, call)
    }

    /// Reads every rank's schedule and links them. `own` is why this rank could not offer its
    /// schedule.
    fn read_and_link(
        &self,
        all: &[[u64; EXCHANGE_WORDS]],
        own: Option<&Error>,
    ) -> Result<linking::Linked, Error> {
        if let Some(rank) = all.iter().position(|words| words[2] != 0) {
            let why = own.map_or_else(|| "see its own message".to_owned(), ToString::to_string);
            return Err(Error::Environment(format!(
                "rank {rank} has no room for its schedule: {why}"
            )));
        }
        let memory = self.member.node().memory();
        let read = |words: &[u64; EXCHANGE_WORDS]| -> Result<Schedule, Error> {
            Ok(memory.inspect(Offset(words[0]), words[1], Schedule::from_bytes)??)
        };
        let schedules = all.iter().map(read).collect::<Result<Vec<_>, Error>>()?;
        let node = self.member.node();
        let options = LinkOptions {
            eager_limit: node.eager_limit(),
            owner_runs_all: node.engine() == EngineKind::Caller,
            skip_calc: node.skip_calc(),
        };
        linking::link(schedules, options).map_err(Error::Link)
    }

    fn linkage(
        self: &Arc<Self>,
        linked: linking::Linked,
        block: Offset,
        call: Call,
    ) -> Result<Arc<Linkage>, Error> {
        let slots = linked.slots;
        let number = self.programs.fetch_add(1, Ordering::Relaxed);
        let trace = self.trace.as_ref().map(|(trace, name)| {
            let own = &linked.ranks[self.rank as usize];
            ProgramTrace::new(
                Arc::clone(trace),
                (*name, &self.members),
                (number, self.rank),
                call,
                own,
            )
        });
        let setting = Setting { rank: self.rank, skip_calc: self.member.node().skip_calc(), trace };
        let program = Program::new(self.member.node().memory().clone(), block, linked, setting)?;
        let rooms = LongRooms::new(Arc::clone(self.member.arena()), &program);
        let lane = Lane::new(LinkedPlan::new(program, self.bell.clone()), slots, rooms);
        Ok(Arc::new(Linkage { group: Arc::clone(self), lane, block, call }))
    }
}

impl Linkage {
    /// The communicator.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// What a run is called when ranks are in different collectives.
    pub fn call(&self) -> Call {
        self.call
    }

    /// Starts a run; the arguments are this rank's buffers.
    ///
    /// # Errors
    /// When a buffer has the wrong length or the arena is full. Never waits.
    pub fn start(self: &Arc<Self>, arguments: &[Argument<'_>]) -> Result<Pending, Error> {
        let program = &self.lane.plan.program;
        let buffers = program.linked(program.rank).schedule.view().buffers();
        if buffers.len() != arguments.len() {
            return Err(Error::BufferCount { expected: buffers.len(), found: arguments.len() });
        }
        for (buffer, (record, argument)) in buffers.iter().zip(arguments).enumerate() {
            argument.check(buffer, record.length, record.access != Access::Output as u32)?;
        }
        let sequence = self.group.begin(self.call);
        self.group.trace_call_begun(sequence);
        let started = self.lane.start(sequence, &(), arguments);
        let run = started.inspect_err(|_| self.group.take_back(sequence))?;
        if run.was_queued() || self.lane.plan.program.linked.needs_owner {
            self.group.member.register(Arc::downgrade(self) as Weak<dyn OwnWork>);
        }
        Ok(Pending::new(Course::Program(Arc::clone(self), run)))
    }

    /// Waits for a run of this program.
    pub(crate) fn wait(
        &self,
        run: &Run<LinkedPlan>,
        deadline: Option<Instant>,
    ) -> Result<bool, Error> {
        let group = &self.group;
        let watch = group.member.watch(&group.members);
        let mut look_out = || {
            group.board.find_mismatch(run.number.sequence, self.call)?;
            // Who never came is to blame before those who left because of it.
            watch.check(|rank| self.lane.came(rank, run.number.run))?;
            let program = &self.lane.plan.program;
            // Where ranks have operations of their own to run, one that left has done its part when
            // its run is complete.
            watch.check(|rank| {
                let (word, threshold) = program.completion(run.number.run, rank);
                !program.linked.needs_owner || word.reached(threshold)
            })
        };
        let patience = group.member.node().patience();
        if run.was_queued() {
            let has_begun = || {
                self.lane.advance_for(run)?;
                group.progress()?;
                Ok(self.lane.has_begun(run))
            };
            if !wait::for_slot(patience, deadline, has_begun, &mut look_out)? {
                return Ok(false);
            }
        }
        let progress = || group.progress();
        if !self.lane.plan.program.linked.needs_owner {
            let program = &self.lane.plan.program;
            let (word, threshold) = program.completion(run.number.run, program.rank);
            return wait::until(&Counted(word, threshold), patience, deadline, progress, look_out);
        }
        // Work is left for this rank as well as completed for it: sleep at the doorbell, which
        // rings for both.
        let bell = &group.bell.words[group.rank as usize].rings;
        loop {
            let heard = bell.count();
            if progress()? {
                continue;
            }
            if self.lane.is_complete(run) {
                return Ok(true);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
            let look = Some(Instant::now() + wait::LOOK_OUT);
            let slice = deadline.min(look).or(look);
            let rung = wait::until(
                &Counted(bell, heard.wrapping_add(1)),
                patience,
                slice,
                || Ok(false),
                || Ok(()),
            )?;
            if !rung && let Err(error) = look_out() {
                if progress()? || self.lane.is_complete(run) {
                    continue;
                }
                return Err(error);
            }
        }
    }
}

impl OwnWork for Linkage {
    fn progress_own(&self) -> Result<bool, Error> {
        self.lane.advance();
        self.lane.plan.progress_own()
    }

    fn rests(&self) -> bool {
        !self.lane.has_queue() && self.lane.plan.rests()
    }
}

impl Drop for Linkage {
    fn drop(&mut self) {
        let group = &self.group;
        if self.lane.is_busy() {
            self.lane.with_scratch(LongRooms::forget);
        }
        let_go(&group.member, self.block, group.size(), group.rank == 0);
    }
}
