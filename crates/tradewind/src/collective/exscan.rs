//! Exclusive scan.

use super::plan::{Course, Plan, Shape, bytes_of};
use crate::ExscanAlgorithm;
use crate::buffers::{Input, Output};
use crate::communicator::Communicator;
use crate::error::Result;
use crate::operation::{Combination, Operation};
use crate::persistent::Persistent;
use crate::request::Request;
use bytemuck::Pod;
use engine::call::{Call, CallKind};
use engine::meeting::{Meeting, Pattern};

/// # Exclusive scan
impl Communicator {
    /// Rank r gets the inputs of the ranks 0, …, r − 1 combined element by element; rank 0's output
    /// stays as it is.
    ///
    /// Shapes: input and output have the same number of elements, the same on all ranks. The input
    /// may be [in place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// // Where each rank's part of a common list begins.
    /// tradewind::local(4, |world| {
    ///     let mut begin = [0];
    ///     world.exscan(&[10 + world.rank()], &mut begin, tradewind::Op::Sum)?;
    ///     assert_eq!(begin, [[0, 10, 21, 33][world.rank() as usize]]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the lengths differ, an integer is divided by zero, a rank is gone or in another
    /// collective. A rank waits for those before it only, and may not hear of the others.
    #[inline]
    pub fn exscan<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
        op: impl Operation<T>,
    ) -> Result<()> {
        self.plan_exscan(size_of_val(output) as u64, op)?.run(self, input, output)
    }

    /// Begins an [`exscan`](Self::exscan).
    ///
    /// # Errors
    /// As [`exscan`](Self::exscan), and when the schedule cannot be linked. Never waits, once
    /// linked.
    #[inline]
    pub fn iexscan<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        mut output: O,
        op: impl Operation<T>,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        self.plan_exscan(output.bytes().len() as u64, op)?.start(self, input, output)
    }

    /// Prepares an exscan of `count` elements to be started many times.
    ///
    /// # Errors
    /// As [`iexscan`](Self::iexscan).
    pub fn exscan_init<T: Pod>(&self, count: usize, op: impl Operation<T>) -> Result<Persistent> {
        Ok(Persistent::new(self, self.plan_exscan(bytes_of::<T>(count)?, op)?))
    }

    #[inline(always)]
    fn plan_exscan<T: Pod>(&self, bytes: u64, op: impl Operation<T>) -> Result<Plan> {
        let shape = Shape::new(bytes, bytes);
        let known = match op.into_combination()? {
            Combination::Known(known) => known,
            Combination::Own(function) => {
                let course = self.course_of_allgather(CallKind::Exscan, bytes, false)?;
                return Ok(Plan::folded(
                    course,
                    shape,
                    function,
                    (self.size(), self.rank(), bytes),
                ));
            }
        };
        let choice = self.choose::<ExscanAlgorithm>(bytes, known.op.order());
        let arguments = choice.digest() << 16 | known.number();
        let call = Call::new(CallKind::Exscan, bytes, arguments);
        if choice.algorithm == ExscanAlgorithm::Join {
            let meeting = Meeting {
                arithmetic: Some(known.arithmetic()),
                ..Meeting::new(Pattern::Exscan, bytes, call)
            };
            return Ok(Plan::new(Course::Meeting(meeting), shape));
        }
        let course = self.linked((call, &choice), (arguments, Vec::new()), || {
            choice.algorithm.graph(self.rank(), self.size(), bytes, known.reduction())
        })?;
        Ok(Plan::new(course, shape))
    }
}
