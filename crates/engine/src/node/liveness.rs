//! Detection of failed ranks and of a failed service.

use crate::error::{Error, Exit};
use crate::node::{Node, state};
use shm::process::ProcessHandle;
use shm::sync::Ordering;
use std::time::{Duration, Instant};

/// Check for failures that end a wait.
#[derive(Debug)]
pub struct LivenessCheck<'a> {
    node: &'a Node,
    members: &'a [u32],
    service: Option<&'a ProcessHandle>,
}

impl<'a> LivenessCheck<'a> {
    pub(crate) fn new(
        node: &'a Node,
        members: &'a [u32],
        service: Option<&'a ProcessHandle>,
    ) -> Self {
        LivenessCheck { node, members, service }
    }

    /// Checks whether a rank of the communicator, or the service, has failed. `arrived` returns
    /// whether a rank that left in order had done its part before.
    pub(crate) fn check(&self, arrived: impl Fn(u32) -> bool) -> Result<(), Error> {
        if self.node.has_failures() {
            // Ranks that left because of this failure are not its cause.
            let cause = self.node.first_failed().and_then(|first| {
                let rank = self.members.iter().position(|member| *member == first)?;
                Some(Error::RankFailed { rank: rank as u32, how: self.node.exit_of(first)? })
            });
            if let Some(cause) = cause {
                return Err(cause);
            }
        }
        // Test the service before ranks that have left: without a service, ranks that noticed first
        // have left.
        if self.service.is_some_and(ProcessHandle::has_exited) {
            return Err(Error::ServiceFailed);
        }
        if self.node.has_failures() {
            for (member, rank) in self.members.iter().zip(0..) {
                match self.node.exit_of(*member) {
                    None => {}
                    Some(Exit::Left) if arrived(rank) => {}
                    Some(how) => return Err(Error::RankFailed { rank, how }),
                }
            }
        }
        Ok(())
    }
}

impl Node {
    /// Waits until every rank has joined.
    ///
    /// # Errors
    /// Returns an error if a rank failed before it joined, or if the limit has passed.
    pub fn wait_for_all(&self, liveness: &LivenessCheck<'_>, limit: Duration) -> Result<(), Error> {
        let start = Instant::now();
        loop {
            // Acquire: pairs with the AcqRel addition in `join`.
            let joined = self.header.joined.load(Ordering::Acquire);
            if joined >= self.ranks {
                return Ok(());
            }
            liveness.check(|_| true)?;
            if start.elapsed() > limit {
                let missing = self
                    .lines
                    .iter()
                    .position(|line| line.state.load(Ordering::Acquire) == state::ABSENT);
                let rank = missing.unwrap_or(0) as u32;
                return Err(Error::RankFailed { rank, how: Exit::NeverStarted });
            }
            // A rank that joins changes the word and ends the sleep. A failure only wakes it, so
            // one that is recorded just before the sleep is found after the limit.
            shm::futex::wait(&self.header.joined, joined, Some(Duration::from_millis(50)));
        }
    }
}
