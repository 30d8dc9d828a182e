//! Gather of blocks of different sizes.

use super::plan::{Course, InPlaceRule, Own, Plan, Shape, bytes_of};
use super::sizes::Counts;
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
use engine::meeting::{Blocks, Meeting, Pattern};
use std::sync::Arc;

/// # Gather, blocks of different sizes
impl Communicator {
    /// Gives the root the inputs of all ranks, in rank order, each as long as it is.
    ///
    /// Shapes: at the root `counts` has the number of elements of each rank, and the output as many
    /// as they are together; elsewhere both are left alone: empty slices will do. At the root the
    /// input may be [in place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let mine = vec![world.rank(); world.rank() as usize];
    ///     if world.rank() == 0 {
    ///         let mut all = [9; 3];
    ///         world.gatherv(&mine, &mut all, &[0, 1, 2], 0)?;
    ///         assert_eq!(all, [1, 2, 2]);
    ///         Ok(())
    ///     } else {
    ///         world.gatherv(&mine, &mut [], &[], 0)
    ///     }
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the lengths do not fit, there is no such root, a rank is gone or in another collective;
    /// at the root, when a rank has more or fewer elements than its count says. Ranks other than
    /// the root do not wait, and may not hear of it.
    pub fn gatherv<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
        counts: &[usize],
        root: u32,
    ) -> Result<()> {
        self.plan_gatherv::<T>(input.bytes().len() as u64, counts, root)?.run(self, input, output)
    }

    /// Begins a [`gatherv`](Self::gatherv).
    ///
    /// # Errors
    /// As [`gatherv`](Self::gatherv). Never waits, with the algorithm `join`; with others the ranks
    /// tell each other their sizes first.
    pub fn igatherv<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
        counts: &[usize],
        root: u32,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        self.plan_gatherv::<T>(input.bytes().len() as u64, counts, root)?.start(self, input, output)
    }

    /// Prepares a gatherv, of `count` elements on this rank and, at the root, `counts` on all, to
    /// be started many times.
    ///
    /// # Errors
    /// As [`igatherv`](Self::igatherv).
    pub fn gatherv_init<T: Pod>(
        &self,
        count: usize,
        counts: &[usize],
        root: u32,
    ) -> Result<Persistent> {
        Ok(Persistent::new(self, self.plan_gatherv::<T>(bytes_of::<T>(count)?, counts, root)?))
    }

    #[inline(always)]
    fn plan_gatherv<T>(&self, own: u64, counts: &[usize], root: u32) -> Result<Plan> {
        self.check_root(root)?;
        let (rank, ranks) = (self.rank(), self.size());
        let counts = if rank == root {
            Some(Counts::of::<T>("the list of counts", counts, ranks)?)
        } else {
            None
        };
        let own = counts.as_ref().map_or(own, |counts| counts.block(root));
        // Only the root could say how many bytes there are, and all have to choose the same.
        let choice = self.choose::<GatherAlgorithm>(0, Order::Any);
        let call = Call::new(CallKind::Gatherv, 0, choice.digest() << 32 | u64::from(root));
        let joins = choice.algorithm == GatherAlgorithm::Join;
        let course = if joins {
            let received = counts.iter().flat_map(|counts| counts.bytes.iter().copied());
            let blocks = Some(Arc::new(Blocks::new(counts.is_none().then_some(own), received)));
            Course::Meeting(Meeting {
                blocks,
                leaves_own: true,
                ..Meeting::new(Pattern::GatherTo { root }, 0, call)
            })
        } else {
            let bytes = self.agree_with_root(own, counts.as_ref(), (root, call))?;
            let sizes = Sizes::each(&bytes)?;
            let draw = || choice.algorithm.graph(rank, root, &sizes, choice.tuning);
            self.linked((call, &choice), (root.into(), bytes), draw)?
        };
        let Some(counts) = counts else {
            return Ok(Plan::new(
                course,
                Shape { output: None, in_place: InPlaceRule::Never, ..Shape::new(own, 0) },
            ));
        };
        let at = counts.offset(root);
        let block = joins.then_some(Own { from: 0, to: at, bytes: own });
        let shape = Shape {
            in_place: InPlaceRule::InputAt(at),
            own: block,
            ..Shape::new(own, counts.total)
        };
        Ok(Plan::new(course, shape))
    }
}
