//! A collective under way.

use crate::algorithms::Chooser;
use crate::communicator::{Communicator, Keeper};
use crate::error::Result;
use crate::explanation::Explanation;
use crate::operation::Function;
use crate::pending::Pending;
use collectives::{Algorithm, Collective};
use engine::call::CallKind;
use std::ops::Range;
use std::time::Duration;

/// Private memory that results are fetched into.
#[derive(Debug)]
pub(crate) enum Outputs<'a, B> {
    /// No buffer of the caller's.
    None,
    /// The output of a collective with one buffer.
    First(&'a mut [u8]),
    /// The output of a collective with an input and an output.
    Second(&'a mut [u8]),
    /// Any, by buffer; none for those that are copied into buffers that moved in, which come in
    /// this order.
    Many(Vec<Option<&'a mut [u8]>>, fn(&mut B) -> Vec<&mut [u8]>),
    /// The output of a collective between nodes, and how to come to the bytes of a buffer that
    /// moved in.
    Copied(Box<CopiedOutput<'a>>, fn(&mut B) -> &mut [u8]),
    /// Contributions that this rank folds, and how to come to the bytes of a buffer that moved in.
    Folded(Box<Folded<'a>>, fn(&mut B) -> &mut [u8]),
}

/// An output of a collective between nodes, whose result is copied into a buffer that moved in,
/// too.
#[derive(Debug)]
pub(crate) struct CopiedOutput<'a> {
    /// The number of its buffer: 0 or 1.
    pub(crate) buffer: usize,
    /// Where the result goes, if the caller's memory is private.
    pub(crate) private: &'a mut [u8],
    /// How long it is.
    pub(crate) bytes: usize,
}

/// Contributions that are folded when they have come.
#[derive(Debug)]
pub(crate) struct Folded<'a> {
    pub(crate) function: Function,
    /// What the collective brings.
    pub(crate) contributions: Vec<u8>,
    /// What of it is folded.
    pub(crate) folded: Range<usize>,
    /// Where the result goes, if the caller's memory is private.
    pub(crate) private: &'a mut [u8],
    /// How long it is.
    pub(crate) bytes: usize,
}

impl<B> Outputs<'_, B> {
    /// Fetches the results of a complete collective into them, or into what moved in.
    #[inline]
    fn fetch(&mut self, pending: &mut Pending, back: &mut Option<B>) -> Result<()> {
        match self {
            Outputs::None => pending.collect(&mut [])?,
            Outputs::First(private) => pending.collect(&mut [private])?,
            Outputs::Second(private) => pending.collect(&mut [&mut [], private])?,
            Outputs::Many(all, moved_in) => {
                let mut moved_in = back.as_mut().map(moved_in).unwrap_or_default().into_iter();
                let mut wanted: Vec<&mut [u8]> = Vec::with_capacity(all.len());
                for output in all {
                    match output {
                        Some(private) => wanted.push(private),
                        None => wanted.push(moved_in.next().unwrap_or_default()),
                    }
                }
                pending.collect(&mut wanted)?;
            }
            Outputs::Copied(copied, bytes_of_back) => {
                let CopiedOutput { buffer, private, bytes } = &mut **copied;
                let output = match back {
                    Some(back) if private.is_empty() => bytes_of_back(back),
                    _ => private,
                };
                let output = output.get_mut(..*bytes).unwrap_or_default();
                match buffer {
                    0 => pending.collect(&mut [output])?,
                    _ => pending.collect(&mut [&mut [], output])?,
                }
            }
            Outputs::Folded(folded, bytes_of_back) => {
                let Folded { function, contributions, folded, private, bytes } = &mut **folded;
                pending.collect(&mut [&mut [], contributions])?;
                let output = match back {
                    Some(back) if private.is_empty() => bytes_of_back(back),
                    _ => private,
                };
                // Nothing is folded, and nothing written, where there is no contribution.
                if let (Some(output), false) = (output.get_mut(..*bytes), folded.end == 0) {
                    function.combine(&contributions[folded.clone()], output);
                }
            }
        }
        Ok(())
    }
}

/// A collective under way in the background; made by the calls that begin with `i` and by
/// [`Schedule::run`](crate::Schedule::run).
///
/// It borrows the buffers it was given, or holds the [`SharedBuffer`](crate::SharedBuffer)s that
/// moved in. Private memory is written only inside [`test`](Self::test) and [`wait`](Self::wait),
/// so a request may be dropped, or even forgotten, at any time: the collective goes on, and its
/// result is discarded.
///
/// ```
/// # fn main() -> Result<(), tradewind::Error> {
/// tradewind::local(3, |world| {
///     let (mine, mut sum) = ([1.0 + f64::from(world.rank())], [0.0]);
///     let request = world.iallreduce(&mine, &mut sum, tradewind::Op::Sum)?;
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
    pending: Pending,
    outputs: Outputs<'a, B>,
    fetched: bool,
    /// Buffers that moved in; `None` once they are handed back or kept for later.
    back: Option<B>,
    /// Keeps buffers of the segment when the request is dropped early; only requests that hold some
    /// have it.
    keeper: Option<Keeper>,
    /// What its algorithm was chosen by.
    chooser: Chooser,
}

impl<'a, B: Send + 'static> Request<'a, B> {
    #[inline]
    pub(crate) fn new(
        communicator: &Communicator,
        pending: Pending,
        outputs: Outputs<'a, B>,
        back: B,
    ) -> Self {
        let keeper = (size_of::<B>() > 0).then(|| communicator.keeper());
        Request {
            pending,
            outputs,
            fetched: false,
            back: Some(back),
            keeper,
            chooser: communicator.chooser(),
        }
    }

    /// Whether the collective is complete; if so, private results are in their buffers. Never
    /// waits.
    ///
    /// # Errors
    /// What went wrong in the collective.
    #[inline]
    pub fn test(&mut self) -> Result<bool> {
        if self.fetched {
            return Ok(true);
        }
        if !self.pending.test()? {
            return Ok(false);
        }
        self.fetched = true;
        self.outputs.fetch(&mut self.pending, &mut self.back)?;
        Ok(true)
    }

    /// Which algorithm runs the collective, on which engine, and why. None for schedules of one's
    /// own and neighbour collectives, where nothing is chosen.
    ///
    /// A reduction with an operation of one's own is explained where it is folded, as what brings
    /// the contributions there.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(2, |world| {
    ///     let mut sum = [0.0];
    ///     let request = world.iallreduce(&[1.0], &mut sum, tradewind::Op::Sum)?;
    ///     let explanation = request.explain().expect("an allreduce has algorithms");
    ///     assert_eq!((explanation.operation, explanation.bytes), (tradewind::Collective::Allreduce, 8));
    ///     println!("{explanation}");
    ///     request.wait()?;
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn explain(&self) -> Option<Explanation> {
        let call = self.pending.call();
        let ranks = u64::from(self.pending.ranks());
        let (operation, bytes) = asked(call.kind, call.bytes, ranks)?;
        let folded = matches!(self.outputs, Outputs::Folded(..));
        let (operation, bytes) = match call.kind {
            // The call of an all-to-all that brings contributions counts all of them.
            CallKind::ReduceScatterBlock if folded => (brings(operation), bytes / ranks),
            _ if folded => (brings(operation), bytes),
            _ => (operation, bytes),
        };
        let mut explanation = self.chooser.explain(operation, bytes);
        if self.pending.is_meeting() && explanation.algorithm != Algorithm::Join.name() {
            explanation.must_keep_rank_order();
        }
        if let Some(engine) = self.pending.carrier() {
            explanation.engine = engine;
        }
        if call.kind == CallKind::Alltoallv || (folded && call.kind == CallKind::ReduceScatter) {
            explanation.must_take_different_sizes();
        }
        Some(explanation)
    }

    /// Whether the collective has finished, without taking the result and without doing anything
    /// for it: one load.
    ///
    /// It tells how far the collective got while this rank made no call.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.fetched || self.pending.is_complete()
    }

    /// Waits for the collective and gives back the buffers that moved in.
    ///
    /// # Errors
    /// What went wrong: a rank failed, ranks are in different collectives, an integer was divided
    /// by zero.
    #[inline]
    pub fn wait(mut self) -> Result<B> {
        self.finish(None)?;
        match self.back.take() {
            Some(back) => Ok(back),
            None => {
                unreachable!("only this method, which takes the request, and dropping it empty it")
            }
        }
    }

    /// Waits for the collective, at most `limit`; private results are then in their buffers. After
    /// a time-out the request can be waited for again.
    ///
    /// # Errors
    /// As [`wait`](Self::wait), and `Timeout`, which names the ranks that have not come and says
    /// which are stopped.
    pub fn wait_timeout(&mut self, limit: Duration) -> Result<()> {
        self.finish(Some(limit))
    }

    #[inline]
    fn finish(&mut self, limit: Option<Duration>) -> Result<()> {
        if self.fetched {
            return Ok(());
        }
        self.pending.wait(limit)?;
        self.fetched = true;
        self.outputs.fetch(&mut self.pending, &mut self.back)
    }
}

impl<B: Send + 'static> Drop for Request<'_, B> {
    #[inline]
    fn drop(&mut self) {
        // Buffers of the segment may still be read and written by others: they are kept until the
        // collective is complete.
        if let Some(keeper) = &self.keeper
            && let Some(back) = self.back.take()
            && !self.pending.is_complete()
            && let Pending::Node(pending) = &mut self.pending
        {
            keeper.keep(pending.hand_over(), Box::new(back));
        }
    }
}

/// What was asked for, with its bytes as [`Collective`] counts them. Nobody chooses by the sizes of
/// blocks that not all know.
fn asked(kind: CallKind, bytes: u64, ranks: u64) -> Option<(Collective, u64)> {
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

/// What brings the contributions of a reduction that is folded by the caller's own function.
fn brings(operation: Collective) -> Collective {
    match operation {
        Collective::Reduce => Collective::Gather,
        Collective::ReduceScatter => Collective::Alltoall,
        _ => Collective::Allgather,
    }
}

/// Waits for all requests and gives back their buffers, in order.
///
/// # Errors
/// The first error; the other requests are dropped.
pub fn wait_all<'a, B: Send + 'static>(
    requests: impl IntoIterator<Item = Request<'a, B>>,
) -> Result<Vec<B>> {
    requests.into_iter().map(Request::wait).collect()
}

/// Waits until one of the requests is complete and gives its position; its private results are then
/// in their buffers. `None` when there are no requests. Complete requests are found again: take
/// them out.
///
/// # Errors
/// What went wrong in the collective that ended.
pub fn wait_any<B: Send + 'static>(requests: &mut [Request<'_, B>]) -> Result<Option<usize>> {
    /// One request is slept on at a time; the others are looked at this often.
    const GLANCE: Duration = Duration::from_micros(200);
    if requests.is_empty() {
        return Ok(None);
    }
    for turn in 0.. {
        for (index, request) in requests.iter_mut().enumerate() {
            if request.test()? {
                return Ok(Some(index));
            }
        }
        let index = turn % requests.len();
        match requests[index].wait_timeout(GLANCE) {
            Ok(()) => return Ok(Some(index)),
            Err(error) if error.is_timeout() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
