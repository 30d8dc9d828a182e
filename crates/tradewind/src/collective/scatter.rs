//! Scatter.

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

/// # Scatter
impl Communicator {
    /// Sends each rank its block of the root's input, in rank order.
    ///
    /// Shapes: the output has n elements, the same on all ranks; the input has size × n at the root
    /// and is ignored elsewhere, where an empty slice suffices. At the root the output may be [in
    /// place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let all = if world.rank() == 0 { vec![5, 6, 7] } else { vec![] };
    ///     let mut mine = [0];
    ///     world.scatter(&all, &mut mine, 0)?;
    ///     assert_eq!(mine, [5 + world.rank()]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a length does not fit, the root is not a rank, or a rank is gone or in another
    /// collective. The root does not wait, and may not detect a failure.
    #[inline]
    pub fn scatter<'i, 'o, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: impl Output<'o, T, Back = ()>,
        root: u32,
    ) -> Result<()> {
        let bytes = self.block_of_scatter::<T>(
            output.argument().map(|output| output.length),
            input.bytes().len(),
            root,
        )?;
        self.plan_scatter::<T>(CallForm::Blocking, bytes, root)?.run(self, input, output)
    }

    /// Starts a [`scatter`](Self::scatter).
    ///
    /// # Errors
    /// The errors of [`scatter`](Self::scatter); fails if the schedule cannot be linked. Never
    /// waits once linked.
    #[inline]
    pub fn iscatter<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
        root: u32,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        let bytes = self.block_of_scatter::<T>(
            output.argument().map(|output| output.length),
            input.bytes().len(),
            root,
        )?;
        self.plan_scatter::<T>(CallForm::Nonblocking, bytes, root)?.start(self, input, output)
    }

    /// Prepares a persistent scatter of `count` elements a rank.
    ///
    /// # Errors
    /// The errors of [`iscatter`](Self::iscatter).
    pub fn scatter_init<T: Pod>(
        &self,
        count: usize,
        root: u32,
    ) -> Result<Persistent<TwoBuffers<T>>> {
        Ok(Persistent::new(
            self,
            self.plan_scatter::<T>(CallForm::Nonblocking, bytes_of::<T>(count)?, root)?,
        ))
    }

    /// Bytes of a block: those of the output or, in place, of a part of the input.
    #[inline]
    fn block_of_scatter<T>(&self, output: Option<u64>, input: usize, root: u32) -> Result<u64> {
        match output {
            Some(bytes) => Ok(bytes),
            None if self.rank() == root => {
                self.equal_part::<T>(CallKind::Scatter, "the input", input as u64)
            }
            None => Ok(0),
        }
    }

    #[inline(always)]
    fn plan_scatter<T: Pod>(
        &self,
        form: CallForm,
        bytes: u64,
        root: u32,
    ) -> Result<CollectivePlan<TwoBuffers<T>>> {
        self.check_root(root)?;
        let total = self.for_each_rank(bytes)?;
        let is_root = self.rank() == root;
        let choice = self.choose(form, Collective::Scatter, bytes, FoldOrder::Any);
        let call =
            Signature::new(CallKind::Scatter, bytes, choice.digest() << 32 | u64::from(root));
        let joins = choice.is_join();
        let path = if joins {
            let flat = FlatCollective::new(Pattern::Scatter { root }, total, call);
            ExecutionPath::Flat(FlatCollective { leaves_own: true, ..flat })
        } else {
            self.linked_equal((call, &choice), root.into(), (root, bytes, None))?
        };
        let shape = if is_root {
            let own = joins.then_some(OwnBlock { from: u64::from(root) * bytes, to: 0, bytes });
            BufferShape { in_place: InPlaceRule::Output, own, ..BufferShape::new(total, bytes) }
        } else {
            BufferShape { input: None, in_place: InPlaceRule::Never, ..BufferShape::new(0, bytes) }
        };
        Ok(CollectivePlan::new(path, shape))
    }
}
