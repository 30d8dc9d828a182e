//! Allgather of blocks of different sizes.

use crate::buffers::{Input, Output};
use crate::communicator::Communicator;
use crate::counts::Counts;
use crate::error::Result;
use crate::path::ExecutionPath;
use crate::persistent::Persistent;
use crate::plan::{CollectivePlan, TwoBuffers};
use crate::reduction::FoldOrder;
use crate::request::Request;
use crate::shape::{BufferShape, InPlaceRule, OwnBlock};
use bytemuck::Pod;
use collectives::{Collective, Sizes, allgather, two_level};
use engine::flat::{FlatCollective, Pattern, VariableBlocks};
use engine::signature::{CallKind, Signature};
use models::decision::CallForm;
use std::sync::Arc;

/// # Allgather, blocks of different sizes
impl Communicator {
    /// Gathers the inputs of all ranks on every rank, in rank order; each may have another length.
    ///
    /// Shapes: `counts` has the number of elements of each rank, the same list on all ranks; the
    /// output has their sum. The input may be [in place](crate::InPlace).
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
    /// Fails if a length does not fit, the ranks' counts differ, or a rank is gone or in another
    /// collective.
    pub fn allgatherv<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
        counts: &[usize],
    ) -> Result<()> {
        self.plan_allgatherv::<T>(CallForm::Blocking, counts)?.run(self, input, output)
    }

    /// Starts an [`allgatherv`](Self::allgatherv).
    ///
    /// # Errors
    /// The errors of [`allgatherv`](Self::allgatherv); fails if the schedule cannot be linked.
    /// Never waits once linked.
    pub fn iallgatherv<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
        counts: &[usize],
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        self.plan_allgatherv::<T>(CallForm::Nonblocking, counts)?.start(self, input, output)
    }

    /// Prepares a persistent allgatherv of `counts` elements.
    ///
    /// # Errors
    /// The errors of [`iallgatherv`](Self::iallgatherv).
    pub fn allgatherv_init<T: Pod>(&self, counts: &[usize]) -> Result<Persistent<TwoBuffers<T>>> {
        Ok(Persistent::new(self, self.plan_allgatherv::<T>(CallForm::Nonblocking, counts)?))
    }

    #[inline(always)]
    fn plan_allgatherv<T: Pod>(
        &self,
        form: CallForm,
        counts: &[usize],
    ) -> Result<CollectivePlan<TwoBuffers<T>>> {
        let rank = self.rank();
        let ranks = self.size();
        let counts = Counts::of::<T>(CallKind::Allgatherv, "the list of counts", counts, ranks)?;
        let bytes = counts.block(rank);
        let at = counts.offset(rank);
        let choice = self.choose(
            form,
            Collective::Allgather,
            counts.total / u64::from(ranks),
            FoldOrder::Any,
        );
        let call =
            Signature::new(CallKind::Allgatherv, counts.total, choice.digest() ^ counts.digest());
        let joins = choice.is_join();
        let own = joins.then_some(OwnBlock { from: 0, to: at, bytes });
        let shape = BufferShape {
            in_place: InPlaceRule::InputAt(at),
            own,
            ..BufferShape::new(bytes, counts.total)
        };
        let path = if joins && counts.bytes.iter().all(|other| *other == bytes) {
            // All ranks know all sizes, so they agree that no table of blocks is needed.
            ExecutionPath::Flat(FlatCollective {
                leaves_own: true,
                ..FlatCollective::new(Pattern::Gather, bytes, call)
            })
        } else if joins {
            let blocks = Some(Arc::new(VariableBlocks::new([bytes], counts.bytes.iter().copied())));
            ExecutionPath::Flat(FlatCollective {
                blocks,
                leaves_own: true,
                ..FlatCollective::new(Pattern::Gather, 0, call)
            })
        } else {
            let sizes = Sizes::each(&counts.bytes)?;
            let algorithm = choice.algorithm;
            self.linked((call, &choice), (0, counts.bytes.to_vec()), |rank| {
                match choice.ranks_per_node {
                    None => allgather::graph(algorithm, rank, &sizes),
                    Some(per_node) => two_level::allgather(rank, per_node, &sizes, algorithm),
                }
            })?
        };
        Ok(CollectivePlan::new(path, shape))
    }
}
