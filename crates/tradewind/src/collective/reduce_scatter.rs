//! Reduce-scatter, with blocks of equal and of different sizes.

use super::alltoallv::BlockSizes;
use crate::buffers::{Input, Output};
use crate::communicator::Communicator;
use crate::counts::Counts;
use crate::error::Result;
use crate::path::ExecutionPath;
use crate::persistent::Persistent;
use crate::plan::{CollectivePlan, TwoBuffers};
use crate::reduction::{Combination, ReduceOp};
use crate::request::Request;
use crate::shape::{BufferShape, bytes_of};
use bytemuck::Pod;
use collectives::{Collective, Sizes, reduce_scatter};
use engine::flat::{FlatCollective, Pattern};
use engine::signature::{CallKind, Signature};
use models::decision::CallForm;
use smallvec::SmallVec;

/// # Reduce-scatter
impl Communicator {
    /// Combines the inputs of all ranks element by element; every rank receives its block of the
    /// result.
    ///
    /// Shapes: `counts` has the number of elements of each rank's block, the same list on all
    /// ranks; the input has their sum, the output the number of this rank. If the input is [in
    /// place](crate::InPlace), the output is as long as an input and holds it, and the result
    /// replaces its beginning. With the algorithm `join`, and with user-defined operations
    /// ([`fold`](crate::fold())), elements are ((c₀ ∘ c₁) ∘ c₂) ∘ … in rank order.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(2, |world| {
    ///     let mut mine = vec![0; 1 + world.rank() as usize];
    ///     world.reduce_scatter(&[1, 10, 100], &mut mine, &[1, 2], tradewind::Op::Sum)?;
    ///     assert_eq!(mine, if world.rank() == 0 { vec![2] } else { vec![20, 200] });
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a length does not fit, the ranks' counts differ, an integer is divided by zero, or
    /// a rank is gone or in another collective.
    pub fn reduce_scatter<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
        counts: &[usize],
        op: impl ReduceOp<T>,
    ) -> Result<()> {
        self.plan_reduce_scatter(CallForm::Blocking, counts, op)?.run(self, input, output)
    }

    /// Starts a [`reduce_scatter`](Self::reduce_scatter).
    ///
    /// # Errors
    /// The errors of [`reduce_scatter`](Self::reduce_scatter); fails if the schedule cannot be
    /// linked. Never waits once linked.
    pub fn ireduce_scatter<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
        counts: &[usize],
        op: impl ReduceOp<T>,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        self.plan_reduce_scatter(CallForm::Nonblocking, counts, op)?.start(self, input, output)
    }

    /// Prepares a persistent reduce_scatter of `counts` elements.
    ///
    /// # Errors
    /// The errors of [`ireduce_scatter`](Self::ireduce_scatter).
    pub fn reduce_scatter_init<T: Pod>(
        &self,
        counts: &[usize],
        op: impl ReduceOp<T>,
    ) -> Result<Persistent<TwoBuffers<T>>> {
        Ok(Persistent::new(self, self.plan_reduce_scatter(CallForm::Nonblocking, counts, op)?))
    }

    /// Runs a [`reduce_scatter`](Self::reduce_scatter) of equal blocks.
    ///
    /// Shapes: the output has n elements, the same on all ranks, the input size × n. If the input
    /// is [in place](crate::InPlace), the output is as long as an input and holds it, and the
    /// result replaces its beginning.
    ///
    /// # Errors
    /// The errors of [`reduce_scatter`](Self::reduce_scatter).
    #[inline]
    pub fn reduce_scatter_block<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
        op: impl ReduceOp<T>,
    ) -> Result<()> {
        let bytes = self
            .block_of_reduce_scatter::<T>(input.argument().is_none(), size_of_val(output) as u64)?;
        self.plan_reduce_scatter_block(CallForm::Blocking, bytes, op)?.run(self, input, output)
    }

    /// Starts a [`reduce_scatter_block`](Self::reduce_scatter_block).
    ///
    /// # Errors
    /// The errors of [`ireduce_scatter`](Self::ireduce_scatter).
    #[inline]
    pub fn ireduce_scatter_block<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
        op: impl ReduceOp<T>,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        let bytes =
            self.block_of_reduce_scatter::<T>(input.argument().is_none(), output.length())?;
        self.plan_reduce_scatter_block(CallForm::Nonblocking, bytes, op)?.start(self, input, output)
    }

    /// Prepares a persistent reduce_scatter_block of `count` elements a rank.
    ///
    /// # Errors
    /// The errors of [`ireduce_scatter`](Self::ireduce_scatter).
    pub fn reduce_scatter_block_init<T: Pod>(
        &self,
        count: usize,
        op: impl ReduceOp<T>,
    ) -> Result<Persistent<TwoBuffers<T>>> {
        Ok(Persistent::new(
            self,
            self.plan_reduce_scatter_block(CallForm::Nonblocking, bytes_of::<T>(count)?, op)?,
        ))
    }

    #[inline]
    fn block_of_reduce_scatter<T>(&self, in_place: bool, output: u64) -> Result<u64> {
        if in_place {
            self.equal_part::<T>(CallKind::ReduceScatterBlock, "the output", output)
        } else {
            Ok(output)
        }
    }

    #[inline(always)]
    fn plan_reduce_scatter_block<T: Pod>(
        &self,
        form: CallForm,
        bytes: u64,
        op: impl ReduceOp<T>,
    ) -> Result<CollectivePlan<TwoBuffers<T>>> {
        let total = self.for_each_rank(bytes)?;
        let shape = BufferShape::new(total, bytes);
        let known = match op.into_combination(&[bytes])? {
            Combination::BuiltIn(known) => known,
            Combination::UserDefined(function) => {
                let path =
                    self.path_of_alltoall(form, CallKind::ReduceScatterBlock, (bytes, 1), false)?;
                return Ok(CollectivePlan::folded(
                    path,
                    shape,
                    function,
                    (self.size(), self.size(), bytes),
                ));
            }
        };
        let choice = self.choose(form, Collective::ReduceScatter, bytes, known.order());
        let arguments = choice.digest() << 16 | known.number();
        let call = Signature::new(CallKind::ReduceScatterBlock, bytes, arguments);
        if choice.is_join() {
            let at = u64::from(self.rank()) * bytes;
            let flat = FlatCollective::new(Pattern::ReduceScatter { at, bytes }, total, call);
            let flat = FlatCollective { arithmetic: Some(known.arithmetic()), ..flat };
            return Ok(CollectivePlan::new(ExecutionPath::Flat(flat), shape));
        }
        let reduction = Some(known.reduction());
        let path = self.linked_equal((call, &choice), arguments, (0, bytes, reduction))?;
        Ok(CollectivePlan::new(path, shape).in_order(known.order()))
    }

    fn plan_reduce_scatter<T: Pod>(
        &self,
        form: CallForm,
        counts: &[usize],
        op: impl ReduceOp<T>,
    ) -> Result<CollectivePlan<TwoBuffers<T>>> {
        let rank = self.rank();
        let ranks = self.size();
        let counts = Counts::of::<T>(CallKind::ReduceScatter, "the list of counts", counts, ranks)?;
        let at = counts.offset(rank);
        let bytes = counts.block(rank);
        let shape = BufferShape::new(counts.total, bytes);
        let known = match op.into_combination(&counts.bytes)? {
            Combination::BuiltIn(known) => known,
            Combination::UserDefined(function) => {
                let received = Counts {
                    bytes: SmallVec::from_elem(bytes, ranks as usize),
                    total: bytes.saturating_mul(ranks.into()),
                };
                let both = (&counts, &received);
                let path = self.path_of_alltoallv(
                    CallKind::ReduceScatter,
                    both,
                    BlockSizes::Known(form, &counts),
                )?;
                return Ok(CollectivePlan::folded(path, shape, function, (ranks, ranks, bytes)));
            }
        };
        let choice = self.choose(
            form,
            Collective::ReduceScatter,
            counts.total / u64::from(ranks),
            known.order(),
        );
        let arguments = choice.digest() << 16 | known.number();
        let call = Signature::new(
            CallKind::ReduceScatter,
            counts.total,
            arguments ^ counts.digest() << 24,
        );
        if choice.is_join() {
            let flat =
                FlatCollective::new(Pattern::ReduceScatter { at, bytes }, counts.total, call);
            let flat = FlatCollective { arithmetic: Some(known.arithmetic()), ..flat };
            return Ok(CollectivePlan::new(ExecutionPath::Flat(flat), shape));
        }
        let sizes = Sizes::each(&counts.bytes)?;
        let path = self.linked((call, &choice), (arguments, counts.bytes.to_vec()), |rank| {
            reduce_scatter::graph(choice.algorithm, rank, &sizes, known.reduction())
        })?;
        Ok(CollectivePlan::new(path, shape).in_order(known.order()))
    }
}
