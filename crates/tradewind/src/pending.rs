//! Waiting for several requests, of collectives and of messages.

use crate::error::{Error, Result};
use crate::point_to_point::pattern::Status;
use crate::point_to_point::request::{RecvRequest, SendRequest};
use crate::request::Request;
use std::time::Duration;

mod sealed {
    pub trait Sealed {}
}

/// A started operation: a [`Request`], [`SendRequest`] or [`RecvRequest`], or a reference to one.
///
/// Slices of `&mut dyn Pending` hold requests of several kinds:
///
/// ```
/// use tradewind::{Op, Pending, wait_any};
/// # fn main() -> Result<(), tradewind::Error> {
/// tradewind::local(2, |world| {
///     let other = 1 - world.rank();
///     let mut number = [0];
///     let mut sum = [0];
///     let mut collective = world.iallreduce(&[1], &mut sum, Op::Sum)?;
///     let mut message = world.irecv(&mut number, other, 7)?;
///     world.send(&[world.rank()], other, 7)?;
///     let mut both: Vec<&mut dyn Pending> = vec![&mut collective, &mut message];
///     while let Some(complete) = wait_any(&mut both)? {
///         both.remove(complete);
///     }
///     // The buffers are borrowed as long as the requests.
///     drop((collective, message));
///     assert_eq!((number, sum), ([other], [2]));
///     Ok(())
/// })
/// # }
/// ```
pub trait Pending: sealed::Sealed {
    /// Returns `true` if the operation is complete; its results are then in their buffers. Never
    /// waits.
    ///
    /// # Errors
    /// The failure of the operation, and `RequestFailed` in every later call.
    fn test(&mut self) -> Result<bool>;

    /// Waits for the operation, at most `limit`; its results are then in their buffers.
    ///
    /// # Errors
    /// The failure of the operation, and `RequestFailed` in every later call; `Timeout`, after which
    /// it can be waited for again.
    fn wait_timeout(&mut self, limit: Duration) -> Result<()>;
}

/// A started operation that returns something when it is complete: the buffers that moved into a
/// collective, or the [`Status`](crate::Status) of a receive.
pub trait Complete: Pending {
    /// The result.
    type Output;

    /// Waits for the operation.
    ///
    /// # Errors
    /// The failure of the operation.
    fn wait(self) -> Result<Self::Output>;
}

macro_rules! requests {
    ($([$($generics:tt)*] $request:ty, $output:ty;)+) => {
        $(
            impl<$($generics)*> sealed::Sealed for $request {}

            impl<$($generics)*> Pending for $request {
                fn test(&mut self) -> Result<bool> {
                    <$request>::test(self)
                }

                fn wait_timeout(&mut self, limit: Duration) -> Result<()> {
                    <$request>::wait_timeout(self, limit)
                }
            }

            impl<$($generics)*> Complete for $request {
                type Output = $output;

                #[inline]
                fn wait(self) -> Result<$output> {
                    <$request>::wait(self)
                }
            }
        )+
    };
}

requests! {
    ['a, B: Send + 'static] Request<'a, B>, B;
    ['a] SendRequest<'a>, ();
    ['a] RecvRequest<'a>, Status;
}

impl<P: Pending + ?Sized> sealed::Sealed for &mut P {}

impl<P: Pending + ?Sized> Pending for &mut P {
    fn test(&mut self) -> Result<bool> {
        (**self).test()
    }

    fn wait_timeout(&mut self, limit: Duration) -> Result<()> {
        (**self).wait_timeout(limit)
    }
}

impl<P: Pending + ?Sized> Complete for &mut P {
    type Output = ();

    fn wait(self) -> Result<()> {
        /// Any limit ends in another wait.
        const LIMIT: Duration = Duration::from_secs(3600);
        loop {
            match self.wait_timeout(LIMIT) {
                Err(error) if error.is_timeout() => {}
                outcome => return outcome,
            }
        }
    }
}

/// Waits for all requests and returns their results, in order.
///
/// # Errors
/// The first error; the other requests are dropped.
pub fn wait_all<R: Complete>(requests: impl IntoIterator<Item = R>) -> Result<Vec<R::Output>> {
    requests.into_iter().map(R::wait).collect()
}

/// Returns `true` if all requests are complete; their results are then in their buffers. Never waits.
///
/// # Errors
/// The failure of an operation, and `RequestFailed` in every later call.
pub fn test_all<P: Pending>(requests: &mut [P]) -> Result<bool> {
    // All of them, because the test of each makes progress.
    requests.iter_mut().try_fold(true, |all, request| Ok(request.test()? && all))
}

/// Returns the indices of the requests that are complete, in ascending order; their results are then
/// in their buffers. Requests that are complete are found again: remove them, from the last one on.
/// Never waits.
///
/// # Errors
/// The failure of an operation. Remove the request that has failed: `test` of it returns an error.
pub fn test_some<P: Pending>(requests: &mut [P]) -> Result<Vec<usize>> {
    let mut complete = Vec::new();
    for (index, request) in requests.iter_mut().enumerate() {
        if request.test()? {
            complete.push(index);
        }
    }
    Ok(complete)
}

/// As [`test_some`], but waits until at least one of the requests is complete. Empty if there are no
/// requests.
///
/// ```
/// use tradewind::{Op, wait_some};
/// # fn main() -> Result<(), tradewind::Error> {
/// tradewind::local(2, |world| {
///     let mut sums = [[0]; 3];
///     let outputs = sums.iter_mut();
///     let start = |output| world.iallreduce(&[1], output, Op::Sum);
///     let mut requests = outputs.map(start).collect::<Result<Vec<_>, _>>()?;
///     while !requests.is_empty() {
///         for complete in wait_some(&mut requests)?.into_iter().rev() {
///             requests.remove(complete);
///         }
///     }
///     // The buffers are borrowed as long as the requests.
///     drop(requests);
///     assert_eq!(sums, [[2]; 3]);
///     Ok(())
/// })
/// # }
/// ```
///
/// # Errors
/// The errors of [`test_some`].
pub fn wait_some<P: Pending>(requests: &mut [P]) -> Result<Vec<usize>> {
    if wait_any(requests)?.is_none() {
        return Ok(Vec::new());
    }
    test_some(requests)
}

/// Returns the index of a request that is complete, if there is one; its results are then in their
/// buffers. Requests that are complete are found again: remove them from the slice.
///
/// # Errors
/// The failure of an operation. Remove the request that has failed: `test` of it returns an error.
pub fn test_any<P: Pending>(requests: &mut [P]) -> Result<Option<usize>> {
    for (index, request) in requests.iter_mut().enumerate() {
        if request.test()? {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// Waits until one of the requests is complete and returns its index; its results are then in their
/// buffers. `None` if there are no requests. Requests that are complete are found again: remove
/// them from the slice.
///
/// # Errors
/// The failure of an operation. Remove the request that has failed: `test` of it returns an error.
pub fn wait_any<P: Pending>(requests: &mut [P]) -> Result<Option<usize>> {
    /// The rank sleeps on one request at a time; it tests the others at this interval.
    const TEST_INTERVAL: Duration = Duration::from_micros(200);
    if requests.is_empty() {
        return Ok(None);
    }
    for turn in 0.. {
        if let Some(index) = test_any(requests)? {
            return Ok(Some(index));
        }
        // In turn, because a wait makes more progress than a test: a rank that slept on the first
        // request only would delay one that needs its part in another.
        let index = turn % requests.len();
        match requests[index].wait_timeout(TEST_INTERVAL) {
            Ok(()) => return Ok(Some(index)),
            Err(Error::Timeout { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
