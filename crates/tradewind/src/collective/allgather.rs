//! Allgather.

use crate::buffers::{Input, Output};
use crate::communicator::Communicator;
use crate::error::Result;
use crate::path::ExecutionPath;
use crate::persistent::Persistent;
use crate::plan::{CollectivePlan, TwoBuffers};
use crate::reduction::FoldOrder;
use crate::request::Request;
use crate::shape::{BufferShape, InPlaceRule, OwnBlock, bytes_of};
use bytemuck::Pod;
use collectives::Collective;
use engine::flat::{FlatCollective, Pattern};
use engine::signature::{CallKind, Signature};
use models::decision::CallForm;

/// # Allgather
impl Communicator {
    /// Gathers the inputs of all ranks on every rank, in rank order.
    ///
    /// Shapes: the input has n elements, the output size × n, with the same n on all ranks. The
    /// input may be [in place](crate::InPlace): block r of the output on rank r.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let mut all = [0; 3];
    ///     world.allgather(&[10 * world.rank()], &mut all)?;
    ///     assert_eq!(all, [0, 10, 20]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a length does not fit, or a rank is gone or in another collective.
    #[inline]
    pub fn allgather<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
    ) -> Result<()> {
        self.plan_allgather::<T>(CallForm::Blocking, size_of_val(output) as u64)?
            .run(self, input, output)
    }

    /// Starts an [`allgather`](Self::allgather).
    ///
    /// # Errors
    /// Fails if a length does not fit or the schedule cannot be linked. Never waits once linked.
    #[inline]
    pub fn iallgather<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        self.plan_allgather::<T>(CallForm::Nonblocking, output.length())?.start(self, input, output)
    }

    /// Prepares a persistent allgather of `count` elements a rank.
    ///
    /// # Errors
    /// The errors of [`iallgather`](Self::iallgather).
    pub fn allgather_init<T: Pod>(&self, count: usize) -> Result<Persistent<TwoBuffers<T>>> {
        Ok(Persistent::new(
            self,
            self.plan_allgather::<T>(
                CallForm::Nonblocking,
                self.for_each_rank(bytes_of::<T>(count)?)?,
            )?,
        ))
    }

    #[inline(always)]
    fn plan_allgather<T: Pod>(
        &self,
        form: CallForm,
        total: u64,
    ) -> Result<CollectivePlan<TwoBuffers<T>>> {
        let bytes = self.equal_part::<T>(CallKind::Allgather, "the output", total)?;
        let path = self.path_of_allgather(form, CallKind::Allgather, bytes, true)?;
        let at = u64::from(self.rank()) * bytes;
        let own =
            matches!(path, ExecutionPath::Flat(_)).then_some(OwnBlock { from: 0, to: at, bytes });
        Ok(CollectivePlan::new(
            path,
            BufferShape {
                in_place: InPlaceRule::InputAt(at),
                own,
                ..BufferShape::new(bytes, total)
            },
        ))
    }

    /// The path by which every rank receives a block of `bytes` bytes from every rank; with
    /// `leaves_own` the caller copies its own block.
    #[inline(always)]
    pub(super) fn path_of_allgather(
        &self,
        form: CallForm,
        kind: CallKind,
        bytes: u64,
        leaves_own: bool,
    ) -> Result<ExecutionPath> {
        let choice = self.choose(form, Collective::Allgather, bytes, FoldOrder::Any);
        let call = Signature::new(kind, bytes, choice.digest());
        if choice.is_join() {
            return Ok(ExecutionPath::Flat(FlatCollective {
                leaves_own,
                ..FlatCollective::new(Pattern::Gather, bytes, call)
            }));
        }
        self.linked_equal((call, &choice), 0, (0, bytes, None))
    }
}
