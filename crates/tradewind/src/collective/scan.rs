//! Scan.

use crate::buffers::{Input, Output};
use crate::communicator::Communicator;
use crate::error::Result;
use crate::path::ExecutionPath;
use crate::persistent::Persistent;
use crate::plan::{CollectivePlan, TwoBuffers};
use crate::reduction::{Combination, ReduceOp};
use crate::request::Request;
use crate::shape::{BufferShape, bytes_of};
use bytemuck::Pod;
use collectives::Collective;
use engine::flat::{FlatCollective, Pattern};
use engine::signature::{CallKind, Signature};
use models::decision::CallForm;

/// # Scan
impl Communicator {
    /// Combines the inputs of ranks 0, …, r element by element on each rank r.
    ///
    /// Shapes: input and output have the same number of elements, the same on all ranks. The input
    /// may be [in place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(4, |world| {
    ///     let mut sum = [0];
    ///     world.scan(&[world.rank() + 1], &mut sum, tradewind::Op::Sum)?;
    ///     assert_eq!(sum, [[1, 3, 6, 10][world.rank() as usize]]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the lengths differ, an integer is divided by zero, or a rank is gone or in another
    /// collective. A rank waits only for those before it, and may not detect failures of the
    /// others.
    #[inline]
    pub fn scan<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
        op: impl ReduceOp<T>,
    ) -> Result<()> {
        self.plan_scan(CallForm::Blocking, size_of_val(output) as u64, op)?.run(self, input, output)
    }

    /// Starts a [`scan`](Self::scan).
    ///
    /// # Errors
    /// The errors of [`scan`](Self::scan); fails if the schedule cannot be linked. Never waits once
    /// linked.
    #[inline]
    pub fn iscan<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
        op: impl ReduceOp<T>,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        self.plan_scan(CallForm::Nonblocking, output.length(), op)?.start(self, input, output)
    }

    /// Prepares a persistent scan of `count` elements.
    ///
    /// # Errors
    /// The errors of [`iscan`](Self::iscan).
    pub fn scan_init<T: Pod>(
        &self,
        count: usize,
        op: impl ReduceOp<T>,
    ) -> Result<Persistent<TwoBuffers<T>>> {
        Ok(Persistent::new(self, self.plan_scan(CallForm::Nonblocking, bytes_of::<T>(count)?, op)?))
    }

    #[inline(always)]
    fn plan_scan<T: Pod>(
        &self,
        form: CallForm,
        bytes: u64,
        op: impl ReduceOp<T>,
    ) -> Result<CollectivePlan<TwoBuffers<T>>> {
        let shape = BufferShape::new(bytes, bytes);
        let known = match op.into_combination(&[bytes])? {
            Combination::BuiltIn(known) => known,
            Combination::UserDefined(function) => {
                let path = self.path_of_allgather(form, CallKind::Scan, bytes, false)?;
                return Ok(CollectivePlan::folded(
                    path,
                    shape,
                    function,
                    (self.size(), self.rank() + 1, bytes),
                ));
            }
        };
        let choice = self.choose(form, Collective::Scan, bytes, known.order());
        let arguments = choice.digest() << 16 | known.number();
        let call = Signature::new(CallKind::Scan, bytes, arguments);
        if choice.is_join() {
            let flat = FlatCollective {
                arithmetic: Some(known.arithmetic()),
                ..FlatCollective::new(Pattern::Scan, bytes, call)
            };
            return Ok(CollectivePlan::new(ExecutionPath::Flat(flat), shape));
        }
        let reduction = Some(known.reduction());
        let path = self.linked_equal((call, &choice), arguments, (0, bytes, reduction))?;
        Ok(CollectivePlan::new(path, shape).in_order(known.order()))
    }
}
