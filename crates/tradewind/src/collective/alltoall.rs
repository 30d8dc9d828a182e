//! All-to-all.

use crate::buffers::{Input, Output};
use crate::communicator::Communicator;
use crate::error::Result;
use crate::path::ExecutionPath;
use crate::persistent::Persistent;
use crate::plan::{CollectivePlan, TwoBuffers};
use crate::reduction::FoldOrder;
use crate::request::Request;
use crate::shape::{BufferShape, OwnBlock, bytes_of};
use bytemuck::Pod;
use collectives::Collective;
use engine::flat::{FlatCollective, Pattern};
use engine::signature::{CallKind, Signature};
use models::decision::CallForm;

/// # All-to-all
impl Communicator {
    /// Sends one part of the input to every rank: part j of rank i's input becomes part i of rank
    /// j's output.
    ///
    /// Shapes: input and output have size × n elements, with the same n on all ranks. The input may
    /// be [in place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(2, |world| {
    ///     let mine = [10 * world.rank(), 10 * world.rank() + 1];
    ///     let mut theirs = [0; 2];
    ///     world.alltoall(&mine, &mut theirs)?;
    ///     assert_eq!(theirs, [world.rank(), 10 + world.rank()]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the lengths differ or are no multiple of the number of ranks, or a rank is gone or
    /// in another collective.
    #[inline]
    pub fn alltoall<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
    ) -> Result<()> {
        self.plan_alltoall::<T>(CallForm::Blocking, size_of_val(output) as u64)?
            .run(self, input, output)
    }

    /// Starts an [`alltoall`](Self::alltoall).
    ///
    /// # Errors
    /// Fails if a length does not fit or the schedule cannot be linked. Never waits once linked.
    #[inline]
    pub fn ialltoall<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        self.plan_alltoall::<T>(CallForm::Nonblocking, output.length())?.start(self, input, output)
    }

    /// Prepares a persistent alltoall of `count` elements for each rank.
    ///
    /// # Errors
    /// The errors of [`ialltoall`](Self::ialltoall).
    pub fn alltoall_init<T: Pod>(&self, count: usize) -> Result<Persistent<TwoBuffers<T>>> {
        Ok(Persistent::new(
            self,
            self.plan_alltoall::<T>(
                CallForm::Nonblocking,
                self.for_each_rank(bytes_of::<T>(count)?)?,
            )?,
        ))
    }

    #[inline(always)]
    fn plan_alltoall<T: Pod>(
        &self,
        form: CallForm,
        total: u64,
    ) -> Result<CollectivePlan<TwoBuffers<T>>> {
        let bytes = self.equal_part::<T>(CallKind::Alltoall, "the output", total)?;
        let path = self.path_of_alltoall(form, CallKind::Alltoall, (bytes, 0), true)?;
        let at = u64::from(self.rank()) * bytes;
        let own =
            matches!(path, ExecutionPath::Flat(_)).then_some(OwnBlock { from: at, to: at, bytes });
        Ok(CollectivePlan::new(path, BufferShape { own, ..BufferShape::new(total, total) }))
    }

    /// The path by which every rank sends a block of this size to every rank; with `leaves_own` the
    /// caller copies its own block.
    #[inline(always)]
    pub(super) fn path_of_alltoall(
        &self,
        form: CallForm,
        kind: CallKind,
        (bytes, arguments): (u64, u64),
        leaves_own: bool,
    ) -> Result<ExecutionPath> {
        let choice = self.choose(form, Collective::Alltoall, bytes, FoldOrder::Any);
        let total = self.for_each_rank(bytes)?;
        let call = Signature::new(kind, total, choice.digest() ^ arguments << 48);
        if choice.is_join() {
            return Ok(ExecutionPath::Flat(FlatCollective {
                leaves_own,
                ..FlatCollective::new(Pattern::Exchange, total, call)
            }));
        }
        self.linked_equal((call, &choice), arguments, (0, bytes, None))
    }
}
