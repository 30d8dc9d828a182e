//! Reduce.

use super::plan::{Course, InPlaceRule, Plan, Shape, bytes_of};
use crate::ReduceAlgorithm;
use crate::algorithms::Levels;
use crate::buffers::{Input, Output};
use crate::communicator::Communicator;
use crate::error::Result;
use crate::operation::{Combination, Operation};
use crate::persistent::Persistent;
use crate::request::Request;
use bytemuck::Pod;
use collectives::two_level;
use engine::call::{Call, CallKind};
use engine::meeting::{Meeting, Pattern};

/// # Reduce
impl Communicator {
    /// Combines the ranks' inputs element by element at the root.
    ///
    /// Shapes: the input has n elements, the same on all ranks; the output n at the root, and is
    /// left alone elsewhere: an empty slice will do. At the root the input may be [in
    /// place](crate::InPlace). With the algorithm `join`, and with operations of the caller's own
    /// ([`fold`](crate::fold())), the result is ((c₀ ∘ c₁) ∘ c₂) ∘ … in rank order.
    ///
    /// ```
    /// use tradewind::Op;
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(4, |world| {
    ///     let mut product = if world.rank() == 0 { vec![0; 1] } else { vec![] };
    ///     world.reduce(&[world.rank() + 1], &mut product, Op::Product, 0)?;
    ///     assert!(world.rank() != 0 || product == [24]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the lengths do not fit, there is no such root, an integer is divided by zero, a rank is
    /// gone or in another collective. Ranks other than the root do not wait, and may not hear of
    /// it.
    #[inline]
    pub fn reduce<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
        op: impl Operation<T>,
        root: u32,
    ) -> Result<()> {
        let bytes = input.argument().map_or(size_of_val(output) as u64, |input| input.length);
        self.plan_reduce(bytes, op, root)?.run(self, input, output)
    }

    /// Begins a [`reduce`](Self::reduce).
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce), and when the schedule cannot be linked. Never waits, once
    /// linked.
    #[inline]
    pub fn ireduce<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        mut output: O,
        op: impl Operation<T>,
        root: u32,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        let bytes = input.argument().map_or(output.bytes().len() as u64, |input| input.length);
        self.plan_reduce(bytes, op, root)?.start(self, input, output)
    }

    /// Prepares a reduce of `count` elements to be started many times.
    ///
    /// # Errors
    /// As [`ireduce`](Self::ireduce).
    pub fn reduce_init<T: Pod>(
        &self,
        count: usize,
        op: impl Operation<T>,
        root: u32,
    ) -> Result<Persistent> {
        Ok(Persistent::new(self, self.plan_reduce(bytes_of::<T>(count)?, op, root)?))
    }

    #[inline(always)]
    fn plan_reduce<T: Pod>(&self, bytes: u64, op: impl Operation<T>, root: u32) -> Result<Plan> {
        self.check_root(root)?;
        let is_root = self.rank() == root;
        let shape = if is_root {
            Shape::new(bytes, bytes)
        } else {
            Shape { output: None, in_place: InPlaceRule::Never, ..Shape::new(bytes, 0) }
        };
        let known = match op.into_combination()? {
            Combination::Known(known) => known,
            Combination::Own(function) => {
                let course = self.course_of_gather(CallKind::Reduce, (bytes, root), false)?;
                let count = if is_root { self.size() } else { 0 };
                return Ok(Plan::folded(course, shape, function, (count, count, bytes)));
            }
        };
        let choice = self.choose::<ReduceAlgorithm>(bytes, known.op.order());
        let arguments = choice.digest() << 48 ^ known.number() << 32 | u64::from(root);
        let call = Call::new(CallKind::Reduce, bytes, arguments);
        if choice.algorithm == ReduceAlgorithm::Join {
            let meeting = Meeting::new(Pattern::ReduceTo { root }, bytes, call);
            let meeting = Meeting { arithmetic: Some(known.arithmetic()), ..meeting };
            return Ok(Plan::new(Course::Meeting(meeting), shape));
        }
        let (rank, ranks, reduction, tuning) =
            (self.rank(), self.size(), known.reduction(), choice.tuning);
        let course =
            self.linked((call, &choice), (arguments, Vec::new()), || match choice.levels {
                Levels::One => choice.algorithm.graph(rank, ranks, root, bytes, reduction, tuning),
                Levels::Two(per_node) => two_level::reduce(
                    rank,
                    ranks,
                    per_node,
                    root,
                    bytes,
                    reduction,
                    (choice.algorithm, tuning),
                ),
            })?;
        Ok(Plan::new(course, shape))
    }
}
