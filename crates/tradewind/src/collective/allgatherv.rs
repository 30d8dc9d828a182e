//! Allgather of blocks of different sizes.

use super::plan::{Course, InPlaceRule, Own, Plan, Shape};
use super::sizes::Counts;
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
use engine::meeting::{Blocks, Meeting, Pattern};
use std::sync::Arc;

/// # Allgather, blocks of different sizes
impl Communicator {
    /// Gives every rank the inputs of all ranks, in rank order, each as long as it is.
    ///
    /// Shapes: `counts` has the number of elements of each rank, the same list on all ranks; the
    /// output has as many as they are together. The input may be [in place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let mut all = [9; 3];
    ///     world.allgatherv(&vec![world.rank(); world.rank() as usize], &mut all, &[0, 1, 2])?;
    ///     assert_eq!(all, [1, 2, 2]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the lengths do not fit, the ranks' counts differ, a rank is gone or in another
    /// collective.
    pub fn allgatherv<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
        counts: &[usize],
    ) -> Result<()> {
        self.plan_allgatherv::<T>(counts)?.run(self, input, output)
    }

    /// Begins an [`allgatherv`](Self::allgatherv).
    ///
    /// # Errors
    /// As [`allgatherv`](Self::allgatherv), and when the schedule cannot be linked. Never waits,
    /// once linked.
    pub fn iallgatherv<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
        counts: &[usize],
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        self.plan_allgatherv::<T>(counts)?.start(self, input, output)
    }

    /// Prepares an allgatherv of `counts` elements to be started many times.
    ///
    /// # Errors
    /// As [`iallgatherv`](Self::iallgatherv).
    pub fn allgatherv_init<T: Pod>(&self, counts: &[usize]) -> Result<Persistent> {
        Ok(Persistent::new(self, self.plan_allgatherv::<T>(counts)?))
    }

    #[inline(always)]
    fn plan_allgatherv<T>(&self, counts: &[usize]) -> Result<Plan> {
        let (rank, ranks) = (self.rank(), self.size());
        let counts = Counts::of::<T>("the list of counts", counts, ranks)?;
        let (bytes, at) = (counts.block(rank), counts.offset(rank));
        let choice = self.choose::<AllgatherAlgorithm>(counts.total / u64::from(ranks), Order::Any);
        let call = Call::new(CallKind::Allgatherv, counts.total, choice.digest() ^ counts.digest());
        let joins = choice.algorithm == AllgatherAlgorithm::Join;
        let own = joins.then_some(Own { from: 0, to: at, bytes });
        let shape =
            Shape { in_place: InPlaceRule::InputAt(at), own, ..Shape::new(bytes, counts.total) };
        let course = if joins && counts.bytes.iter().all(|other| *other == bytes) {
            // All ranks see that parcels are not needed.
            Course::Meeting(Meeting {
                leaves_own: true,
                ..Meeting::new(Pattern::Gather, bytes, call)
            })
        } else if joins {
            let blocks = Some(Arc::new(Blocks::new([bytes], counts.bytes.iter().copied())));
            Course::Meeting(Meeting {
                blocks,
                leaves_own: true,
                ..Meeting::new(Pattern::Gather, 0, call)
            })
        } else {
            let sizes = Sizes::each(&counts.bytes)?;
            self.linked((call, &choice), (0, counts.bytes.to_vec()), || match choice.levels {
                Levels::One => choice.algorithm.graph(rank, &sizes),
                Levels::Two(per_node) => {
                    two_level::allgather(rank, per_node, &sizes, choice.algorithm)
                }
            })?
        };
        Ok(Plan::new(course, shape))
    }
}
