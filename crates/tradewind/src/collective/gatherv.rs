//! Gather of blocks of different sizes.

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
use collectives::{Collective, Sizes, gather};
use engine::flat::{FlatCollective, Pattern, VariableBlocks};
use engine::signature::{CallKind, Signature};
use models::decision::CallForm;
use std::sync::Arc;

/// # Gather, blocks of different sizes
impl Communicator {
    /// Gathers the inputs of all ranks at the root, in rank order; each may have another length.
    ///
    /// Shapes: at the root `counts` has the number of elements of each rank, and the output their
    /// sum; elsewhere both are ignored: empty slices suffice. At the root the input may be [in
    /// place](crate::InPlace).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let mine = vec![world.rank(); world.rank() as usize];
    ///     if world.rank() == 0 {
    ///         let mut all = [9; 3];
    ///         world.gatherv(&mine, &mut all, &[0, 1, 2], 0)?;
    ///         assert_eq!(all, [1, 2, 2]);
    ///         Ok(())
    ///     } else {
    ///         world.gatherv(&mine, &mut [], &[], 0)
    ///     }
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a length does not fit, the root is not a rank, or a rank is gone or in another
    /// collective; at the root, if a rank has more or fewer elements than its count. Ranks other
    /// than the root do not wait, and may not detect a failure.
    pub fn gatherv<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
        counts: &[usize],
        root: u32,
    ) -> Result<()> {
        let streamed = self.call_of_streamed_gatherv(root)?.and_then(|call| {
            self.stream_gatherv((call, root), &input, (&mut &mut *output, counts))
        });
        let own = input.bytes().len() as u64;
        let plan = || self.plan_gatherv::<T>(own, counts, root, CallForm::Blocking);
        match streamed {
            Some(StreamedCall::Ended(outcome)) => outcome,
            Some(StreamedCall::NoMemory) => plan()?.run_without_streams(self, input, output),
            None => plan()?.run(self, input, output),
        }
    }

    /// Starts a [`gatherv`](Self::gatherv).
    ///
    /// # Errors
    /// The errors of [`gatherv`](Self::gatherv). Never waits on one node: the algorithm is `join`,
    /// because all others need the sizes of all ranks. Between nodes the ranks first agree on their
    /// sizes.
    pub fn igatherv<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
        counts: &[usize],
        root: u32,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        let own = input.bytes().len() as u64;
        self.plan_gatherv::<T>(own, counts, root, CallForm::Nonblocking)?.start(self, input, output)
    }

    /// Prepares a persistent gatherv of `count` elements on this rank and, at the root, `counts` on
    /// all.
    ///
    /// # Errors
    /// The errors of [`igatherv`](Self::igatherv).
    pub fn gatherv_init<T: Pod>(
        &self,
        count: usize,
        counts: &[usize],
        root: u32,
    ) -> Result<Persistent<TwoBuffers<T>>> {
        let own = bytes_of::<T>(count)?;
        let plan = self.plan_gatherv::<T>(own, counts, root, CallForm::Nonblocking)?;
        Ok(Persistent::new(self, plan))
    }

    /// The call of a blocking gatherv, if it is streamed.
    #[inline(always)]
    fn call_of_streamed_gatherv(&self, root: u32) -> Result<Option<Signature>> {
        if root >= self.size() {
            return Ok(None);
        }
        let choice = self.choose_for_unknown_sizes(Collective::Gather, CallForm::Blocking);
        Ok(self.streams_blocks(&choice).then(|| signature_of_gatherv(&choice, root)))
    }

    #[inline(always)]
    fn plan_gatherv<T: Pod>(
        &self,
        own: u64,
        counts: &[usize],
        root: u32,
        form: CallForm,
    ) -> Result<CollectivePlan<TwoBuffers<T>>> {
        self.check_root(root)?;
        let rank = self.rank();
        let ranks = self.size();
        let counts = if rank == root {
            Some(Counts::of::<T>(CallKind::Gatherv, "the list of counts", counts, ranks)?)
        } else {
            None
        };
        let own = counts.as_ref().map_or(own, |counts| counts.block(root));
        let choice = self.choose_for_unknown_sizes(Collective::Gather, form);
        let call = signature_of_gatherv(&choice, root);
        let joins = choice.is_join();
        let path = if joins {
            let received = counts.iter().flat_map(|counts| counts.bytes.iter().copied());
            let blocks =
                Some(Arc::new(VariableBlocks::new(counts.is_none().then_some(own), received)));
            ExecutionPath::Flat(FlatCollective {
                blocks,
                leaves_own: true,
                ..FlatCollective::new(Pattern::GatherTo { root }, 0, call)
            })
        } else {
            let bytes = self.agree_with_root(own, counts.as_ref(), (root, call))?;
            let sizes = Sizes::each(&bytes)?;
            let build = |rank| gather::graph(choice.algorithm, rank, root, &sizes, choice.tuning);
            self.linked((call, &choice), (root.into(), bytes), build)?
        };
        let Some(counts) = counts else {
            return Ok(CollectivePlan::new(
                path,
                BufferShape {
                    output: None,
                    in_place: InPlaceRule::Never,
                    ..BufferShape::new(own, 0)
                },
            ));
        };
        let at = counts.offset(root);
        let block = joins.then_some(OwnBlock { from: 0, to: at, bytes: own });
        let shape = BufferShape {
            in_place: InPlaceRule::InputAt(at),
            own: block,
            ..BufferShape::new(own, counts.total)
        };
        Ok(CollectivePlan::new(path, shape))
    }
}

#[inline(always)]
fn signature_of_gatherv(choice: &SelectedAlgorithm, root: u32) -> Signature {
    Signature::new(CallKind::Gatherv, 0, choice.digest() << 32 | u64::from(root))
}
