//! Scatter of blocks of different sizes.

use super::plan::{Course, InPlaceRule, Own, Plan, Shape, bytes_of};
use super::sizes::Counts;
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
use engine::meeting::{Blocks, Meeting, Pattern};
use std::sync::Arc;

/// # Scatter, blocks of different sizes
impl Communicator {
    /// Gives every rank its block of the root's input, in rank order, each as long as it is.
    ///
    /// Shapes: at the root `counts` has the number of elements of each rank, and the input as many
    /// as they are together; elsewhere both are not looked at: empty slices will do. The output has
    /// the rank's own number of elements. At the root it may be [in place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let mut mine = vec![0; world.rank() as usize];
    ///     if world.rank() == 0 {
    ///         world.scatterv(&[1, 2, 2], &[0, 1, 2], &mut mine, 0)?;
    ///     } else {
    ///         world.scatterv(&[], &[], &mut mine, 0)?;
    ///     }
    ///     assert_eq!(mine, vec![world.rank(); mine.len()]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the lengths do not fit, there is no such root, a rank is gone or in another collective,
    /// or when the root has more or fewer elements for this rank than its output has. The root does
    /// not wait, and may not hear of it.
    pub fn scatterv<'i, 'o, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        counts: &[usize],
        mut output: impl Output<'o, T, Back = ()>,
        root: u32,
    ) -> Result<()> {
        self.plan_scatterv::<T>(counts, output.bytes().len() as u64, root)?.run(self, input, output)
    }

    /// Begins a [`scatterv`](Self::scatterv).
    ///
    /// # Errors
    /// As [`scatterv`](Self::scatterv). Never waits, with the algorithm `join`; with others the
    /// ranks tell each other their sizes first.
    pub fn iscatterv<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        counts: &[usize],
        mut output: O,
        root: u32,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        self.plan_scatterv::<T>(counts, output.bytes().len() as u64, root)?
            .start(self, input, output)
    }

    /// Prepares a scatterv, of `count` elements on this rank and, at the root, `counts` on all, to
    /// be started many times.
    ///
    /// # Errors
    /// As [`iscatterv`](Self::iscatterv).
    pub fn scatterv_init<T: Pod>(
        &self,
        counts: &[usize],
        count: usize,
        root: u32,
    ) -> Result<Persistent> {
        Ok(Persistent::new(self, self.plan_scatterv::<T>(counts, bytes_of::<T>(count)?, root)?))
    }

    #[inline(always)]
    fn plan_scatterv<T>(&self, counts: &[usize], own: u64, root: u32) -> Result<Plan> {
        self.check_root(root)?;
        let (rank, ranks) = (self.rank(), self.size());
        let counts = if rank == root {
            Some(Counts::of::<T>("the list of counts", counts, ranks)?)
        } else {
            None
        };
        let own = counts.as_ref().map_or(own, |counts| counts.block(root));
        // Only the root could say how many bytes there are, and all have to choose the same.
        let choice = self.choose::<ScatterAlgorithm>(0, Order::Any);
        let call = Call::new(CallKind::Scatterv, 0, choice.digest() << 32 | u64::from(root));
        let joins = choice.algorithm == ScatterAlgorithm::Join;
        let course = if joins {
            let sent = counts.iter().flat_map(|counts| counts.bytes.iter().copied());
            let blocks = Some(Arc::new(Blocks::new(sent, counts.is_none().then_some(own))));
            Course::Meeting(Meeting {
                blocks,
                leaves_own: true,
                ..Meeting::new(Pattern::Scatter { root }, 0, call)
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
                Shape { input: None, in_place: InPlaceRule::Never, ..Shape::new(0, own) },
            ));
        };
        let block = joins.then_some(Own { from: counts.offset(root), to: 0, bytes: own });
        let shape =
            Shape { in_place: InPlaceRule::Output, own: block, ..Shape::new(counts.total, own) };
        Ok(Plan::new(course, shape))
    }
}
