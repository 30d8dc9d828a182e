//! Started sends and posted receives.

use super::pattern::Status;
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use queues::matching::{MatchError, MessageHead, Pattern, PostedRecvKey, StartedSendKey};
use std::time::{Duration, Instant};

/// A started send, returned by [`Communicator::isend`].
///
/// Dropping it before it is complete copies what is left of the message, which is still delivered.
/// If it is forgotten instead, the receiver may get what its buffer holds later.
#[derive(Debug)]
#[must_use = "the buffer may be changed only after test or wait"]
pub struct SendRequest<'a> {
    communicator: &'a Communicator,
    bytes: &'a [u8],
    to: u32,
    state: SendState,
}

#[derive(Debug)]
enum SendState {
    Started(StartedSendKey),
    Complete,
    Failed,
}

impl<'a> SendRequest<'a> {
    #[inline]
    pub(super) fn start(
        communicator: &'a Communicator,
        bytes: &'a [u8],
        to: u32,
        tag: u32,
        is_synchronous: bool,
    ) -> Result<Self> {
        let envelope = communicator.envelope(tag, bytes.len());
        let started = communicator
            .endpoint()?
            .start_send(to, envelope, bytes, is_synchronous)
            .map_err(|error| communicator.match_error(error, Some(to), None))?;
        let state = started.map_or(SendState::Complete, SendState::Started);
        Ok(SendRequest { communicator, bytes, to, state })
    }

    /// Returns `true` if the buffer may be changed. Never waits.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait), at the latest in the 64th call after the failure. Later calls
    /// return `RequestFailed`.
    pub fn test(&mut self) -> Result<bool> {
        let started = match &mut self.state {
            SendState::Started(started) => started,
            SendState::Complete => return Ok(true),
            SendState::Failed => return Err(Error::RequestFailed),
        };
        let exited = || self.communicator.exited(Some(self.to));
        let outcome = self.communicator.endpoint()?.test_send(started, self.bytes, exited);
        match outcome {
            Ok(false) => {}
            Ok(true) => self.state = SendState::Complete,
            Err(_) => self.state = SendState::Failed,
        }
        outcome.map_err(|error| self.communicator.match_error(error, Some(self.to), None))
    }

    /// Waits until the buffer may be changed.
    ///
    /// # Errors
    /// `RankFailed` if the receiver has exited before it has matched the message.
    #[inline]
    pub fn wait(mut self) -> Result<()> {
        self.finish(None)
    }

    /// Waits as [`wait`](Self::wait) does, at most `limit`.
    ///
    /// # Errors
    /// `Timeout`, after which the request can be waited for again, and the errors of
    /// [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, limit: Duration) -> Result<()> {
        self.finish(Some(limit))
    }

    #[inline]
    fn finish(&mut self, limit: Option<Duration>) -> Result<()> {
        let started = match &self.state {
            SendState::Started(started) => started,
            SendState::Complete => return Ok(()),
            SendState::Failed => return Err(Error::RequestFailed),
        };
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let exited = || self.communicator.exited(Some(self.to));
        let outcome =
            self.communicator.endpoint()?.wait_send(started, self.bytes, deadline, exited);
        let outcome =
            outcome.map_err(|error| self.communicator.match_error(error, Some(self.to), limit));
        match &outcome {
            Ok(()) => self.state = SendState::Complete,
            Err(error) if error.is_timeout() => {}
            Err(_) => self.state = SendState::Failed,
        }
        outcome
    }
}

impl Drop for SendRequest<'_> {
    #[inline]
    fn drop(&mut self) {
        let state = std::mem::replace(&mut self.state, SendState::Complete);
        if let SendState::Started(started) = state
            && let Ok(endpoint) = self.communicator.endpoint()
        {
            endpoint.drop_send(started, self.bytes);
        }
    }
}

/// A posted receive, returned by [`Communicator::irecv`].
///
/// Its buffer is written only inside [`test`](Self::test) and [`wait`](Self::wait), so a request may
/// be dropped, or even forgotten, at any time. Dropping it cancels the receive, or discards the
/// message that it has matched.
#[derive(Debug)]
#[must_use = "the message is there only after test or wait"]
pub struct RecvRequest<'a> {
    communicator: &'a Communicator,
    buffer: &'a mut [u8],
    source: Option<u32>,
    state: RecvState,
}

#[derive(Debug)]
enum RecvState {
    Posted(PostedRecvKey),
    Complete(Status),
    /// Failed, or withdrawn.
    Over,
}

impl<'a> RecvRequest<'a> {
    #[inline]
    pub(super) fn post(
        communicator: &'a Communicator,
        buffer: &'a mut [u8],
        pattern: Pattern,
    ) -> Result<Self> {
        let posted = communicator
            .endpoint()?
            .post_recv(pattern, buffer.len())
            .map_err(|error| communicator.match_error(error, pattern.source, None))?;
        let state = RecvState::Posted(posted);
        Ok(RecvRequest { communicator, buffer, source: pattern.source, state })
    }

    /// Returns `true` if the message is in the buffer. Never waits.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait), the exit of a rank at the latest in the 64th call after it.
    /// Later calls return `RequestFailed`.
    pub fn test(&mut self) -> Result<bool> {
        let posted = match &mut self.state {
            RecvState::Posted(posted) => posted,
            RecvState::Complete(_) => return Ok(true),
            RecvState::Over => return Err(Error::RequestFailed),
        };
        let exited = |awaited| self.communicator.exited(awaited);
        let endpoint = self.communicator.endpoint()?;
        match endpoint.test_recv(posted, self.source, self.buffer, exited) {
            Ok(None) => Ok(false),
            Ok(Some(head)) => self.complete(head).map(|_| true),
            Err(error) => {
                self.withdraw();
                Err(self.communicator.match_error(error, self.source, None))
            }
        }
    }

    /// Ends the receive with the message that is in the buffer.
    #[inline]
    fn complete(&mut self, head: MessageHead) -> Result<Status> {
        // The key of the receive is invalid.
        self.state = RecvState::Over;
        let status = Status::new(self.communicator, head)?;
        self.state = RecvState::Complete(status);
        Ok(status)
    }

    /// Ends the receive: it takes no later message.
    fn withdraw(&mut self) {
        if let RecvState::Posted(posted) = std::mem::replace(&mut self.state, RecvState::Over)
            && let Ok(endpoint) = self.communicator.endpoint()
            && let Err(error) = endpoint.drop_recv(posted)
        {
            log::warn!("a dropped receive may keep its sender waiting: {error}");
        }
    }

    /// The description of the message, once the receive is complete.
    pub fn status(&self) -> Option<Status> {
        match self.state {
            RecvState::Complete(status) => Some(status),
            _ => None,
        }
    }

    /// Waits for the message.
    ///
    /// # Errors
    /// Those of [`recv`](Communicator::recv).
    #[inline]
    pub fn wait(mut self) -> Result<Status> {
        self.finish(None)
    }

    /// Waits as [`wait`](Self::wait) does, at most `limit`; the [`status`](Self::status) is then
    /// available.
    ///
    /// # Errors
    /// `Timeout`, after which the request can be waited for again, and the errors of
    /// [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, limit: Duration) -> Result<()> {
        self.finish(Some(limit)).map(|_| ())
    }

    /// Cancels the receive. Returns the description of the message if one had matched it, which is
    /// then received.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(2, |world| {
    ///     let mut buffer = [0_u8; 8];
    ///     let receive = world.irecv(&mut buffer, 1 - world.rank(), 7)?;
    ///     assert_eq!(receive.cancel()?, None);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    pub fn cancel(mut self) -> Result<Option<Status>> {
        if let RecvState::Posted(posted) = &self.state
            && self.communicator.endpoint()?.cancel_recv(posted)
        {
            self.state = RecvState::Over;
            return Ok(None);
        }
        self.finish(None).map(Some)
    }

    #[inline]
    fn finish(&mut self, limit: Option<Duration>) -> Result<Status> {
        let posted = match &self.state {
            RecvState::Posted(posted) => posted,
            RecvState::Complete(status) => return Ok(*status),
            RecvState::Over => return Err(Error::RequestFailed),
        };
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let exited = |awaited| self.communicator.exited(awaited);
        let endpoint = self.communicator.endpoint()?;
        match endpoint.wait_recv(posted, self.source, self.buffer, deadline, exited) {
            Ok(head) => self.complete(head),
            // The receive stays posted after a time-out only.
            Err(error) => {
                if !matches!(error, MatchError::Timeout) {
                    self.withdraw();
                }
                Err(self.communicator.match_error(error, self.source, limit))
            }
        }
    }
}

impl Drop for RecvRequest<'_> {
    #[inline]
    fn drop(&mut self) {
        self.withdraw();
    }
}
