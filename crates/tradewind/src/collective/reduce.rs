//! Reduce.

use crate::buffers::{Input, Output};
use crate::communicator::Communicator;
use crate::error::Result;
use crate::path::ExecutionPath;
use crate::persistent::Persistent;
use crate::plan::{CollectivePlan, TwoBuffers};
use crate::reduction::{Combination, ReduceOp};
use crate::request::Request;
use crate::shape::{BufferShape, InPlaceRule, bytes_of};
use bytemuck::Pod;
use collectives::Collective;
use engine::flat::{FlatCollective, Pattern};
use engine::signature::{CallKind, Signature};
use models::decision::CallForm;

/// # Reduce
impl Communicator {
    /// Combines the inputs of all ranks element by element at the root.
    ///
    /// Shapes: the input has n elements, the same on all ranks; the output has n at the root and is
    /// ignored elsewhere, where an empty slice suffices. At the root the input may be [in
    /// place](crate::InPlace). With the algorithm `join`, and with user-defined operations
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
    /// Fails if a length does not fit, the root is not a rank, an integer is divided by zero, or a
    /// rank is gone or in another collective. Ranks other than the root do not wait, and may not
    /// detect a failure.
    #[inline]
    pub fn reduce<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
        op: impl ReduceOp<T>,
        root: u32,
    ) -> Result<()> {
        let bytes = input.argument().map_or(size_of_val(output) as u64, |input| input.length);
        self.plan_reduce(CallForm::Blocking, bytes, op, root)?.run(self, input, output)
    }

    /// Starts a [`reduce`](Self::reduce).
    ///
    /// # Errors
    /// The errors of [`reduce`](Self::reduce); fails if the schedule cannot be linked. Never waits
    /// once linked.
    #[inline]
    pub fn ireduce<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
        op: impl ReduceOp<T>,
        root: u32,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        let bytes = input.argument().map_or(output.length(), |input| input.length);
        self.plan_reduce(CallForm::Nonblocking, bytes, op, root)?.start(self, input, output)
    }

    /// Prepares a persistent reduce of `count` elements.
    ///
    /// # Errors
    /// The errors of [`ireduce`](Self::ireduce).
    pub fn reduce_init<T: Pod>(
        &self,
        count: usize,
        op: impl ReduceOp<T>,
        root: u32,
    ) -> Result<Persistent<TwoBuffers<T>>> {
        Ok(Persistent::new(
            self,
            self.plan_reduce(CallForm::Nonblocking, bytes_of::<T>(count)?, op, root)?,
        ))
    }

    #[inline(always)]
    fn plan_reduce<T: Pod>(
        &self,
        form: CallForm,
        bytes: u64,
        op: impl ReduceOp<T>,
        root: u32,
    ) -> Result<CollectivePlan<TwoBuffers<T>>> {
        self.check_root(root)?;
        let is_root = self.rank() == root;
        let shape = if is_root {
            BufferShape::new(bytes, bytes)
        } else {
            BufferShape { output: None, in_place: InPlaceRule::Never, ..BufferShape::new(bytes, 0) }
        };
        let known = match op.into_combination(&[bytes])? {
            Combination::BuiltIn(known) => known,
            Combination::UserDefined(function) => {
                let path = self.path_of_gather(form, CallKind::Reduce, (bytes, root), false)?;
                let count = if is_root { self.size() } else { 0 };
                return Ok(CollectivePlan::folded(path, shape, function, (count, count, bytes)));
            }
        };
        let choice = self.choose(form, Collective::Reduce, bytes, known.order());
        let arguments = choice.digest() << 48 ^ known.number() << 32 | u64::from(root);
        let call = Signature::new(CallKind::Reduce, bytes, arguments);
        if choice.is_join() {
            let flat = FlatCollective::new(Pattern::ReduceTo { root }, bytes, call);
            let flat = FlatCollective { arithmetic: Some(known.arithmetic()), ..flat };
            return Ok(CollectivePlan::new(ExecutionPath::Flat(flat), shape));
        }
        let reduction = Some(known.reduction());
        let path = self.linked_equal((call, &choice), arguments, (root, bytes, reduction))?;
        Ok(CollectivePlan::new(path, shape).in_order(known.order()))
    }
}
