//! Scan.

use super::plan::{Course, Plan, Shape, bytes_of};
use crate::ScanAlgorithm;
use crate::buffers::{Input, Output};
use crate::communicator::Communicator;
use crate::error::Result;
use crate::operation::{Combination, Operation};
use crate::persistent::Persistent;
use crate::request::Request;
use bytemuck::Pod;
use engine::call::{Call, CallKind};
use engine::meeting::{Meeting, Pattern};

/// # Scan
impl Communicator {
    /// Rank r gets the inputs of the ranks 0, …, r combined element by element.
    ///
    /// Shapes: input and output have the same number of elements, the same on all ranks. The input
    /// may be [in place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(4, |world| {
    ///     let mut sum = [0];
    ///     world.scan(&[world.rank() + 1], &mut sum, tradewind::Op::Sum)?;
    ///     assert_eq!(sum, [[1, 3, 6, 10][world.rank() as usize]]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the lengths differ, an integer is divided by zero, a rank is gone or in another
    /// collective. A rank waits for those before it only, and may not hear of the others.
    #[inline]
    pub fn scan<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
        op: impl Operation<T>,
    ) -> Result<()> {
        self.plan_scan(size_of_val(output) as u64, op)?.run(self, input, output)
    }

    /// Begins a [`scan`](Self::scan).
    ///
    /// # Errors
    /// As [`scan`](Self::scan), and when the schedule cannot be linked. Never waits, once linked.
    #[inline]
    pub fn iscan<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        mut output: O,
        op: impl Operation<T>,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        self.plan_scan(output.bytes().len() as u64, op)?.start(self, input, output)
    }

    /// Prepares a scan of `count` elements to be started many times.
    ///
    /// # Errors
    /// As [`iscan`](Self::iscan).
    pub fn scan_init<T: Pod>(&self, count: usize, op: impl Operation<T>) -> Result<Persistent> {
        Ok(Persistent::new(self, self.plan_scan(bytes_of::<T>(count)?, op)?))
    }

    #[inline(always)]
    fn plan_scan<T: Pod>(&self, bytes: u64, op: impl Operation<T>) -> Result<Plan> {
        let shape = Shape::new(bytes, bytes);
        let known = match op.into_combination()? {
            Combination::Known(known) => known,
            Combination::Own(function) => {
                let course = self.course_of_allgather(CallKind::Scan, bytes, false)?;
                return Ok(Plan::folded(
                    course,
                    shape,
                    function,
                    (self.size(), self.rank() + 1, bytes),
                ));
            }
        };
        let choice = self.choose::<ScanAlgorithm>(bytes, known.op.order());
        let arguments = choice.digest() << 16 | known.number();
        let call = Call::new(CallKind::Scan, bytes, arguments);
        if choice.algorithm == ScanAlgorithm::Join {
            let meeting = Meeting {
                arithmetic: Some(known.arithmetic()),
                ..Meeting::new(Pattern::Scan, bytes, call)
            };
            return Ok(Plan::new(Course::Meeting(meeting), shape));
        }
        let course = self.linked((call, &choice), (arguments, Vec::new()), || {
            choice.algorithm.graph(self.rank(), self.size(), bytes, known.reduction())
        })?;
        Ok(Plan::new(course, shape))
    }
}
