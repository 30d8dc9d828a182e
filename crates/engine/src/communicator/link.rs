//! Linked schedules, as one rank sees them: linking, starting runs, waiting for them.

use crate::argument::Argument;
use crate::communicator::Communicator;
use crate::communicator::request::{Execution, Request};
use crate::error::Error;
use crate::linked::executor::{LinkedExecutor, LongStaging};
use crate::linked::frame::ProgramLayout;
use crate::linked::program::{Program, ProgramOptions};
use crate::node::EngineKind;
use crate::node::membership::OwnerWork;
use crate::signature::Signature;
use crate::state::EXCHANGE_WORDS;
use crate::trace::ProgramTrace;
use crate::wait::{self, CountReached};
use crate::window::{InflightWindow, Run};
use goal::graph::Access;
use goal::limits;
use goal::link::{LinkOptions, Linked, link};
use goal::schedule::Schedule;
use shm::segment::Offset;
use shm::sync::Ordering;
use std::sync::{Arc, PoisonError, Weak};
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
        let linked = self.read_and_link(&all, placed.as_ref().err()).map(|linked| {
            let layout = ProgramLayout::new(&linked);
            (linked, layout)
        });
        let needed = linked.as_ref().map_or(0, |(_, layout)| layout.bytes());
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
        let (linked, layout) = linked?;
        let block = Offset(answers[0][0]);
        if block.0 == u64::MAX {
            return Err(Error::Environment(format!(
                "rank 0 of the communicator has no room for the {needed} bytes that runs of this schedule need: set \
                 TRADEWIND_ARENA_MIB to more"
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
        let memory = self.member.node().memory();
        let read = |words: &[u64; EXCHANGE_WORDS]| -> Result<Schedule, Error> {
            Ok(memory.inspect(Offset(words[0]), words[1], Schedule::from_bytes)??)
        };
        let schedules = all.iter().map(read).collect::<Result<Vec<_>, Error>>()?;
        let node = self.member.node();
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
        let slots = layout.slots;
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
        let node = self.member.node();
        let options = ProgramOptions { rank: self.rank, skip_calc: node.skip_calc(), trace };
        let program = Program::new(node.memory().clone(), block, linked, layout, options)?;
        let staging = LongStaging::new(Arc::clone(self.member.arena()), &program);
        let window =
            InflightWindow::new(LinkedExecutor::new(program, self.wakeup.clone()), slots, staging);
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

    /// Starts a run with this rank's buffers. Never waits.
    ///
    /// # Errors
    /// Returns an error if a buffer has the wrong length or the arena is full.
    pub fn start(self: &Arc<Self>, arguments: &[Argument<'_>]) -> Result<Request, Error> {
        let program = &self.window.executor.program;
        let buffers = program.linked(program.rank).schedule.view().buffers();
        if buffers.len() != arguments.len() {
            return Err(Error::BufferCount { expected: buffers.len(), found: arguments.len() });
        }
        for (buffer, (record, argument)) in buffers.iter().zip(arguments).enumerate() {
            argument.check(buffer, record.length, record.access != Access::Output as u32)?;
        }
        let sequence = self.communicator.begin(self.call);
        self.communicator.trace_call_begun(sequence);
        let started = self.window.start(sequence, &(), arguments);
        let run = started.inspect_err(|_| self.communicator.take_back(sequence))?;
        if run.was_queued() || self.window.executor.program.linked.needs_owner {
            self.communicator.member.register(Arc::downgrade(self) as Weak<dyn OwnerWork>);
        }
        Ok(Request::new(Execution::Linked(Arc::clone(self), run)))
    }

    /// Waits for a run of this schedule.
    pub(crate) fn wait(
        &self,
        run: &Run<LinkedExecutor>,
        deadline: Option<Instant>,
    ) -> Result<bool, Error> {
        let communicator = &self.communicator;
        let liveness = communicator.member.liveness(&communicator.members);
        let mut check_liveness = || {
            communicator.state.find_mismatch(run.number.sequence, self.call)?;
            // A rank that never started the call is the cause; report it before ranks that left
            // because of it.
            liveness.check(|rank| self.window.arrived(rank, run.number.run))?;
            let program = &self.window.executor.program;
            // If ranks execute operations themselves, a rank that left has done its part only if
            // its own run is complete.
            liveness.check(|rank| {
                let (word, threshold) = program.completion(run.number.run, rank);
                !program.linked.needs_owner || word.reached(threshold)
            })
        };
        let spin_policy = communicator.member.node().spin_policy();
        if run.was_queued() {
            let has_begun = || {
                self.window.advance_for(run)?;
                communicator.progress()?;
                Ok(self.window.has_begun(run))
            };
            if !wait::for_slot(spin_policy, deadline, has_begun, &mut check_liveness)? {
                return Ok(false);
            }
        }
        let progress = || communicator.progress();
        if !self.window.executor.program.linked.needs_owner {
            let program = &self.window.executor.program;
            let (word, threshold) = program.completion(run.number.run, program.rank);
            return wait::until(
                &CountReached(word, threshold),
                spin_policy,
                deadline,
                progress,
                check_liveness,
            );
        }
        // Ranks both defer tasks to this rank and complete its operations. Sleep at the wakeup
        // line, which counts both kinds of events.
        let wakeup = &communicator.wakeup.words[communicator.rank as usize].events;
        loop {
            let heard = wakeup.count();
            if progress()? {
                continue;
            }
            if self.window.is_complete(run) {
                return Ok(true);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
            let look = Some(Instant::now() + wait::LIVENESS_INTERVAL);
            let slice = deadline.min(look).or(look);
            let rung = wait::until(
                &CountReached(wakeup, heard.wrapping_add(1)),
                spin_policy,
                slice,
                || Ok(false),
                || Ok(()),
            )?;
            if !rung && let Err(error) = check_liveness() {
                if progress()? || self.window.is_complete(run) {
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
        let communicator = &self.communicator;
        if self.window.is_busy() {
            self.window.with_scratch(LongStaging::forget);
        }
        let is_owner = communicator.rank == 0;
        communicator.member.release_shared(self.block, communicator.size(), is_owner);
    }
}
