//! Gather.

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

/// # Gather
impl Communicator {
    /// Gathers the inputs of all ranks at the root, in rank order.
    ///
    /// Shapes: the input has n elements, the same on all ranks; the output has size × n at the root
    /// and is ignored elsewhere, where an empty slice suffices. At the root the input may be [in
    /// place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let mut all = if world.rank() == 2 { vec![0; 3] } else { vec![] };
    ///     world.gather(&[10 * world.rank()], &mut all, 2)?;
    ///     assert!(world.rank() != 2 || all == [0, 10, 20]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a length does not fit, the root is not a rank, or a rank is gone or in another
    /// collective. Ranks other than the root do not wait, and may not detect a failure.
    #[inline]
    pub fn gather<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
        root: u32,
    ) -> Result<()> {
        let bytes = self.block_of_gather::<T>(
            input.argument().map(|input| input.length),
            size_of_val(output),
            root,
        )?;
        self.plan_gather::<T>(CallForm::Blocking, bytes, root)?.run(self, input, output)
    }

    /// Starts a [`gather`](Self::gather).
    ///
    /// # Errors
    /// The errors of [`gather`](Self::gather); fails if the schedule cannot be linked. Never waits
    /// once linked.
    #[inline]
    pub fn igather<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
        root: u32,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        let bytes = self.block_of_gather::<T>(
            input.argument().map(|input| input.length),
            output.length() as usize,
            root,
        )?;
        self.plan_gather::<T>(CallForm::Nonblocking, bytes, root)?.start(self, input, output)
    }

    /// Prepares a persistent gather of `count` elements a rank.
    ///
    /// # Errors
    /// The errors of [`igather`](Self::igather).
    pub fn gather_init<T: Pod>(
        &self,
        count: usize,
        root: u32,
    ) -> Result<Persistent<TwoBuffers<T>>> {
        Ok(Persistent::new(
            self,
            self.plan_gather::<T>(CallForm::Nonblocking, bytes_of::<T>(count)?, root)?,
        ))
    }

    /// Bytes of a block: those of the input or, in place, of a part of the output.
    #[inline]
    fn block_of_gather<T>(&self, input: Option<u64>, output: usize, root: u32) -> Result<u64> {
        match input {
            Some(bytes) => Ok(bytes),
            None if self.rank() == root => {
                self.equal_part::<T>(CallKind::Gather, "the output", output as u64)
            }
            None => Ok(0),
        }
    }

    #[inline(always)]
    fn plan_gather<T: Pod>(
        &self,
        form: CallForm,
        bytes: u64,
        root: u32,
    ) -> Result<CollectivePlan<TwoBuffers<T>>> {
        let total = self.for_each_rank(bytes)?;
        let path = self.path_of_gather(form, CallKind::Gather, (bytes, root), true)?;
        let at = u64::from(self.rank()) * bytes;
        if self.rank() != root {
            return Ok(CollectivePlan::new(
                path,
                BufferShape {
                    output: None,
                    in_place: InPlaceRule::Never,
                    ..BufferShape::new(bytes, 0)
                },
            ));
        }
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

    /// The path by which the root receives a block of this size from every rank; with `leaves_own`
    /// it copies its own block.
    #[inline(always)]
    pub(super) fn path_of_gather(
        &self,
        form: CallForm,
        kind: CallKind,
        (bytes, root): (u64, u32),
        leaves_own: bool,
    ) -> Result<ExecutionPath> {
        self.check_root(root)?;
        let choice = self.choose(form, Collective::Gather, bytes, FoldOrder::Any);
        let call = Signature::new(kind, bytes, choice.digest() << 32 | u64::from(root));
        if choice.is_join() {
            return Ok(ExecutionPath::Flat(FlatCollective {
                leaves_own,
                ..FlatCollective::new(Pattern::GatherTo { root }, bytes, call)
            }));
        }
        self.linked_equal((call, &choice), root.into(), (root, bytes, None))
    }
}
