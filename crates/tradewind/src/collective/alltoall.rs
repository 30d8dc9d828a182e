//! All-to-all.

use super::plan::{Course, Own, Plan, Shape, bytes_of};
use crate::AlltoallAlgorithm;
use crate::algorithms::{Levels, Order};
use crate::buffers::{Input, Output};
use crate::communicator::Communicator;
use crate::error::Result;
use crate::persistent::Persistent;
use crate::request::Request;
use bytemuck::Pod;
use collectives::two_level;
use engine::call::{Call, CallKind};
use engine::meeting::{Meeting, Pattern};

/// # All-to-all
impl Communicator {
    /// Every rank gives one part to every rank: part j of rank i's input becomes part i of rank j's
    /// output.
    ///
    /// Shapes: input and output have size × n elements, n the same on all ranks. The input may be
    /// [in place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(2, |world| {
    ///     let mine = [10 * world.rank(), 10 * world.rank() + 1];
    ///     let mut theirs = [0; 2];
    ///     world.alltoall(&mine, &mut theirs)?;
    ///     assert_eq!(theirs, [world.rank(), 10 + world.rank()]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the lengths differ or are no multiple of the number of ranks, a rank is gone or in
    /// another collective.
    #[inline]
    pub fn alltoall<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
    ) -> Result<()> {
        self.plan_alltoall(size_of_val(output) as u64)?.run(self, input, output)
    }

    /// Begins an [`alltoall`](Self::alltoall).
    ///
    /// # Errors
    /// When the lengths do not fit or the schedule cannot be linked. Never waits, once linked.
    #[inline]
    pub fn ialltoall<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        mut output: O,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        self.plan_alltoall(output.bytes().len() as u64)?.start(self, input, output)
    }

    /// Prepares an alltoall of `count` elements for each rank to be started many times.
    ///
    /// # Errors
    /// As [`ialltoall`](Self::ialltoall).
    pub fn alltoall_init<T: Pod>(&self, count: usize) -> Result<Persistent> {
        Ok(Persistent::new(self, self.plan_alltoall(self.for_each_rank(bytes_of::<T>(count)?)?)?))
    }

    #[inline(always)]
    fn plan_alltoall(&self, total: u64) -> Result<Plan> {
        let bytes = self.equal_part("the length of an alltoall's buffers", total)?;
        let course = self.course_of_alltoall(CallKind::Alltoall, (bytes, 0), true)?;
        let at = u64::from(self.rank()) * bytes;
        let own = matches!(course, Course::Meeting(_)).then_some(Own { from: at, to: at, bytes });
        Ok(Plan::new(course, Shape { own, ..Shape::new(total, total) }))
    }

    /// How every rank gives a block of so many bytes to every rank; `leaves_own`: but for itself.
    #[inline(always)]
    pub(super) fn course_of_alltoall(
        &self,
        kind: CallKind,
        (bytes, arguments): (u64, u64),
        leaves_own: bool,
    ) -> Result<Course> {
        let choice = self.choose::<AlltoallAlgorithm>(bytes, Order::Any);
        let total = self.for_each_rank(bytes)?;
        let call = Call::new(kind, total, choice.digest() ^ arguments << 48);
        if choice.algorithm == AlltoallAlgorithm::Join {
            return Ok(Course::Meeting(Meeting {
                leaves_own,
                ..Meeting::new(Pattern::Exchange, total, call)
            }));
        }
        let (rank, ranks) = (self.rank(), self.size());
        self.linked((call, &choice), (arguments, Vec::new()), || match choice.levels {
            Levels::One => choice.algorithm.graph(rank, ranks, bytes, choice.tuning),
            Levels::Two(per_node) => {
                two_level::alltoall(rank, ranks, per_node, bytes, choice.algorithm)
            }
        })
    }
}
