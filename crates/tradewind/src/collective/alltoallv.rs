//! All-to-all of blocks of different sizes.

use crate::buffers::{Input, Output};
use crate::communicator::Communicator;
use crate::counts::{Counts, digest};
use crate::error::Result;
use crate::path::ExecutionPath;
use crate::persistent::Persistent;
use crate::plan::{CollectivePlan, TwoBuffers};
use crate::reduction::FoldOrder;
use crate::request::Request;
use crate::selection::algorithms::for_different_sizes;
use crate::selection::choice::SelectedAlgorithm;
use crate::shape::{BufferShape, InPlaceRule, OwnBlock};
use crate::streamed_blocks::StreamedCall;
use bytemuck::Pod;
use collectives::{Collective, alltoall};
use engine::flat::{FlatCollective, Pattern, VariableBlocks};
use engine::signature::{CallKind, Signature};
use models::decision::CallForm;
use std::sync::Arc;

/// The block sizes of an all-to-all, as a rank knows them.
#[derive(Clone, Copy)]
pub(super) enum BlockSizes<'a> {
    /// Every rank sends blocks of these sizes, in a call of this form.
    Known(CallForm, &'a Counts),
    /// A rank knows the sizes of its own blocks only.
    Own(CallForm),
}

/// # All-to-all, blocks of different sizes
impl Communicator {
    /// Sends one block of the input to every rank: block j of rank i's input becomes block i of
    /// rank j's output. Each block may have another length.
    ///
    /// Shapes: `sent` has the number of elements for each rank and `received` that from each rank;
    /// blocks follow each other without gaps. If the input is [in place](crate::InPlace), `sent` is
    /// ignored: the blocks of `received` are sent and replaced.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// // Rank 0 sends one element to itself and two to rank 1, which sends three back.
    /// tradewind::local(2, |world| {
    ///     if world.rank() == 0 {
    ///         let mut got = [0; 4];
    ///         world.alltoallv(&[1, 2, 3], &[1, 2], &mut got, &[1, 3])?;
    ///         assert_eq!(got, [1, 7, 8, 9]);
    ///     } else {
    ///         let mut got = [0; 2];
    ///         world.alltoallv(&[7, 8, 9], &[3, 0], &mut got, &[2, 0])?;
    ///         assert_eq!(got, [2, 3]);
    ///     }
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a length does not fit, a block is longer or shorter than its receiver expects, or a
    /// rank is gone or in another collective.
    pub fn alltoallv<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        sent: &[usize],
        output: &mut [T],
        received: &[usize],
    ) -> Result<()> {
        let streamed = self.call_of_streamed_alltoallv()?.and_then(|call| {
            self.stream_alltoallv(call, (&input, sent), (&mut &mut *output, received))
        });
        let sent = if input.argument().is_some() { sent } else { received };
        let plan = || self.plan_alltoallv::<T>(sent, received, CallForm::Blocking);
        match streamed {
            Some(StreamedCall::Ended(outcome)) => outcome,
            Some(StreamedCall::NoMemory) => plan()?.run_without_streams(self, input, output),
            None => plan()?.run(self, input, output),
        }
    }

    /// Starts an [`alltoallv`](Self::alltoallv).
    ///
    /// # Errors
    /// The errors of [`alltoallv`](Self::alltoallv). Never waits on one node: the algorithm is `join`
    /// whatever the communicator's algorithms are, because all others need the sizes of all ranks.
    /// Between nodes the ranks first agree that their sizes are those of the registered schedule.
    pub fn ialltoallv<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        sent: &[usize],
        output: O,
        received: &[usize],
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        let sent = if input.argument().is_some() { sent } else { received };
        self.plan_alltoallv::<T>(sent, received, CallForm::Nonblocking)?.start(self, input, output)
    }

    /// Prepares a persistent alltoallv of these numbers of elements.
    ///
    /// # Errors
    /// The errors of [`ialltoallv`](Self::ialltoallv).
    pub fn alltoallv_init<T: Pod>(
        &self,
        sent: &[usize],
        received: &[usize],
    ) -> Result<Persistent<TwoBuffers<T>>> {
        let plan = self.plan_alltoallv::<T>(sent, received, CallForm::Nonblocking)?;
        Ok(Persistent::new(self, plan))
    }

    /// The call of a blocking alltoallv, if it is streamed.
    #[inline(always)]
    fn call_of_streamed_alltoallv(&self) -> Result<Option<Signature>> {
        let choice = self.choose_of_different_sizes(CallForm::Blocking);
        Ok(self.streams_blocks(&choice).then(|| signature_of(CallKind::Alltoallv, &choice, None)))
    }

    /// Chooses the algorithm of an all-to-all with blocks of different sizes.
    #[inline(always)]
    fn choose_of_different_sizes(&self, form: CallForm) -> SelectedAlgorithm {
        of_different_sizes(self.choose_for_unknown_sizes(Collective::Alltoall, form))
    }

    #[inline(always)]
    fn plan_alltoallv<T: Pod>(
        &self,
        sent: &[usize],
        received: &[usize],
        form: CallForm,
    ) -> Result<CollectivePlan<TwoBuffers<T>>> {
        let rank = self.rank();
        let ranks = self.size();
        let sent = Counts::of::<T>(CallKind::Alltoallv, "the list of sent counts", sent, ranks)?;
        let received =
            Counts::of::<T>(CallKind::Alltoallv, "the list of received counts", received, ranks)?;
        let own = OwnBlock {
            from: sent.offset(rank),
            to: received.offset(rank),
            bytes: sent.block(rank),
        };
        if own.bytes != received.block(rank) {
            let sent = own.bytes;
            let expected = received.block(rank);
            return Err(
                collectives::CollectiveError::OwnSizesDiffer { rank, sent, expected }.into()
            );
        }
        let in_place =
            if sent.bytes == received.bytes { InPlaceRule::InputAt(0) } else { InPlaceRule::Never };
        let path =
            self.path_of_alltoallv(CallKind::Alltoallv, (&sent, &received), BlockSizes::Own(form))?;
        let own = matches!(path, ExecutionPath::Flat(_)).then_some(own);
        Ok(CollectivePlan::new(
            path,
            BufferShape { in_place, own, ..BufferShape::new(sent.total, received.total) },
        ))
    }

    /// The path by which every rank sends a block to every rank. A rank that knows only its own
    /// sizes copies its own block itself.
    #[inline(always)]
    pub(super) fn path_of_alltoallv(
        &self,
        kind: CallKind,
        (sent, received): (&Counts, &Counts),
        sizes: BlockSizes<'_>,
    ) -> Result<ExecutionPath> {
        let (known, choice) = match sizes {
            BlockSizes::Known(form, known) => {
                let choice = self.choose(form, Collective::Alltoall, 0, FoldOrder::Any);
                (Some(known), of_different_sizes(choice))
            }
            BlockSizes::Own(form) => (None, self.choose_of_different_sizes(form)),
        };
        let call = signature_of(kind, &choice, known);
        if choice.is_join() {
            let blocks =
                VariableBlocks::new(sent.bytes.iter().copied(), received.bytes.iter().copied());
            let flat = FlatCollective::new(Pattern::Exchange, 0, call);
            return Ok(ExecutionPath::Flat(FlatCollective {
                blocks: Some(Arc::new(blocks)),
                leaves_own: known.is_none(),
                ..flat
            }));
        }
        let Some(known) = known else {
            // If the sizes of another rank have changed, a rank with unchanged sizes links again,
            // too.
            let sizes = self.allgather_word(digest(&[sent.digest(), received.digest()]), call)?;
            return self.path_of_own_graph(choice.link_key(call, 0, sizes), || {
                let rank = self.rank();
                Ok(alltoall::graph_v(choice.algorithm, rank, &sent.bytes, &received.bytes)?)
            });
        };
        // Every rank sends the blocks of `known` and receives one block of its own size from each.
        self.linked((call, &choice), (0, known.bytes.to_vec()), |rank| {
            let received = vec![known.block(rank); known.bytes.len()];
            alltoall::graph_v(choice.algorithm, rank, &known.bytes, &received)
        })
    }
}

/// The choice for blocks of different sizes. One level, because a leader does not know the sizes of
/// the other ranks' blocks.
#[inline(always)]
fn of_different_sizes(choice: SelectedAlgorithm) -> SelectedAlgorithm {
    let algorithm = for_different_sizes(choice.algorithm);
    SelectedAlgorithm { algorithm, ranks_per_node: None, ..choice }
}

#[inline(always)]
fn signature_of(kind: CallKind, choice: &SelectedAlgorithm, known: Option<&Counts>) -> Signature {
    Signature::new(kind, 0, choice.digest() ^ known.map_or(0, Counts::digest))
}
