//! Linked schedules, as one rank sees them: linking, starting runs, waiting for them.

use crate::communicator::Communicator;
use crate::error::Error;
use crate::linked::executor::{LinkedExecutor, LongStaging};
use crate::linked::frame::ProgramLayout;
use crate::linked::program::{LinkedProgram, ProgramOptions};
use crate::node::EngineKind;
use crate::node::membership::OwnerWork;
use crate::signature::Signature;
use crate::state::EXCHANGE_WORDS;
use crate::trace::ProgramTrace;
use crate::wait::{self, CountReached};
use crate::window::{InflightWindow, StartedRun};
use goal::limits;
use goal::link::{LinkOptions, Linked, link};
use goal::schedule::Schedule;
use shm::segment::Offset;
use shm::sync::Ordering;
use std::sync::Arc;
use std::time::Instant;

/// A schedule linked with the schedules of the other ranks.
#[derive(Debug)]
pub struct LinkedSchedule {
    communicator: Arc<Communicator>,
    pub(crate) window: InflightWindow<LinkedExecutor>,
    block: Offset,
    call: Signature,
}

impl Communicator {
    /// Links a schedule with the schedules of the other ranks. This is a collective call with a
    /// sequence number that waits for all ranks.
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
        let at = arena.allocate(bytes.len() as u64, 64).map_err(Error::from);
        let placed = at.and_then(|at| memory.write(at, bytes).map(|()| at).map_err(Error::from));
        // A rank without memory takes part in both exchanges as well. Otherwise the others would
        // wait for it instead of reporting the cause.
        let mine = match &placed {
            Ok(at) => [at.0, bytes.len() as u64, 0, 0, 0, 0],
            Err(_) => [0, 0, 1, 0, 0, 0],
        };
        // All ranks read the same schedules and compute the same tables, so the rest is the place of
        // the block.
        let all = exchanges.run(mine, sequence, call)?;
        let linked = self.read_and_link(&all, placed.as_ref().err()).map(|linked| {
            let layout = ProgramLayout::new(&linked);
            (linked, layout)
        });
        let needed = linked.as_ref().map_or(0, |(_, layout)| layout.bytes());
        // All ranks link the same bytes, so they agree on the result: either all of them expect a
        // block or none does.
        let block = match &linked {
            Ok(_) if context.rank == 0 => {
                context.member.allocate_shared(needed).map_or(u64::MAX, |at| at.0)
            }
            _ => 0,
        };
        let answers = exchanges.run([block, 0, 0, 0, 0, 0], sequence, call)?;
        // All ranks have arrived at the second exchange, so they have read the schedule.
        if let Ok(at) = placed {
            arena.free(at)?;
        }
        let (linked, layout) = linked?;
        let block = Offset(answers[0][0]);
        if block.0 == u64::MAX {
            return Err(Error::Environment(format!(
                "rank 0 of the communicator has no room for the {needed} bytes that runs of this \
                 schedule need: set TRADEWIND_ARENA_MIB to more"
            )));
        }
        self.linked_schedule(linked, layout, block, call)
    }

    /// Reads every rank's schedule and links them. `own` is the error that prevented this rank from
    /// offering its schedule.
    fn read_and_link(
        &self,
        all: &[[u64; EXCHANGE_WORDS]],
        own: Option<&Error>,
    ) -> Result<Linked, Error> {
        if let Some(rank) = all.iter().position(|words| words[2] != 0) {
            let why = own.map_or_else(|| "see its own message".to_owned(), ToString::to_string);
            return Err(Error::Environment(format!(
                "rank {rank} has no room for its schedule: {why}"
            )));
        }
        let memory = self.context.member.node().memory();
        let read = |words: &[u64; EXCHANGE_WORDS]| -> Result<Schedule, Error> {
            Ok(memory.inspect(Offset(words[0]), words[1], Schedule::from_bytes)??)
        };
        let schedules = all.iter().map(read).collect::<Result<Vec<_>, Error>>()?;
        let node = self.context.member.node();
        let options = LinkOptions {
            eager_limit: node.eager_limit(),
            staged_bytes: limits::STAGED,
            owner_runs_all: node.engine() == EngineKind::Caller,
            skip_calc: node.skip_calc(),
        };
        link(schedules, options).map_err(Error::Link)
    }

    fn linked_schedule(
        self: &Arc<Self>,
        linked: Linked,
        layout: ProgramLayout,
        block: Offset,
        call: Signature,
    ) -> Result<Arc<LinkedSchedule>, Error> {
        let context = &self.context;
        let rank = context.rank;
        let slots = layout.slots;
        let number = self.programs.fetch_add(1, Ordering::Relaxed);
        let trace = context.trace.as_ref().map(|(trace, name)| {
            let own = &linked.ranks[rank as usize];
            let communicator = (*name, context.members.as_slice());
            ProgramTrace::new(Arc::clone(trace), communicator, (number, rank), call, own)
        });
        let node = context.member.node();
        let options = ProgramOptions { rank, skip_calc: node.skip_calc(), trace };
        let program = LinkedProgram::new(node.memory().clone(), block, linked, layout, options)?;
        let staging = LongStaging::new(Arc::clone(context.member.arena()), &program);
        let executor = LinkedExecutor::new(program, context.wakeup.clone());
        let window = InflightWindow::new(executor, slots, staging);
        Ok(Arc::new(LinkedSchedule { communicator: Arc::clone(self), window, block, call }))
    }
}

impl LinkedSchedule {
    /// Returns the communicator.
    pub fn communicator(&self) -> &Arc<Communicator> {
        &self.communicator
    }

    /// Returns the signature that runs report when ranks are in different collectives.
    pub fn call(&self) -> Signature {
        self.call
    }

    /// Waits for a run of this schedule.
    pub(crate) fn wait(
        &self,
        run: &StartedRun<LinkedExecutor>,
        deadline: Option<Instant>,
    ) -> Result<bool, Error> {
        let context = &self.communicator.context;
        let program = &self.window.executor.program;
        let spin_policy = context.member.node().spin_policy();
        if run.was_queued() {
            let has_begun = || {
                self.window.advance_for(run)?;
                context.progress()?;
                Ok(self.window.has_begun(run))
            };
            let check_liveness = || self.check_liveness(run);
            if !wait::for_slot(spin_policy, deadline, has_begun, check_liveness)? {
                return Ok(false);
            }
        }
        if program.linked.needs_owner {
            return self.wait_with_tasks(run, deadline);
        }
        let (word, threshold) = program.completion(run.number.run, program.rank);
        wait::until(
            &CountReached(word, threshold),
            spin_policy,
            deadline,
            || context.progress(),
            || self.check_liveness(run),
        )
    }

    /// Checks for a mismatch or a failed rank that prevents a run from completing.
    fn check_liveness(&self, run: &StartedRun<LinkedExecutor>) -> Result<(), Error> {
        let context = &self.communicator.context;
        // A rank that never started the call is the cause; report it before ranks that left because
        // of it.
        let arrived = |rank| self.window.arrived(rank, run.number.run);
        context.check_liveness(run.number.sequence, self.call, arrived)?;
        let program = &self.window.executor.program;
        // If ranks execute operations themselves, a rank that left has done its part only if its
        // own run is complete.
        context.member.liveness(&context.members).check(|rank| {
            let (word, threshold) = program.completion(run.number.run, rank);
            !program.linked.needs_owner || word.reached(threshold)
        })
    }

    /// Waits for a run in which other ranks both defer tasks to this rank and complete its
    /// operations. Sleeps at the wakeup line, which counts both kinds of events.
    fn wait_with_tasks(
        &self,
        run: &StartedRun<LinkedExecutor>,
        deadline: Option<Instant>,
    ) -> Result<bool, Error> {
        let context = &self.communicator.context;
        let spin_policy = context.member.node().spin_policy();
        let wakeup = &context.wakeup.words[context.rank as usize].events;
        loop {
            // Read before the poll: an event after the poll changes the count, so the wait below
            // ends at once.
            let seen = wakeup.count();
            if context.progress()? {
                continue;
            }
            if self.window.is_complete(run) {
                return Ok(true);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
            let next_check = Some(Instant::now() + wait::LIVENESS_INTERVAL);
            let is_notified = wait::until(
                &CountReached(wakeup, seen.wrapping_add(1)),
                spin_policy,
                deadline.min(next_check).or(next_check),
                || Ok(false),
                || Ok(()),
            )?;
            if !is_notified && let Err(error) = self.check_liveness(run) {
                // A failed rank may have finished its part before it ended.
                if context.progress()? || self.window.is_complete(run) {
                    continue;
                }
                return Err(error);
            }
        }
    }
}

impl OwnerWork for LinkedSchedule {
    fn progress_own(&self) -> Result<bool, Error> {
        self.window.advance();
        self.window.executor.progress_own()
    }

    fn is_idle(&self) -> bool {
        !self.window.has_queue() && self.window.executor.is_idle()
    }
}

impl Drop for LinkedSchedule {
    fn drop(&mut self) {
        let context = &self.communicator.context;
        // Other ranks may still copy into the staging memory of an unfinished run. It stays
        // allocated until the job ends.
        if self.window.is_busy() {
            self.window.with_scratch(LongStaging::forget);
        }
        let is_owner = context.rank == 0;
        context.member.release_shared(self.block, context.size(), is_owner);
    }
}
