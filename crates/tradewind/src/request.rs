//! A started collective.

use crate::communicator::Communicator;
use crate::deferred::DeferredBuffers;
use crate::error::{Error, Result};
use crate::path::StartedCollective;
use crate::reduction::{FoldFunction, FoldOrder, transport_of_fold};
use crate::selection::explanation::{Explanation, Reason};
use crate::selection::selector::Selector;
use collectives::{Algorithm, Collective};
use engine::signature::CallKind;
use models::decision::CallForm;
use std::ops::Range;
use std::time::Duration;

/// Private memory that results are fetched into. `B` holds the buffers that moved into the request.
#[derive(Debug)]
pub(crate) enum Outputs<'a, B> {
    /// No output.
    None,
    /// The output of a collective with one buffer.
    First(&'a mut [u8]),
    /// The output of a collective with an input and an output.
    Second(&'a mut [u8]),
    /// Any number, by buffer. `None` marks a result that is copied into a buffer that moved in;
    /// the function returns those, in this order.
    Many(Vec<Option<&'a mut [u8]>>, fn(&mut B) -> Vec<&mut [u8]>),
    /// The output of a collective between nodes. The function returns the bytes of a buffer that
    /// moved in.
    Copied(Box<CopiedOutput<'a>>, fn(&mut B) -> &mut [u8]),
    /// An output that this rank folds. The function returns the bytes of a buffer that moved in.
    Folded(Box<FoldedOutput<'a>>, fn(&mut B) -> &mut [u8]),
}

/// An output of a collective between nodes, which is copied even into a buffer that moved in.
#[derive(Debug)]
pub(crate) struct CopiedOutput<'a> {
    /// Number of the buffer: 0 or 1.
    pub(crate) buffer: usize,
    /// The caller's memory, if it is private.
    pub(crate) private: &'a mut [u8],
    pub(crate) bytes: usize,
}

/// Contributions that this rank folds once all have arrived.
#[derive(Debug)]
pub(crate) struct FoldedOutput<'a> {
    pub(crate) function: FoldFunction,
    /// All contributions that the collective delivers.
    pub(crate) contributions: Vec<u8>,
    /// The part of them that is folded.
    pub(crate) folded: Range<usize>,
    /// The caller's memory, if it is private.
    pub(crate) private: &'a mut [u8],
    pub(crate) bytes: usize,
}

impl<B> Outputs<'_, B> {
    /// Calls `body` with the outputs of a collective, which fetches its results, and folds what
    /// this rank folds.
    #[inline]
    fn fetch(
        &mut self,
        back: &mut Option<B>,
        body: impl FnOnce(&mut [&mut [u8]]) -> Result<()>,
    ) -> Result<()> {
        match self {
            Outputs::None => body(&mut [])?,
            Outputs::First(private) => body(&mut [private])?,
            Outputs::Second(private) => body(&mut [&mut [], private])?,
            Outputs::Many(all, moved_in) => {
                let mut moved_in = back.as_mut().map(moved_in).unwrap_or_default().into_iter();
                let mut wanted: Vec<&mut [u8]> = Vec::with_capacity(all.len());
                for output in all {
                    match output {
                        Some(private) => wanted.push(private),
                        None => wanted.push(moved_in.next().unwrap_or_default()),
                    }
                }
                body(&mut wanted)?;
            }
            Outputs::Copied(copied, bytes_of_back) => {
                let CopiedOutput { buffer, private, bytes } = &mut **copied;
                let output = match back {
                    Some(back) if private.is_empty() => bytes_of_back(back),
                    _ => private,
                };
                let output = output.get_mut(..*bytes).unwrap_or_default();
                match buffer {
                    0 => body(&mut [output])?,
                    _ => body(&mut [&mut [], output])?,
                }
            }
            Outputs::Folded(output, bytes_of_back) => {
                let FoldedOutput { function, contributions, folded, private, bytes } =
                    &mut **output;
                body(&mut [&mut [], contributions])?;
                let output = match back {
                    Some(back) if private.is_empty() => bytes_of_back(back),
                    _ => private,
                };
                // Without a contribution, as in rank 0's exscan, the output keeps its value.
                if let (Some(output), false) = (output.get_mut(..*bytes), folded.end == 0) {
                    function.combine(&contributions[folded.clone()], output);
                }
            }
        }
        Ok(())
    }
}

/// A started collective, returned by the methods with an `i` before their names and by
/// [`Schedule::run`](crate::Schedule::run).
///
/// It borrows the caller's slices, or owns the [`SharedBuffer`](crate::SharedBuffer)s that moved
/// in. Private memory is written only inside [`test`](Self::test) and [`wait`](Self::wait), so a
/// request may be dropped, or even forgotten, at any time: the collective continues, and its result
/// is discarded.
///
/// ```
/// # fn main() -> Result<(), tradewind::Error> {
/// tradewind::local(3, |world| {
///     let input = [1.0 + f64::from(world.rank())];
///     let mut sum = [0.0];
///     let request = world.iallreduce(&input, &mut sum, tradewind::Op::Sum)?;
///     // … compute …
///     request.wait()?;
///     assert_eq!(sum, [6.0]);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the result is there only after test or wait"]
pub struct Request<'a, B: Send + 'static = ()> {
    started: StartedCollective,
    outputs: Outputs<'a, B>,
    results: Results,
    /// Buffers that moved in; `None` once they are returned or deferred.
    back: Option<B>,
    /// Takes buffers of the segment when the request is dropped early; present only in requests
    /// that own some.
    deferred: Option<DeferredBuffers>,
    /// Selects the algorithm again, for [`explain`](Self::explain).
    selector: Selector,
    order: FoldOrder,
}

/// The results of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Results {
    /// Not fetched yet.
    Pending,
    /// In their buffers.
    Fetched,
    /// The fetch has failed, and its caller has the error.
    Failed,
}

impl Results {
    fn outcome(self) -> Result<()> {
        match self {
            Results::Failed => Err(Error::RequestFailed),
            Results::Pending | Results::Fetched => Ok(()),
        }
    }
}

impl<'a, B: Send + 'static> Request<'a, B> {
    #[inline]
    pub(crate) fn new(
        communicator: &Communicator,
        started: StartedCollective,
        outputs: Outputs<'a, B>,
        back: B,
    ) -> Self {
        Request {
            started,
            outputs,
            results: Results::Pending,
            back: Some(back),
            deferred: (size_of::<B>() > 0).then(|| communicator.deferred().clone()),
            selector: communicator.selector(),
            order: FoldOrder::Common,
        }
    }

    /// The request of a reduction by an algorithm that was selected for this order.
    #[inline]
    pub(crate) fn in_order(mut self, order: FoldOrder) -> Self {
        self.order = order;
        self
    }

    /// Returns `true` if the collective is complete; private results are then in their buffers.
    /// Never waits.
    ///
    /// # Errors
    /// The failure of the collective, and `RequestFailed` in every later call.
    #[inline]
    pub fn test(&mut self) -> Result<bool> {
        if self.results != Results::Pending {
            return self.results.outcome().map(|()| true);
        }
        if !self.started.test()? {
            return Ok(false);
        }
        let Request { started, outputs, results, back, .. } = self;
        // Before the fetch, which can panic in a user-defined operation.
        *results = Results::Failed;
        outputs.fetch(back, |outputs| started.collect(outputs))?;
        *results = Results::Fetched;
        Ok(true)
    }

    /// Explains which algorithm runs the collective, on which engine, and why. `None` for
    /// user-defined schedules and neighbour collectives, where nothing is selected.
    ///
    /// For a reduction with a user-defined operation the explanation is that of the collective
    /// which delivers the contributions to the rank that folds them.
    ///
    /// ```
    /// use tradewind::Collective;
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(2, |world| {
    ///     let mut sum = [0.0];
    ///     let request = world.iallreduce(&[1.0], &mut sum, tradewind::Op::Sum)?;
    ///     let explanation = request.explain().expect("an allreduce has algorithms");
    ///     assert_eq!((explanation.operation, explanation.bytes), (Collective::Allreduce, 8));
    ///     println!("{explanation}");
    ///     request.wait()?;
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn explain(&self) -> Option<Explanation> {
        let call = self.started.call();
        let ranks = u64::from(self.started.ranks());
        let (operation, bytes) = requested_collective(call.kind, call.bytes, ranks)?;
        let folded = matches!(self.outputs, Outputs::Folded(..));
        let (operation, bytes) = match call.kind {
            // The signature of an all-to-all that delivers contributions counts all of them.
            CallKind::ReduceScatterBlock if folded => (transport_of_fold(operation), bytes / ranks),
            _ if folded => (transport_of_fold(operation), bytes),
            _ => (operation, bytes),
        };
        let form = CallForm::Nonblocking;
        let mut explanation = self.selector.explain(form, operation, bytes, self.order);
        let reason = match call.kind {
            CallKind::Alltoallv | CallKind::Gatherv | CallKind::Scatterv => Reason::UnknownSizes,
            _ => Reason::RankOrder,
        };
        match call.kind {
            _ if self.started.is_flat() => explanation.replace(Algorithm::Join, reason),
            CallKind::Gatherv | CallKind::Scatterv => explanation.replace(Algorithm::Flat, reason),
            _ => {}
        }
        if let Some(backend) = self.started.backend() {
            explanation.engine = backend;
        }
        if call.kind == CallKind::Alltoallv || (folded && call.kind == CallKind::ReduceScatter) {
            explanation.adapt_to_different_sizes();
        }
        Some(explanation)
    }

    /// Name of the engine that runs it: `peers` or `caller` on one node, else a backend between
    /// nodes.
    pub fn engine(&self) -> &'static str {
        self.started.backend().unwrap_or_else(|| self.selector.engine().name())
    }

    /// Returns `true` if ranks hold memory of their parts of the segment for it.
    #[inline]
    pub(crate) fn uses_arena(&self) -> bool {
        self.started.uses_arena()
    }

    /// Returns `true` if the collective waits until other ranks have fetched earlier results, which
    /// occupy its place or its memory. A later call of this rank, of any collective, starts it; until
    /// then other ranks may wait for this one's contribution.
    #[inline]
    pub fn is_queued(&self) -> bool {
        self.results == Results::Pending && self.started.is_queued()
    }

    /// Returns `true` if the collective has finished. Fetches no result and, on one node, makes no
    /// progress: one load. It shows how far the collective has come while this rank made no call.
    /// Between nodes it takes what has arrived for a collective that the ranks run themselves.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.results != Results::Pending || self.started.is_complete()
    }

    /// Waits for the collective and returns the buffers that moved in.
    ///
    /// # Errors
    /// Fails if a rank failed, the ranks are in different collectives, or an integer was divided by
    /// zero.
    #[inline]
    pub fn wait(mut self) -> Result<B> {
        self.finish(None)?;
        match self.back.take() {
            Some(back) => Ok(back),
            None => {
                unreachable!("only wait, which consumes the request, and drop take the buffers")
            }
        }
    }

    /// Waits for the collective, at most `limit`; private results are then in their buffers. The
    /// request can be waited for again after a timeout.
    ///
    /// # Errors
    /// The errors of [`wait`](Self::wait), and `Timeout` with the ranks that have not started the
    /// collective and those of them that are stopped.
    pub fn wait_timeout(&mut self, limit: Duration) -> Result<()> {
        self.finish(Some(limit))
    }

    #[inline]
    fn finish(&mut self, limit: Option<Duration>) -> Result<()> {
        if self.results != Results::Pending {
            return self.results.outcome();
        }
        let Request { started, outputs, results, back, .. } = self;
        outputs.fetch(back, |outputs| {
            started.wait(limit, outputs)?;
            // Before the fetch, which can panic in a user-defined operation.
            *results = Results::Failed;
            started.collect(outputs)
        })?;
        *results = Results::Fetched;
        Ok(())
    }
}

impl<B: Send + 'static> Drop for Request<'_, B> {
    #[inline]
    fn drop(&mut self) {
        // Between nodes the backend works on copies.
        if let Some(deferred) = &self.deferred
            && let Some(back) = self.back.take()
            && let StartedCollective::Node(pending) = &mut self.started
        {
            // Dropped before its buffers: a start by another thread may move an unfetched result to
            // the output.
            let pending = pending.transfer();
            // Other ranks may still read and write segment memory of an incomplete collective, so it
            // is freed later.
            if !pending.is_complete() {
                deferred.hold(move || matches!(pending.test(), Ok(true)), Box::new(back));
            }
        }
    }
}

/// The collective of a call, with its bytes as [`Collective`] counts them: zero where the sizes of
/// blocks are not known to all ranks, so that they take no part in the selection.
fn requested_collective(kind: CallKind, bytes: u64, ranks: u64) -> Option<(Collective, u64)> {
    Some(match kind {
        CallKind::Barrier => (Collective::Barrier, 0),
        CallKind::Bcast => (Collective::Bcast, bytes),
        CallKind::Scatter => (Collective::Scatter, bytes),
        CallKind::Scatterv => (Collective::Scatter, 0),
        CallKind::Gather => (Collective::Gather, bytes),
        CallKind::Gatherv => (Collective::Gather, 0),
        CallKind::Allgather => (Collective::Allgather, bytes),
        CallKind::Allgatherv => (Collective::Allgather, bytes / ranks),
        CallKind::Alltoall => (Collective::Alltoall, bytes / ranks),
        CallKind::Alltoallv => (Collective::Alltoall, 0),
        CallKind::Reduce => (Collective::Reduce, bytes),
        CallKind::Allreduce => (Collective::Allreduce, bytes),
        CallKind::ReduceScatterBlock => (Collective::ReduceScatter, bytes),
        CallKind::ReduceScatter => (Collective::ReduceScatter, bytes / ranks),
        CallKind::Scan => (Collective::Scan, bytes),
        CallKind::Exscan => (Collective::Exscan, bytes),
        _ => return None,
    })
}
