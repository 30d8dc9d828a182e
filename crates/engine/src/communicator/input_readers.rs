//! Inputs in memory of the segment, which the other ranks read in place when they fetch their results.

use crate::communicator::Communicator;
use crate::communicator::request::{Execution, Request};
use crate::error::{Error, Straggler};
use crate::flat::pattern::FlatCollective;
use crate::flat::role::ReducedBy;
use crate::wait;
use crate::window::{Executor, RunNumber};
use shm::owned::OwnedBytes;
use std::sync::Arc;
use std::time::Instant;

/// The ranks that read the input of a collective in place. The collective may be complete on its
/// own rank before they do.
///
/// Until they [are done](Self::are_done), the caller neither changes nor frees the input.
#[derive(Clone, Debug)]
pub struct InputReaders {
    /// Keeps the states of the ranks' runs allocated. No cycle across ranks: a rank that has dropped
    /// its request is done, whether or not its communicator is dropped.
    communicator: Arc<Communicator>,
    run: u64,
    sequence: u64,
}

impl InputReaders {
    /// Returns whether no other rank reads the input any more: it has fetched its result, has
    /// dropped its request, or has left the job. One load a rank that is done.
    pub fn are_done(&self) -> bool {
        (0..self.communicator.context.size()).all(|rank| self.is_done(rank))
    }

    /// Copies the input to other memory of this rank's part of the segment.
    ///
    /// # Errors
    /// Returns an error if that part is full.
    pub fn copy(&self, input: &OwnedBytes, alignment: u64) -> Result<OwnedBytes, Error> {
        Ok(self.communicator.member().with_reclaim(|| input.copy(alignment))?)
    }

    /// Waits until they are done, for a change of an input of `bytes` bytes that finds no memory
    /// for a copy, at most until the deadline. The other ranks move their results to private memory
    /// meanwhile, in any wait or test. Returns the ranks that are not done.
    ///
    /// # Errors
    /// [`Error::GivenUp`] if the other runtime of this thread ends the wait
    /// ([`while_waiting`](crate::while_waiting)).
    #[cold]
    pub fn wait(&self, bytes: u64, deadline: Option<Instant>) -> Result<Vec<Straggler>, Error> {
        let context = &self.communicator.context;
        let turn = context.member.memory().enqueue(bytes);
        context.member.memory().record_shortage();
        let are_done = || {
            // An operation of this rank that fails is reported by the wait for its own run.
            let _ = context.progress();
            Ok(self.are_done())
        };
        // No liveness check: a rank that fails is done.
        let outcome = wait::for_slot(
            context.member.node().spin_policy(),
            deadline,
            || context.wait_for(self.sequence),
            are_done,
            || Ok(()),
        );
        drop(turn);
        outcome?;
        let readers = (0..context.size()).filter(|rank| !self.is_done(*rank));
        Ok(readers.map(|rank| context.straggler(rank)).collect())
    }

    /// As [`wait`](Self::wait), until they are done: the caller changes the input afterwards,
    /// whatever the other runtime of this thread knows.
    #[cold]
    pub fn wait_until_done(&self, bytes: u64) {
        while !self.are_done() {
            // Neither given up nor at a deadline, so the first wait is the last.
            let _ = wait::never_given_up(|| self.wait(bytes, None));
        }
    }

    fn is_done(&self, rank: u32) -> bool {
        // A rank that has left has no request; one that was killed executes nothing.
        self.communicator.flat.is_read(rank, self.run) || self.communicator.exit_of(rank).is_some()
    }
}

impl Communicator {
    /// Returns whether the other ranks read an input of this rank that lies in the segment in place,
    /// after this rank's call.
    #[inline]
    fn reads_in_place(&self, collective: &FlatCollective) -> bool {
        let role = self.flat.executor.role(collective);
        // Chunks of a reduction are complete after the last read of a contribution.
        role.contributes
            && role.reduced_by == ReducedBy::Reader
            && self.flat.executor.is_large(collective)
    }
}

impl Request {
    /// Returns the ranks that read an input in the segment in place, also after this rank's call.
    #[inline]
    pub fn input_readers(&self) -> Option<InputReaders> {
        match self.execution() {
            Execution::Flat(communicator, run) if communicator.reads_in_place(&run.call) => {
                let communicator = Arc::clone(communicator);
                let RunNumber { run, sequence } = run.number;
                Some(InputReaders { communicator, run, sequence })
            }
            _ => None,
        }
    }
}
