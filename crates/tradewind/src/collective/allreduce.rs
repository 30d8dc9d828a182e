//! Allreduce.

use crate::buffers::{Input, Output};
use crate::communicator::Communicator;
use crate::error::Result;
use crate::path::ExecutionPath;
use crate::persistent::Persistent;
use crate::plan::{CollectivePlan, TwoBuffers};
use crate::reduction::{Combination, FoldOrder, ReduceOp};
use crate::request::Request;
use crate::shape::{BufferShape, bytes_of};
use bytemuck::Pod;
use collectives::Collective;
use engine::flat::{FlatCollective, Pattern};
use engine::signature::{CallKind, Signature};
use models::decision::CallForm;

/// # Allreduce
impl Communicator {
    /// Combines the inputs of all ranks element by element; every rank receives the same result,
    /// bit for bit.
    ///
    /// Shapes: input and output have the same number of elements, the same on all ranks. The input
    /// may be [in place](crate::InPlace). With the algorithm `join`, and with user-defined
    /// operations ([`fold`](crate::fold())), the result is ((c₀ ∘ c₁) ∘ c₂) ∘ … in rank order.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(4, |world| {
    ///     let mut largest = [0u32; 2];
    ///     world.allreduce(&[world.rank(), 7], &mut largest, tradewind::Op::Maximum)?;
    ///     assert_eq!(largest, [3, 7]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the lengths differ, an integer is divided by zero, or a rank is gone or in another
    /// collective.
    #[inline]
    pub fn allreduce<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
        op: impl ReduceOp<T>,
    ) -> Result<()> {
        self.plan_allreduce(CallForm::Blocking, size_of_val(output) as u64, op)?
            .run(self, input, output)
    }

    /// Starts an [`allreduce`](Self::allreduce). Buffers of the segment move in;
    /// [`wait`](Request::wait) returns them.
    ///
    /// # Errors
    /// Fails if the lengths differ or the schedule cannot be linked. Never waits once linked.
    #[inline]
    pub fn iallreduce<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
        op: impl ReduceOp<T>,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        self.plan_allreduce(CallForm::Nonblocking, output.length(), op)?.start(self, input, output)
    }

    /// Prepares a persistent allreduce of `count` elements.
    ///
    /// # Errors
    /// The errors of [`iallreduce`](Self::iallreduce).
    pub fn allreduce_init<T: Pod>(
        &self,
        count: usize,
        op: impl ReduceOp<T>,
    ) -> Result<Persistent<TwoBuffers<T>>> {
        Ok(Persistent::new(
            self,
            self.plan_allreduce(CallForm::Nonblocking, bytes_of::<T>(count)?, op)?,
        ))
    }

    #[inline(always)]
    fn plan_allreduce<T: Pod>(
        &self,
        form: CallForm,
        bytes: u64,
        op: impl ReduceOp<T>,
    ) -> Result<CollectivePlan<TwoBuffers<T>>> {
        let shape = BufferShape::new(bytes, bytes);
        let known = match op.into_combination(&[bytes])? {
            Combination::BuiltIn(known) => known,
            Combination::UserDefined(function) => {
                let path = self.path_of_allgather(form, CallKind::Allreduce, bytes, false)?;
                return Ok(CollectivePlan::folded(
                    path,
                    shape,
                    function,
                    (self.size(), self.size(), bytes),
                ));
            }
        };
        let choice = self.choose(form, Collective::Allreduce, bytes, known.order());
        let arguments = choice.digest() << 16 | known.number();
        let call = Signature::new(CallKind::Allreduce, bytes, arguments);
        if choice.is_join() {
            let flat = FlatCollective {
                arithmetic: Some(known.arithmetic()),
                ..FlatCollective::new(Pattern::Reduce, bytes, call)
            };
            return Ok(CollectivePlan::new(ExecutionPath::Flat(flat), shape));
        }
        let reduction = known.reduction();
        let folds_itself = Collective::Allreduce.folds_from_left(choice.algorithm);
        let path = if known.order() == FoldOrder::FromLeft && !folds_itself {
            self.linked((call, &choice), (arguments, Vec::new()), |rank| {
                Collective::Allreduce.check_algorithm(choice.algorithm)?;
                collectives::allreduce::fold_from_left(rank, self.size(), bytes, reduction)
            })?
        } else {
            self.linked_equal((call, &choice), arguments, (0, bytes, Some(reduction)))?
        };
        Ok(CollectivePlan::new(path, shape).in_order(known.order()))
    }
}
