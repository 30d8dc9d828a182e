//! Barrier.

use super::plan::{Course, Plan};
use crate::BarrierAlgorithm;
use crate::algorithms::{Choice, Levels, Order};
use crate::communicator::Communicator;
use crate::error::Result;
use crate::persistent::Persistent;
use crate::request::Request;
use collectives::two_level;
use engine::call::{Call, CallKind};
use engine::meeting::{Meeting, Pattern};

/// # Barrier
impl Communicator {
    /// Waits until every rank has come here.
    ///
    /// # Errors
    /// When a rank is gone or in another collective.
    #[inline]
    pub fn barrier(&self) -> Result<()> {
        let choice = self.choose::<BarrierAlgorithm>(0, Order::Any);
        if choice.algorithm == BarrierAlgorithm::Join {
            return Ok(self.group().meet_and_wait(&meeting_of_barrier(&choice), &[], &mut [])?);
        }
        Plan::bare(self.linked_barrier(&choice)?).start_bare(self)?.wait()
    }

    /// Begins a barrier: complete when every rank has begun its own.
    ///
    /// # Errors
    /// When the schedule cannot be linked. Never waits, once linked.
    #[inline]
    pub fn ibarrier(&self) -> Result<Request<'static>> {
        Plan::bare(self.course_of_barrier()?).start_bare(self)
    }

    /// Prepares a barrier to be started many times.
    ///
    /// # Errors
    /// As [`ibarrier`](Self::ibarrier).
    pub fn barrier_init(&self) -> Result<Persistent> {
        Ok(Persistent::new(self, Plan::bare(self.course_of_barrier()?)))
    }

    fn course_of_barrier(&self) -> Result<Course> {
        let choice = self.choose::<BarrierAlgorithm>(0, Order::Any);
        match choice.algorithm {
            BarrierAlgorithm::Join => Ok(Course::Meeting(meeting_of_barrier(&choice))),
            _ => self.linked_barrier(&choice),
        }
    }

    #[cold]
    fn linked_barrier(&self, choice: &Choice<BarrierAlgorithm>) -> Result<Course> {
        self.linked((call_of_barrier(choice), choice), (0, Vec::new()), || match choice.levels {
            Levels::One => choice.algorithm.graph(self.rank(), self.size()),
            Levels::Two(per_node) => {
                two_level::barrier(self.rank(), self.size(), per_node, choice.algorithm)
            }
        })
    }
}

#[inline(always)]
fn meeting_of_barrier(choice: &Choice<BarrierAlgorithm>) -> Meeting {
    Meeting::new(Pattern::Barrier, 0, call_of_barrier(choice))
}

#[inline(always)]
fn call_of_barrier(choice: &Choice<BarrierAlgorithm>) -> Call {
    Call::new(CallKind::Barrier, 0, choice.digest())
}
