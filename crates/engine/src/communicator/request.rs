//! Requests: collectives that have been started and not yet fetched.

use crate::argument::Argument;
use crate::communicator::Communicator;
use crate::communicator::linked_schedule::LinkedSchedule;
use crate::error::{Error, Outcome};
use crate::flat::executor::FlatExecutor;
use crate::flat::pattern::FlatCollective;
use crate::linked::executor::LinkedExecutor;
use crate::node::membership::OwnerWork;
use crate::signature::Signature;
use crate::sync::{AtomicU32, Ordering};
use crate::window::{Executor, StartedRun};
use shm::clock::monotonic_nanoseconds;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

impl Communicator {
    /// Starts a flat collective: buffer 0 is the contribution, buffer 1 the result (no buffers in a
    /// barrier). Never waits.
    ///
    /// # Errors
    /// Returns an error if the arena is full and no run of this rank will release memory.
    // Always inlined: the pattern is a constant where a collective is called, as in a blocking call.
    #[inline(always)]
    pub fn start_flat(
        self: &Arc<Self>,
        collective: &FlatCollective,
        arguments: &[Argument<'_>],
    ) -> Result<Request, Error> {
        self.check(collective, arguments)?;
        // Before the arrival: a locked instruction waits for all earlier stores, and that of the
        // arrival takes as long as the transfer of its line.
        let communicator = Arc::clone(self);
        let sequence = self.context.begin(collective.call);
        self.context.trace_call_begun(sequence);
        let started = self.flat.start_short(sequence, collective, arguments);
        // After an error the run has not begun, so no other rank has seen its number.
        let run = started.inspect_err(|_| self.context.take_back(sequence))?;
        self.register_if_queued(&run)?;
        self.flat.executor.demote_arrival(run.number.run, collective);
        Ok(Request::new(Execution::Flat(communicator, run)))
    }
}

impl LinkedSchedule {
    /// Starts a run with this rank's buffers. Never waits.
    ///
    /// # Errors
    /// Returns an error if a buffer has the wrong length, or if the arena is full and no run of
    /// this rank will release memory.
    pub fn start(self: &Arc<Self>, arguments: &[Argument<'_>]) -> Result<Request, Error> {
        let run = self.start_run(arguments)?;
        // After the start: an object without tasks is removed from the list at the next poll.
        if run.was_queued() || self.needs_owner() {
            let member = self.communicator().member();
            member.register(Arc::downgrade(self) as Weak<dyn OwnerWork>);
            if run.was_queued() && member.memory().is_short() {
                self.advance_new(&run)?;
            }
        }
        Ok(Request::new(Execution::Linked(Arc::clone(self), run)))
    }
}

/// The execution of a collective.
#[derive(Debug)]
pub(crate) enum Execution {
    Flat(Arc<Communicator>, StartedRun<FlatExecutor>),
    Linked(Arc<LinkedSchedule>, StartedRun<LinkedExecutor>),
}

/// Tests of an incomplete collective between two checks of the other ranks. A check, which has a
/// system call, takes as long as some tens of tests.
const TESTS_PER_CHECK: u32 = 1024;

/// Tests between two readings of the clock, each of which takes longer than a test.
const TESTS_PER_READING: u32 = 64;

/// Milliseconds between two checks of a rank with slow tests: where other processes use the core that
/// a program yields between two tests, 1024 tests take seconds.
const CHECK_INTERVAL: u32 = 100;

/// A started collective. Dropping it is sound: the collective continues and its result is
/// discarded.
#[derive(Debug)]
#[must_use = "the result is there only after test or wait"]
pub struct Request {
    execution: Execution,
    /// Number of tests that have found the collective incomplete.
    tests: AtomicU32,
    /// Time in milliseconds of the first reading of the clock, or of the last check.
    checked_at: AtomicU32,
}

impl Request {
    #[inline]
    pub(crate) fn new(execution: Execution) -> Self {
        Request { execution, tests: AtomicU32::new(0), checked_at: AtomicU32::new(0) }
    }

    pub(super) fn execution(&self) -> &Execution {
        &self.execution
    }

    /// Returns the communicator.
    pub fn communicator(&self) -> &Arc<Communicator> {
        match &self.execution {
            Execution::Flat(communicator, _) => communicator,
            Execution::Linked(linked_schedule, _) => linked_schedule.communicator(),
        }
    }

    /// Returns the sequence number of the collective on its communicator.
    pub fn sequence(&self) -> u64 {
        match &self.execution {
            Execution::Flat(_, run) => run.number.sequence,
            Execution::Linked(_, run) => run.number.sequence,
        }
    }

    /// Returns whether this is a flat collective, which has no schedule.
    pub fn is_flat(&self) -> bool {
        matches!(self.execution, Execution::Flat(..))
    }

    /// Returns whether ranks may hold memory of their arenas for the collective: the same on all
    /// ranks.
    pub fn uses_arena(&self) -> bool {
        match &self.execution {
            // Blocks of different lengths may be long on another rank only.
            Execution::Flat(communicator, run) => {
                run.call.blocks.is_some() || communicator.flat.executor.is_large(&run.call)
            }
            Execution::Linked(..) => true,
        }
    }

    /// Returns whether the collective waits for a place or for memory, so that a later call of
    /// this rank starts it. Other ranks may wait for this rank's contribution meanwhile.
    #[inline]
    pub fn is_queued(&self) -> bool {
        match &self.execution {
            Execution::Flat(communicator, run) => !communicator.flat.has_begun(run),
            Execution::Linked(linked_schedule, run) => !linked_schedule.has_begun(run),
        }
    }

    /// Returns the signature of the call.
    pub fn call(&self) -> Signature {
        match &self.execution {
            Execution::Flat(_, run) => run.call.call,
            Execution::Linked(linked_schedule, _) => linked_schedule.call(),
        }
    }

    /// Returns whether the collective is complete, without making progress: one load.
    #[inline]
    pub fn is_complete(&self) -> bool {
        match &self.execution {
            Execution::Flat(communicator, run) => {
                run.is_collected() || communicator.flat.is_complete(run)
            }
            Execution::Linked(linked_schedule, run) => {
                run.is_collected() || linked_schedule.is_complete(run)
            }
        }
    }

    /// Returns whether the collective is complete, after executing this rank's own tasks.
    ///
    /// # Errors
    /// Returns an error if an operation of this rank fails, and, after 1024 tests that find the
    /// collective incomplete or 64 of them that took 100 ms, if a rank has failed or is in another
    /// collective.
    #[inline]
    pub fn test(&self) -> Outcome<bool> {
        if self.is_complete() {
            return Ok(true);
        }
        self.advance()?;
        if self.is_complete() {
            return Ok(true);
        }
        // A plain load and store: a count lost between two threads only delays the check.
        let tests = self.tests.load(Ordering::Relaxed).wrapping_add(1);
        self.tests.store(tests, Ordering::Relaxed);
        let is_due = tests.is_multiple_of(TESTS_PER_READING) && self.is_check_due(tests);
        if is_due { self.test_with_check() } else { Ok(false) }
    }

    /// Returns whether this many tests, or the time since the last check, call for a check.
    #[cold]
    fn is_check_due(&self, tests: u32) -> bool {
        let now = (monotonic_nanoseconds() / 1_000_000) as u32;
        let is_first = tests == TESTS_PER_READING;
        // Relaxed: a value that another thread replaces only delays the check.
        let since = now.wrapping_sub(self.checked_at.load(Ordering::Relaxed));
        let is_due = tests.is_multiple_of(TESTS_PER_CHECK) || !is_first && since >= CHECK_INTERVAL;
        if is_due || is_first {
            self.checked_at.store(now, Ordering::Relaxed);
        }
        is_due
    }

    /// Returns whether the collective is complete, after checking that it can complete.
    #[cold]
    fn test_with_check(&self) -> Outcome<bool> {
        let checked = match &self.execution {
            Execution::Flat(communicator, run) => {
                communicator.check_flat_liveness(run.number, &run.call)
            }
            Execution::Linked(linked_schedule, run) => linked_schedule.check_run(run),
        };
        // A failed rank may have finished its part before it ended. Here nothing pins a run to its
        // slot, but a run that has lost it is complete.
        match checked {
            Err(error) if !self.is_complete() => Err(error.into()),
            _ => Ok(self.is_complete()),
        }
    }

    /// Executes this rank's own tasks: starts queued runs and executes its own operations. Usually
    /// there are none.
    #[inline]
    fn advance(&self) -> Outcome {
        match &self.execution {
            Execution::Flat(communicator, run) if run.was_queued() => {
                communicator.advance_queued(run)?
            }
            Execution::Linked(linked_schedule, run) if run.was_queued() => {
                linked_schedule.advance_for(run)?
            }
            _ => {}
        }
        self.communicator().context.progress().map(|_| ())
    }

    /// Waits until the collective is complete.
    ///
    /// # Errors
    /// Returns an error if a rank has failed or is in another collective, [`Error::Arena`] if ranks
    /// without memory wait for each other, or [`Error::Timeout`], with the ranks that have not
    /// started the call, after `limit`.
    #[inline]
    pub fn wait(&self, limit: Option<Duration>) -> Outcome {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let complete = match &self.execution {
            Execution::Flat(communicator, run) => {
                run.is_collected() || communicator.wait_flat(run, deadline)?
            }
            Execution::Linked(linked_schedule, run) => {
                run.is_collected() || linked_schedule.wait(run, deadline)?
            }
        };
        // Not an end of the collective: a later wait may succeed.
        if complete {
            return Ok(());
        }
        let waiting_for = self.communicator().context.stragglers(self.sequence());
        Err(Error::Timeout { after: limit.unwrap_or_default(), waiting_for }.into())
    }

    /// Moves the collective to a new request, which then fetches or abandons it.
    pub fn transfer(&mut self) -> Request {
        let execution = match &mut self.execution {
            Execution::Flat(communicator, run) => {
                Execution::Flat(Arc::clone(communicator), run.transfer())
            }
            Execution::Linked(linked_schedule, run) => {
                Execution::Linked(Arc::clone(linked_schedule), run.transfer())
            }
        };
        Request::new(execution)
    }

    /// Fetches the results of a complete collective into private outputs, by buffer; empty slices
    /// for outputs that are not wanted or that lie in the segment. A second call does nothing.
    ///
    /// # Errors
    /// Returns the error of the run: ranks in different collectives, or a division by zero.
    #[inline]
    pub fn collect(&mut self, outputs: &mut [&mut [u8]]) -> Outcome {
        self.communicator().context.trace_call_ended(self.sequence(), Some(self.call()));
        match &mut self.execution {
            Execution::Flat(communicator, run) => communicator.flat.collect(run, outputs),
            Execution::Linked(linked_schedule, run) => linked_schedule.collect(run, outputs),
        }
    }
}

impl Drop for Request {
    #[inline]
    fn drop(&mut self) {
        self.communicator().context.trace_call_ended(self.sequence(), None);
        match &self.execution {
            // The run continues: other ranks need this rank's part. Its slot is free when it is
            // complete.
            Execution::Flat(communicator, run) if !run.is_collected() => {
                communicator.flat.abandon(run)
            }
            Execution::Linked(linked_schedule, run) if !run.is_collected() => {
                linked_schedule.abandon(run)
            }
            _ => {}
        }
    }
}
