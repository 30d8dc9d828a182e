//! Scatter of blocks of different sizes.

use crate::buffers::{Input, Output};
use crate::communicator::Communicator;
use crate::counts::Counts;
use crate::error::Result;
use crate::path::ExecutionPath;
use crate::persistent::Persistent;
use crate::plan::{CollectivePlan, TwoBuffers};
use crate::request::Request;
use crate::selection::choice::SelectedAlgorithm;
use crate::shape::{BufferShape, InPlaceRule, OwnBlock, bytes_of};
use crate::streamed_blocks::StreamedCall;
use bytemuck::Pod;
use collectives::{Collective, Sizes, scatter};
use engine::flat::{FlatCollective, Pattern, VariableBlocks};
use engine::signature::{CallKind, Signature};
use models::decision::CallForm;
use std::sync::Arc;

/// # Scatter, blocks of different sizes
impl Communicator {
    /// Sends each rank its block of the root's input, in rank order; each may have another length.
    ///
    /// Shapes: at the root `counts` has the number of elements of each rank, and the input their
    /// sum; elsewhere both are ignored: empty slices suffice. The output has the rank's own number
    /// of elements. At the root it may be [in place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let mut mine = vec![0; world.rank() as usize];
    ///     if world.rank() == 0 {
    ///         world.scatterv(&[1, 2, 2], &[0, 1, 2], &mut mine, 0)?;
    ///     } else {
    ///         world.scatterv(&[], &[], &mut mine, 0)?;
    ///     }
    ///     assert_eq!(mine, vec![world.rank(); mine.len()]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a length does not fit, the root is not a rank, a rank is gone or in another
    /// collective, or the root's count for this rank is not the length of its output. The root does
    /// not wait, and may not detect a failure.
    pub fn scatterv<'i, 'o, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        counts: &[usize],
        mut output: impl Output<'o, T, Back = ()>,
        root: u32,
    ) -> Result<()> {
        let streamed = self
            .call_of_streamed_scatterv(root)?
            .and_then(|call| self.stream_scatterv((call, root), (&input, counts), &mut output));
        let own = output.length();
        let plan = || self.plan_scatterv::<T>(counts, own, root, CallForm::Blocking);
        match streamed {
            Some(StreamedCall::Ended(outcome)) => outcome,
            Some(StreamedCall::NoMemory) => plan()?.run_without_streams(self, input, output),
            None => plan()?.run(self, input, output),
        }
    }

    /// Starts a [`scatterv`](Self::scatterv).
    ///
    /// # Errors
    /// The errors of [`scatterv`](Self::scatterv). Never waits on one node: the algorithm is `join`,
    /// because all others need the sizes of all ranks. Between nodes the ranks first agree on their
    /// sizes.
    pub fn iscatterv<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        counts: &[usize],
        output: O,
        root: u32,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        let own = output.length();
        self.plan_scatterv::<T>(counts, own, root, CallForm::Nonblocking)?
            .start(self, input, output)
    }

    /// Prepares a persistent scatterv of `count` elements on this rank and, at the root, `counts`
    /// on all.
    ///
    /// # Errors
    /// The errors of [`iscatterv`](Self::iscatterv).
    pub fn scatterv_init<T: Pod>(
        &self,
        counts: &[usize],
        count: usize,
        root: u32,
    ) -> Result<Persistent<TwoBuffers<T>>> {
        let own = bytes_of::<T>(count)?;
        let plan = self.plan_scatterv::<T>(counts, own, root, CallForm::Nonblocking)?;
        Ok(Persistent::new(self, plan))
    }

    /// The call of a blocking scatterv, if it is streamed.
    #[inline(always)]
    fn call_of_streamed_scatterv(&self, root: u32) -> Result<Option<Signature>> {
        if root >= self.size() {
            return Ok(None);
        }
        let choice = self.choose_for_unknown_sizes(Collective::Scatter, CallForm::Blocking);
        Ok(self.streams_blocks(&choice).then(|| signature_of_scatterv(&choice, root)))
    }

    #[inline(always)]
    fn plan_scatterv<T: Pod>(
        &self,
        counts: &[usize],
        own: u64,
        root: u32,
        form: CallForm,
    ) -> Result<CollectivePlan<TwoBuffers<T>>> {
        self.check_root(root)?;
        let rank = self.rank();
        let ranks = self.size();
        let counts = if rank == root {
            Some(Counts::of::<T>(CallKind::Scatterv, "the list of counts", counts, ranks)?)
        } else {
            None
        };
        let own = counts.as_ref().map_or(own, |counts| counts.block(root));
        let choice = self.choose_for_unknown_sizes(Collective::Scatter, form);
        let call = signature_of_scatterv(&choice, root);
        let joins = choice.is_join();
        let path = if joins {
            let sent = counts.iter().flat_map(|counts| counts.bytes.iter().copied());
            let blocks = Some(Arc::new(VariableBlocks::new(sent, counts.is_none().then_some(own))));
            ExecutionPath::Flat(FlatCollective {
                blocks,
                leaves_own: true,
                ..FlatCollective::new(Pattern::Scatter { root }, 0, call)
            })
        } else {
            let bytes = self.agree_with_root(own, counts.as_ref(), (root, call))?;
            let sizes = Sizes::each(&bytes)?;
            let build = |rank| scatter::graph(choice.algorithm, rank, root, &sizes, choice.tuning);
            self.linked((call, &choice), (root.into(), bytes), build)?
        };
        let Some(counts) = counts else {
            return Ok(CollectivePlan::new(
                path,
                BufferShape {
                    input: None,
                    in_place: InPlaceRule::Never,
                    ..BufferShape::new(0, own)
                },
            ));
        };
        let block = joins.then_some(OwnBlock { from: counts.offset(root), to: 0, bytes: own });
        let shape = BufferShape {
            in_place: InPlaceRule::Output,
            own: block,
            ..BufferShape::new(counts.total, own)
        };
        Ok(CollectivePlan::new(path, shape))
    }
}

#[inline(always)]
fn signature_of_scatterv(choice: &SelectedAlgorithm, root: u32) -> Signature {
    Signature::new(CallKind::Scatterv, 0, choice.digest() << 32 | u64::from(root))
}
