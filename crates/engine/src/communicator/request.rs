//! A collective that was started and not yet fetched.

use crate::communicator::Communicator;
use crate::communicator::link::LinkedSchedule;
use crate::error::Error;
use crate::flat::executor::FlatExecutor;
use crate::linked::executor::LinkedExecutor;
use crate::signature::Signature;
use crate::window::Run;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a pending collective goes through.
#[derive(Debug)]
pub(crate) enum Execution {
    Flat(Arc<Communicator>, Run<FlatExecutor>),
    Linked(Arc<LinkedSchedule>, Run<LinkedExecutor>),
}

/// A started collective. Dropping it is sound: the collective goes on, its result is not fetched.
#[derive(Debug)]
#[must_use = "the result is there only after test or wait"]
pub struct Request {
    execution: Execution,
}

impl Request {
    #[inline]
    pub(crate) fn new(execution: Execution) -> Self {
        Request { execution }
    }

    /// The communicator.
    pub fn communicator(&self) -> &Arc<Communicator> {
        match &self.execution {
            Execution::Flat(communicator, _) => communicator,
            Execution::Linked(linked_schedule, _) => linked_schedule.communicator(),
        }
    }

    /// The number of the collective on its communicator.
    pub fn sequence(&self) -> u64 {
        match &self.execution {
            Execution::Flat(_, run) => run.number.sequence,
            Execution::Linked(_, run) => run.number.sequence,
        }
    }

    /// Whether all ranks meet, so that there is no schedule.
    pub fn is_flat(&self) -> bool {
        matches!(self.execution, Execution::Flat(..))
    }

    /// What was called.
    pub fn call(&self) -> Signature {
        match &self.execution {
            Execution::Flat(_, run) => run.call.call,
            Execution::Linked(linked_schedule, _) => linked_schedule.call(),
        }
    }

    /// Whether the collective is complete, without doing anything for it: one load.
    #[inline]
    pub fn is_complete(&self) -> bool {
        match &self.execution {
            Execution::Flat(communicator, run) => {
                run.is_collected() || communicator.flat.is_complete(run)
            }
            Execution::Linked(linked_schedule, run) => {
                run.is_collected() || linked_schedule.window.is_complete(run)
            }
        }
    }

    /// Whether the collective is complete, after doing what only this rank can do for it.
    ///
    /// # Errors
    /// When this rank's own operations fail.
    #[inline]
    pub fn test(&self) -> Result<bool, Error> {
        if self.is_complete() {
            return Ok(true);
        }
        self.advance()?;
        Ok(self.is_complete())
    }

    /// Does what only this rank can do: start what is queued, run its own operations. Nothing, as a
    /// rule.
    #[inline]
    fn advance(&self) -> Result<(), Error> {
        match &self.execution {
            Execution::Flat(communicator, run) if run.was_queued() => {
                communicator.flat.advance_for(run)?
            }
            Execution::Linked(linked_schedule, run) if run.was_queued() => {
                linked_schedule.window.advance_for(run)?
            }
            _ => {}
        }
        self.communicator().progress().map(|_| ())
    }

    /// Waits until it is complete.
    ///
    /// # Errors
    /// When a rank is gone or in another collective, or the limit is over ([`Error::Timeout`],
    /// naming who has not come).
    #[inline]
    pub fn wait(&self, limit: Option<Duration>) -> Result<(), Error> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let complete = match &self.execution {
            Execution::Flat(communicator, run) => {
                run.is_collected() || communicator.wait_flat(run, deadline)?
            }
            Execution::Linked(linked_schedule, run) => {
                run.is_collected() || linked_schedule.wait(run, deadline)?
            }
        };
        if complete {
            return Ok(());
        }
        let waiting_for = self.communicator().stragglers(self.sequence());
        Err(Error::Timeout { after: limit.unwrap_or_default(), waiting_for })
    }

    /// Another handle of the same collective, which is now the one to fetch or abandon it.
    pub fn transfer(&mut self) -> Request {
        let execution = match &mut self.execution {
            Execution::Flat(communicator, run) => {
                Execution::Flat(Arc::clone(communicator), run.transfer())
            }
            Execution::Linked(linked_schedule, run) => {
                Execution::Linked(Arc::clone(linked_schedule), run.transfer())
            }
        };
        Request { execution }
    }

    /// Fetches the results of a complete collective into private outputs, by buffer; empty slices
    /// where none is wanted or the buffer lies in the segment. A second call does nothing.
    ///
    /// # Errors
    /// What went wrong in the run: ranks that met in different collectives, a division by zero.
    #[inline]
    pub fn collect(&mut self, outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        self.communicator().trace_call_ended(self.sequence(), Some(self.call()));
        match &mut self.execution {
            Execution::Flat(communicator, run) => communicator.flat.collect(run, outputs)?,
            Execution::Linked(linked_schedule, run) => {
                linked_schedule.window.collect(run, outputs)?
            }
        }
        Ok(())
    }
}

impl Drop for Request {
    #[inline]
    fn drop(&mut self) {
        self.communicator().trace_call_ended(self.sequence(), None);
        match &self.execution {
            Execution::Flat(communicator, run) if !run.is_collected() => {
                communicator.flat.abandon(run)
            }
            Execution::Linked(linked_schedule, run) if !run.is_collected() => {
                linked_schedule.window.abandon(run)
            }
            _ => {}
        }
    }
}
