//! Blocking flat collectives: started and fetched by the same thread.

use crate::argument::Argument;
use crate::communicator::Communicator;
use crate::error::Outcome;
use crate::flat::executor::FlatExecutor;
use crate::flat::pattern::FlatCollective;
use crate::flat::result_binding::ResultBinding;
use crate::window::blocking::BlockingStart;
use crate::window::{Executor, RunNumber, StartedRun};
use std::sync::Arc;

/// A blocking collective that has been started; see [`Communicator::start_blocking`].
#[derive(Debug)]
#[must_use = "the other ranks wait until it is finished"]
pub struct BlockingRun(BlockingState);

#[derive(Debug)]
enum BlockingState {
    Begun(RunNumber, ResultBinding),
    /// No slot was free.
    Queued(Box<StartedRun<FlatExecutor>>),
}

impl Communicator {
    /// Runs a flat collective: starts it, waits, and fetches the results, which
    /// [`Request`](crate::Request) does in steps.
    ///
    /// # Errors
    /// As [`start_flat`](Self::start_flat), [`Request::wait`](crate::Request::wait) and
    /// [`Request::collect`](crate::Request::collect).
    #[inline]
    pub fn run_flat(
        self: &Arc<Self>,
        collective: &FlatCollective,
        arguments: &[Argument<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Outcome {
        let started = self.start_blocking(collective, arguments)?;
        self.finish_blocking(started, collective, outputs)
    }

    /// Starts a blocking collective. This thread must call
    /// [`finish_blocking`](Self::finish_blocking) before any other operation on the communicator.
    /// The two calls are [`run_flat`](Self::run_flat) for callers with input and output in the same
    /// memory.
    ///
    /// # Errors
    /// As [`start_flat`](Self::start_flat).
    #[inline(always)]
    pub fn start_blocking(
        self: &Arc<Self>,
        collective: &FlatCollective,
        arguments: &[Argument<'_>],
    ) -> Outcome<BlockingRun> {
        self.check(collective, arguments)?;
        let sequence = self.context.begin(collective.call);
        self.context.trace_call_begun(sequence);
        match self.flat.start_blocking(sequence, collective, arguments) {
            BlockingStart::Begun(run) => Ok(BlockingRun(BlockingState::Begun(
                RunNumber { run, sequence },
                FlatExecutor::bindings(arguments),
            ))),
            otherwise => self.start_blocking_later(otherwise, sequence, collective, arguments),
        }
    }

    /// Waits for the collective and fetches its results.
    ///
    /// # Errors
    /// As [`Request::wait`](crate::Request::wait) and [`Request::collect`](crate::Request::collect).
    #[inline(always)]
    pub fn finish_blocking(
        self: &Arc<Self>,
        started: BlockingRun,
        collective: &FlatCollective,
        outputs: &mut [&mut [u8]],
    ) -> Outcome {
        let (number, bindings) = match started.0 {
            BlockingState::Begun(number, bindings) => (number, bindings),
            BlockingState::Queued(run) => return self.finish_queued(*run, collective, outputs),
        };
        if self.flat.executor.is_complete(number.run, collective) {
            self.flat.executor.prefetch_next(number.run, collective);
        } else {
            self.wait_blocking(number, collective, bindings)?;
        }
        self.context.trace_call_ended(number.sequence, Some(collective.call));
        self.flat.fetch_blocking(number, collective, &bindings, outputs)
    }

    fn wait_blocking(
        &self,
        number: RunNumber,
        collective: &FlatCollective,
        bindings: ResultBinding,
    ) -> Outcome {
        self.wait_begun(number, collective, None).map(|_| ()).inspect_err(|_| {
            self.context.trace_call_ended(number.sequence, None);
            // The number stays used, because other ranks may have arrived at this collective.
            self.flat.abandon_blocking(number, collective, &bindings);
        })
    }

    /// Handles a collective that has not begun immediately.
    #[cold]
    fn start_blocking_later(
        self: &Arc<Self>,
        first: BlockingStart,
        sequence: u64,
        collective: &FlatCollective,
        arguments: &[Argument<'_>],
    ) -> Outcome<BlockingRun> {
        let started = match first {
            BlockingStart::NoSlot => self.retry_start(sequence, collective, arguments),
            // Waits for memory like a nonblocking one.
            BlockingStart::Refused(error) if error.is_shortage() => {
                return self.queue(sequence, collective, arguments);
            }
            other => other,
        };
        match started {
            BlockingStart::Begun(run) => Ok(BlockingRun(BlockingState::Begun(
                RunNumber { run, sequence },
                FlatExecutor::bindings(arguments),
            ))),
            BlockingStart::NoSlot => self.queue(sequence, collective, arguments),
            // The run has not begun, so no other rank has seen its number. After `Failed` it has
            // begun, and the number stays used.
            BlockingStart::Refused(error) => {
                self.context.take_back(sequence);
                Err(error)
            }
            BlockingStart::Failed(error) => Err(error),
        }
    }

    /// Retries for a short time: a rank that does not wait for others is soon ahead of them by all
    /// slots.
    fn retry_start(
        &self,
        sequence: u64,
        collective: &FlatCollective,
        arguments: &[Argument<'_>],
    ) -> BlockingStart {
        for _ in 0..self.context.member.node().spin_policy().tries() {
            // Long enough for the other ranks to free several slots: each poll takes the line with
            // their run states away from them. An exclusive scan of 8 bytes took 8 % longer with an
            // eighth of these pauses, and 3 % with twice as many.
            (0..256).for_each(|_| std::hint::spin_loop());
            let started = self.flat.start_blocking(sequence, collective, arguments);
            if !matches!(started, BlockingStart::NoSlot) {
                return started;
            }
        }
        BlockingStart::NoSlot
    }

    fn queue(
        self: &Arc<Self>,
        sequence: u64,
        collective: &FlatCollective,
        arguments: &[Argument<'_>],
    ) -> Outcome<BlockingRun> {
        let started = self.flat.start(sequence, collective, arguments);
        let run = started.inspect_err(|_| self.context.take_back(sequence))?;
        self.register_if_queued(&run)?;
        Ok(BlockingRun(BlockingState::Queued(Box::new(run))))
    }

    #[cold]
    fn finish_queued(
        &self,
        mut run: StartedRun<FlatExecutor>,
        collective: &FlatCollective,
        outputs: &mut [&mut [u8]],
    ) -> Outcome {
        self.wait_flat(&run, None).inspect_err(|_| {
            if self.flat.withdraw(&run) {
                self.context.take_back(run.number.sequence)
            } else {
                self.flat.abandon(&run)
            }
        })?;
        self.context.trace_call_ended(run.number.sequence, Some(collective.call));
        self.flat.collect(&mut run, outputs)
    }
}
