//! Allgather.

use super::plan::{Course, InPlaceRule, Own, Plan, Shape, bytes_of};
use crate::AllgatherAlgorithm;
use crate::algorithms::{Levels, Order};
use crate::buffers::{Input, Output};
use crate::communicator::Communicator;
use crate::error::Result;
use crate::persistent::Persistent;
use crate::request::Request;
use bytemuck::Pod;
use collectives::{Sizes, two_level};
use engine::call::{Call, CallKind};
use engine::meeting::{Meeting, Pattern};

/// # Allgather
impl Communicator {
    /// Gives every rank the inputs of all ranks, in rank order.
    ///
    /// Shapes: the input has n elements, the output size × n, n the same on all ranks. The input
    /// may be [in place](crate::InPlace): block r of the output on rank r.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let mut all = [0; 3];
    ///     world.allgather(&[10 * world.rank()], &mut all)?;
    ///     assert_eq!(all, [0, 10, 20]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the lengths do not fit, a rank is gone or in another collective.
    #[inline]
    pub fn allgather<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
    ) -> Result<()> {
        self.plan_allgather(size_of_val(output) as u64)?.run(self, input, output)
    }

    /// Begins an [`allgather`](Self::allgather).
    ///
    /// # Errors
    /// When the lengths do not fit or the schedule cannot be linked. Never waits, once linked.
    #[inline]
    pub fn iallgather<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        mut output: O,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        self.plan_allgather(output.bytes().len() as u64)?.start(self, input, output)
    }

    /// Prepares an allgather of `count` elements a rank to be started many times.
    ///
    /// # Errors
    /// As [`iallgather`](Self::iallgather).
    pub fn allgather_init<T: Pod>(&self, count: usize) -> Result<Persistent> {
        Ok(Persistent::new(self, self.plan_allgather(self.for_each_rank(bytes_of::<T>(count)?)?)?))
    }

    #[inline(always)]
    fn plan_allgather(&self, total: u64) -> Result<Plan> {
        let bytes = self.equal_part("the length of an allgather's output", total)?;
        let course = self.course_of_allgather(CallKind::Allgather, bytes, true)?;
        let at = u64::from(self.rank()) * bytes;
        let own = matches!(course, Course::Meeting(_)).then_some(Own { from: 0, to: at, bytes });
        Ok(Plan::new(
            course,
            Shape { in_place: InPlaceRule::InputAt(at), own, ..Shape::new(bytes, total) },
        ))
    }

    /// How every rank gets a block of `bytes` bytes from every rank; `leaves_own`: but for its own.
    #[inline(always)]
    pub(super) fn course_of_allgather(
        &self,
        kind: CallKind,
        bytes: u64,
        leaves_own: bool,
    ) -> Result<Course> {
        let choice = self.choose::<AllgatherAlgorithm>(bytes, Order::Any);
        let call = Call::new(kind, bytes, choice.digest());
        if choice.algorithm == AllgatherAlgorithm::Join {
            return Ok(Course::Meeting(Meeting {
                leaves_own,
                ..Meeting::new(Pattern::Gather, bytes, call)
            }));
        }
        let sizes = Sizes::equal(self.size(), bytes)?;
        self.linked((call, &choice), (0, Vec::new()), || match choice.levels {
            Levels::One => choice.algorithm.graph(self.rank(), &sizes),
            Levels::Two(per_node) => {
                two_level::allgather(self.rank(), per_node, &sizes, choice.algorithm)
            }
        })
    }
}
