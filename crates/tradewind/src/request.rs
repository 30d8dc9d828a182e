//! A collective under way.

use crate::communicator::Communicator;
use crate::error::Result;
use engine::pending::Pending;
use smallvec::SmallVec;
use std::time::Duration;

/// Private memory that results are fetched into, by buffer.
pub(crate) type Outputs<'a> = SmallVec<[&'a mut [u8]; 2]>;

/// The output of a collective with one buffer.
#[inline]
pub(crate) fn only_first(private: &mut [u8]) -> Outputs<'_> {
    let mut outputs = Outputs::new();
    outputs.push(private);
    outputs
}

/// The output of a collective with an input and an output.
#[inline]
pub(crate) fn only_second(private: &mut [u8]) -> Outputs<'_> {
    let mut outputs = Outputs::new();
    outputs.push(&mut []);
    outputs.push(private);
    outputs
}

/// A collective under way in the background; made by the calls that begin with `i` and by
/// [`Schedule::run`](crate::Schedule::run).
///
/// It borrows the buffers it was given, or holds the [`SharedBuffer`](crate::SharedBuffer)s that moved in. Private
/// memory is written only inside [`test`](Self::test) and [`wait`](Self::wait), so a request may be dropped, or even
/// forgotten, at any time: the collective goes on, and its result is discarded.
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
    /// `None` once the buffers are handed back or kept for later.
    inner: Option<Inner<'a, B>>,
    /// Keeps buffers of the segment when the request is dropped early; only requests that hold some have it.
    communicator: Option<Communicator>,
}

#[derive(Debug)]
struct Inner<'a, B> {
    pending: Pending,
    outputs: Outputs<'a>,
    back: B,
    fetched: bool,
}

impl<'a, B: Send + 'static> Request<'a, B> {
    #[inline]
    pub(crate) fn new(communicator: &Communicator, pending: Pending, outputs: Outputs<'a>, back: B) -> Self {
        let inner = Some(Inner { pending, outputs, back, fetched: false });
        Request { inner, communicator: (size_of::<B>() > 0).then(|| communicator.clone()) }
    }

    /// Whether the collective is complete; if so, private results are in their buffers. Never waits.
    ///
    /// # Errors
    /// What went wrong in the collective.
    #[inline]
    pub fn test(&mut self) -> Result<bool> {
        let Some(inner) = &mut self.inner else { return Ok(true) };
        if inner.fetched {
            return Ok(true);
        }
        if !inner.pending.test()? {
            return Ok(false);
        }
        inner.fetched = true;
        inner.pending.collect(&mut inner.outputs)?;
        Ok(true)
    }

    /// Whether the collective has finished, without taking the result and without doing anything for it: one load.
    ///
    /// It tells how far the collective got while this rank made no call.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.inner.as_ref().is_none_or(|inner| inner.fetched || inner.pending.is_complete())
    }

    /// Waits for the collective and gives back the buffers that moved in.
    ///
    /// # Errors
    /// What went wrong: a rank failed, ranks are in different collectives, an integer was divided by zero.
    #[inline]
    pub fn wait(mut self) -> Result<B> {
        self.finish(None)?;
        match self.inner.take() {
            Some(inner) => Ok(inner.back),
            None => unreachable!("only this method, which takes the request, and dropping it empty it"),
        }
    }

    /// Waits for the collective, at most `limit`; private results are then in their buffers. After a time-out the
    /// request can be waited for again.
    ///
    /// # Errors
    /// As [`wait`](Self::wait), and `Timeout`, which names the ranks that have not come and says which are stopped.
    pub fn wait_timeout(&mut self, limit: Duration) -> Result<()> {
        self.finish(Some(limit))
    }

    #[inline]
    fn finish(&mut self, limit: Option<Duration>) -> Result<()> {
        let Some(inner) = &mut self.inner else { return Ok(()) };
        if inner.fetched {
            return Ok(());
        }
        inner.pending.wait(limit)?;
        inner.fetched = true;
        Ok(inner.pending.collect(&mut inner.outputs)?)
    }
}

impl<B: Send + 'static> Drop for Request<'_, B> {
    fn drop(&mut self) {
        // Buffers of the segment may still be read and written by others: they are kept until the collective is complete.
        if let Some(communicator) = &self.communicator
            && let Some(inner) = self.inner.take()
            && !inner.pending.is_complete()
        {
            communicator.keep(inner.pending, Box::new(inner.back));
        }
    }
}

/// Waits for all requests and gives back their buffers, in order.
///
/// # Errors
/// The first error; the other requests are dropped.
pub fn wait_all<'a, B: Send + 'static>(requests: impl IntoIterator<Item = Request<'a, B>>) -> Result<Vec<B>> {
    requests.into_iter().map(Request::wait).collect()
}

/// Waits until one of the requests is complete and gives its position; its private results are then in their buffers.
/// `None` when there are no requests. Complete requests are found again: take them out.
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
            Err(crate::Error::Engine(engine::Error::Timeout { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
