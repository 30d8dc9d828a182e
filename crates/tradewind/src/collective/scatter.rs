//! Scatter.

use super::plan::{Course, InPlaceRule, Own, Plan, Shape, bytes_of};
use crate::ScatterAlgorithm;
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

/// # Scatter
impl Communicator {
    /// Gives every rank its block of the root's input, in rank order.
    ///
    /// Shapes: the output has n elements, the same on all ranks; the input size × n at the root,
    /// and is not looked at elsewhere: an empty slice will do. At the root the output may be [in
    /// place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let all = if world.rank() == 0 { vec![5, 6, 7] } else { vec![] };
    ///     let mut mine = [0];
    ///     world.scatter(&all, &mut mine, 0)?;
    ///     assert_eq!(mine, [5 + world.rank()]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the lengths do not fit, there is no such root, a rank is gone or in another collective.
    /// The root does not wait, and may not hear of it.
    #[inline]
    pub fn scatter<'i, 'o, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: impl Output<'o, T, Back = ()>,
        root: u32,
    ) -> Result<()> {
        let bytes = self.block_of_scatter(
            output.argument().map(|output| output.length),
            input.bytes().len(),
            root,
        )?;
        self.plan_scatter(bytes, root)?.run(self, input, output)
    }

    /// Begins a [`scatter`](Self::scatter).
    ///
    /// # Errors
    /// As [`scatter`](Self::scatter), and when the schedule cannot be linked. Never waits, once
    /// linked.
    #[inline]
    pub fn iscatter<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
        root: u32,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        let bytes = self.block_of_scatter(
            output.argument().map(|output| output.length),
            input.bytes().len(),
            root,
        )?;
        self.plan_scatter(bytes, root)?.start(self, input, output)
    }

    /// Prepares a scatter of `count` elements a rank to be started many times.
    ///
    /// # Errors
    /// As [`iscatter`](Self::iscatter).
    pub fn scatter_init<T: Pod>(&self, count: usize, root: u32) -> Result<Persistent> {
        Ok(Persistent::new(self, self.plan_scatter(bytes_of::<T>(count)?, root)?))
    }

    /// The bytes of a block: of the output, or, if that is in place, a part of the input.
    #[inline]
    fn block_of_scatter(&self, output: Option<u64>, input: usize, root: u32) -> Result<u64> {
        match output {
            Some(bytes) => Ok(bytes),
            None if self.rank() == root => {
                self.equal_part("the length of a scatter's input", input as u64)
            }
            None => Ok(0),
        }
    }

    #[inline(always)]
    fn plan_scatter(&self, bytes: u64, root: u32) -> Result<Plan> {
        self.check_root(root)?;
        let (total, is_root) = (self.for_each_rank(bytes)?, self.rank() == root);
        let choice = self.choose::<ScatterAlgorithm>(bytes, Order::Any);
        let call = Call::new(CallKind::Scatter, bytes, choice.digest() << 32 | u64::from(root));
        let joins = choice.algorithm == ScatterAlgorithm::Join;
        let course = if joins {
            let meeting = Meeting::new(Pattern::Scatter { root }, total, call);
            Course::Meeting(Meeting { leaves_own: true, ..meeting })
        } else {
            let sizes = Sizes::equal(self.size(), bytes)?;
            self.linked((call, &choice), (root.into(), Vec::new()), || {
                choice.algorithm.graph(self.rank(), root, &sizes, choice.tuning)
            })?
        };
        let shape = if is_root {
            let own = joins.then_some(Own { from: u64::from(root) * bytes, to: 0, bytes });
            Shape { in_place: InPlaceRule::Output, own, ..Shape::new(total, bytes) }
        } else {
            Shape { input: None, in_place: InPlaceRule::Never, ..Shape::new(0, bytes) }
        };
        Ok(Plan::new(course, shape))
    }
}
