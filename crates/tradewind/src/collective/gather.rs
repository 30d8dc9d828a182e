//! Gather.

use super::plan::{Course, InPlaceRule, Own, Plan, Shape, bytes_of};
use crate::GatherAlgorithm;
use crate::algorithms::Order;
use crate::buffers::{Input, Output};
use crate::communicator::Communicator;
use crate::error::Result;
use crate::persistent::Persistent;
use crate::request::Request;
use bytemuck::Pod;
use collectives::Sizes;
use engine::call::{Call, CallKind};
use engine::meeting::{Meeting, Pattern};

/// # Gather
impl Communicator {
    /// Gives the root the inputs of all ranks, in rank order.
    ///
    /// Shapes: the input has n elements, the same on all ranks; the output size × n at the root,
    /// and is left alone elsewhere: an empty slice will do. At the root the input may be [in
    /// place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let mut all = if world.rank() == 2 { vec![0; 3] } else { vec![] };
    ///     world.gather(&[10 * world.rank()], &mut all, 2)?;
    ///     assert!(world.rank() != 2 || all == [0, 10, 20]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the lengths do not fit, there is no such root, a rank is gone or in another collective.
    /// Ranks other than the root do not wait, and may not hear of it.
    #[inline]
    pub fn gather<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
        root: u32,
    ) -> Result<()> {
        let bytes = self.block_of_gather(
            input.argument().map(|input| input.length),
            size_of_val(output),
            root,
        )?;
        self.plan_gather(bytes, root)?.run(self, input, output)
    }

    /// Begins a [`gather`](Self::gather).
    ///
    /// # Errors
    /// As [`gather`](Self::gather), and when the schedule cannot be linked. Never waits, once
    /// linked.
    #[inline]
    pub fn igather<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        mut output: O,
        root: u32,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        let bytes = self.block_of_gather(
            input.argument().map(|input| input.length),
            output.bytes().len(),
            root,
        )?;
        self.plan_gather(bytes, root)?.start(self, input, output)
    }

    /// Prepares a gather of `count` elements a rank to be started many times.
    ///
    /// # Errors
    /// As [`igather`](Self::igather).
    pub fn gather_init<T: Pod>(&self, count: usize, root: u32) -> Result<Persistent> {
        Ok(Persistent::new(self, self.plan_gather(bytes_of::<T>(count)?, root)?))
    }

    /// The bytes of a block: of the input, or, if that is in place, a part of the output.
    #[inline]
    fn block_of_gather(&self, input: Option<u64>, output: usize, root: u32) -> Result<u64> {
        match input {
            Some(bytes) => Ok(bytes),
            None if self.rank() == root => {
                self.equal_part("the length of a gather's output", output as u64)
            }
            None => Ok(0),
        }
    }

    #[inline(always)]
    fn plan_gather(&self, bytes: u64, root: u32) -> Result<Plan> {
        let total = self.for_each_rank(bytes)?;
        let course = self.course_of_gather(CallKind::Gather, (bytes, root), true)?;
        let at = u64::from(self.rank()) * bytes;
        if self.rank() != root {
            return Ok(Plan::new(
                course,
                Shape { output: None, in_place: InPlaceRule::Never, ..Shape::new(bytes, 0) },
            ));
        }
        let own = matches!(course, Course::Meeting(_)).then_some(Own { from: 0, to: at, bytes });
        Ok(Plan::new(
            course,
            Shape { in_place: InPlaceRule::InputAt(at), own, ..Shape::new(bytes, total) },
        ))
    }

    /// How the root gets a block of so many bytes from every rank; `leaves_own`: but for its own.
    #[inline(always)]
    pub(super) fn course_of_gather(
        &self,
        kind: CallKind,
        (bytes, root): (u64, u32),
        leaves_own: bool,
    ) -> Result<Course> {
        self.check_root(root)?;
        let choice = self.choose::<GatherAlgorithm>(bytes, Order::Any);
        let call = Call::new(kind, bytes, choice.digest() << 32 | u64::from(root));
        if choice.algorithm == GatherAlgorithm::Join {
            return Ok(Course::Meeting(Meeting {
                leaves_own,
                ..Meeting::new(Pattern::GatherTo { root }, bytes, call)
            }));
        }
        let sizes = Sizes::equal(self.size(), bytes)?;
        self.linked((call, &choice), (root.into(), Vec::new()), || {
            choice.algorithm.graph(self.rank(), root, &sizes, choice.tuning)
        })
    }
}
