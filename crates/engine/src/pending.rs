//! A collective that was started and not yet fetched.

use crate::call::Call;
use crate::error::Error;
use crate::group::Group;
use crate::lane::Run;
use crate::linkage::Linkage;
use crate::ring::Ring;
use crate::run::LinkedPlan;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a pending collective goes through.
#[derive(Debug)]
pub(crate) enum Course {
    Meeting(Arc<Group>, Run<Ring>),
    Program(Arc<Linkage>, Run<LinkedPlan>),
}

/// A started collective. Dropping it is sound: the collective goes on, its result is not fetched.
#[derive(Debug)]
#[must_use = "the result is there only after test or wait"]
pub struct Pending {
    course: Course,
}

impl Pending {
    #[inline]
    pub(crate) fn new(course: Course) -> Self {
        Pending { course }
    }

    /// The communicator.
    pub fn group(&self) -> &Arc<Group> {
        match &self.course {
            Course::Meeting(group, _) => group,
            Course::Program(linkage, _) => linkage.group(),
        }
    }

    /// The number of the collective on its communicator.
    pub fn sequence(&self) -> u64 {
        match &self.course {
            Course::Meeting(_, run) => run.number.sequence,
            Course::Program(_, run) => run.number.sequence,
        }
    }

    /// Whether all ranks meet, so that there is no schedule.
    pub fn is_meeting(&self) -> bool {
        matches!(self.course, Course::Meeting(..))
    }

    /// What was called.
    pub fn call(&self) -> Call {
        match &self.course {
            Course::Meeting(_, run) => run.call.call,
            Course::Program(linkage, _) => linkage.call(),
        }
    }

    /// Whether the collective is complete, without doing anything for it: one load.
    #[inline]
    pub fn is_complete(&self) -> bool {
        match &self.course {
            Course::Meeting(group, run) => run.is_collected() || group.ring.is_complete(run),
            Course::Program(linkage, run) => run.is_collected() || linkage.lane.is_complete(run),
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
        match &self.course {
            Course::Meeting(group, run) if run.was_queued() => group.ring.advance_for(run)?,
            Course::Program(linkage, run) if run.was_queued() => linkage.lane.advance_for(run)?,
            _ => {}
        }
        self.group().progress().map(|_| ())
    }

    /// Waits until it is complete.
    ///
    /// # Errors
    /// When a rank is gone or in another collective, or the limit is over ([`Error::Timeout`],
    /// naming who has not come).
    #[inline]
    pub fn wait(&self, limit: Option<Duration>) -> Result<(), Error> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let complete = match &self.course {
            Course::Meeting(group, run) => {
                run.is_collected() || group.wait_meeting(run, deadline)?
            }
            Course::Program(linkage, run) => run.is_collected() || linkage.wait(run, deadline)?,
        };
        if complete {
            return Ok(());
        }
        let waiting_for = self.group().laggards(self.sequence());
        Err(Error::Timeout { after: limit.unwrap_or_default(), waiting_for })
    }

    /// Another handle of the same collective, which is now the one to fetch or abandon it.
    pub fn hand_over(&mut self) -> Pending {
        let course = match &mut self.course {
            Course::Meeting(group, run) => Course::Meeting(Arc::clone(group), run.hand_over()),
            Course::Program(linkage, run) => Course::Program(Arc::clone(linkage), run.hand_over()),
        };
        Pending { course }
    }

    /// Fetches the results of a complete collective into private outputs, by buffer; empty slices
    /// where none is wanted or the buffer lies in the segment. A second call does nothing.
    ///
    /// # Errors
    /// What went wrong in the run: ranks that met in different collectives, a division by zero.
    #[inline]
    pub fn collect(&mut self, outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        self.group().trace_call_ended(self.sequence(), Some(self.call()));
        match &mut self.course {
            Course::Meeting(group, run) => group.ring.collect(run, outputs)?,
            Course::Program(linkage, run) => linkage.lane.collect(run, outputs)?,
        }
        Ok(())
    }
}

impl Drop for Pending {
    #[inline]
    fn drop(&mut self) {
        self.group().trace_call_ended(self.sequence(), None);
        match &self.course {
            Course::Meeting(group, run) if !run.is_collected() => group.ring.abandon(run),
            Course::Program(linkage, run) if !run.is_collected() => linkage.lane.abandon(run),
            _ => {}
        }
    }
}
