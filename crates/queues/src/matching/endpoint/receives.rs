//! Receives of an endpoint.

use super::waiting::{ALONE, test};
use super::{Endpoint, PostedRecvKey};
use crate::matching::error::MatchError;
use crate::matching::line::MessageHead;
use crate::matching::matcher::Pattern;
use crate::matching::remote::RemoteProgress;
use crate::matching::slab::Key;
use crate::matching::state::{FirstRecv, OwnRecv, PolledRecv};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// A waiting thread polls the ring of the sender that it waits for, and every so many polls all
/// rings.
const POLLS_OF_ONE: u32 = 16;

/// Polls of the ring of its sender before a receive is posted: about the time of a round trip of
/// some kibibytes. A message that is taken before needs no entry.
const UNPOSTED_POLLS: u32 = 400;

impl Endpoint {
    /// Receives a message.
    ///
    /// # Errors
    /// [`MatchError::Truncated`], [`MatchError::RankExited`], [`MatchError::Create`],
    /// [`MatchError::Corrupt`].
    #[inline]
    pub fn recv(
        &self,
        pattern: Pattern,
        buffer: &mut [u8],
        exited: impl Fn(Option<u32>) -> Option<u32>,
    ) -> Result<MessageHead, MatchError> {
        let mut polls = 0;
        let posted = loop {
            // A new lock for each poll, so that other threads of the rank get their turn.
            let mut state = self.state.lock();
            match state.recv_first(&pattern, buffer)? {
                FirstRecv::Complete(head) => return Ok(head),
                FirstRecv::Posted(posted) => break posted,
                FirstRecv::Nothing if polls < UNPOSTED_POLLS && self.may_spin() => polls += 1,
                FirstRecv::Nothing | FirstRecv::MustPost => {
                    break state.post(pattern, buffer.len() as u64)?;
                }
            }
        };
        self.complete(PostedRecvKey::new(posted), pattern.source, buffer, exited)
    }

    /// Waits for a receive, and drops it after an error: it must not take a later message.
    #[inline]
    pub(super) fn complete(
        &self,
        posted: PostedRecvKey,
        source: Option<u32>,
        buffer: &mut [u8],
        exited: impl Fn(Option<u32>) -> Option<u32>,
    ) -> Result<MessageHead, MatchError> {
        let outcome = self.wait_recv(&posted, source, buffer, None, exited);
        if outcome.is_err() {
            // The first error is reported.
            let _ = self.drop_recv(posted);
        }
        outcome
    }

    /// Posts a receive into a buffer of so many bytes.
    ///
    /// # Errors
    /// [`MatchError::Create`], [`MatchError::Corrupt`].
    #[inline]
    pub fn post_recv(
        &self,
        pattern: Pattern,
        capacity: usize,
    ) -> Result<PostedRecvKey, MatchError> {
        self.state.lock().post(pattern, capacity as u64).map(PostedRecvKey::new)
    }

    /// Returns the head of the message if a receive is complete; its key is then invalid.
    /// `source` is the sender, if the receive names one. After an error the receive is to be
    /// [dropped](Self::drop_recv).
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv). Some of the unsuccessful tests look for a rank that has
    /// exited.
    pub fn test_recv(
        &self,
        recv: &mut PostedRecvKey,
        source: Option<u32>,
        buffer: &mut [u8],
        exited: impl Fn(Option<u32>) -> Option<u32>,
    ) -> Result<Option<MessageHead>, MatchError> {
        let posted = recv.key;
        let mut own = Some(OwnRecv { posted, buffer });
        let exited = || exited(self.awaited(posted, source));
        let outcome = test(&mut recv.tests, exited, || {
            self.poll_and_look(|_| source, || self.poll_recv(&mut own, None, true))
        });
        if !matches!(outcome, Ok(Some(_)) | Err(MatchError::Truncated { .. })) {
            self.detach(&own);
        }
        outcome
    }

    /// Waits for a receive. Its key is invalid after success; after an error other than a time-out
    /// the receive is to be [dropped](Self::drop_recv). `source` is the sender, if the receive names
    /// one.
    ///
    /// # Errors
    /// [`MatchError::Timeout`] and the errors of [`recv`](Self::recv).
    #[inline]
    pub fn wait_recv(
        &self,
        recv: &PostedRecvKey,
        source: Option<u32>,
        buffer: &mut [u8],
        deadline: Option<Instant>,
        exited: impl Fn(Option<u32>) -> Option<u32>,
    ) -> Result<MessageHead, MatchError> {
        let posted = recv.key;
        let mut own = Some(OwnRecv { posted, buffer });
        let mut polls = 0_u32;
        let exited = || exited(self.awaited(posted, source));
        let subject = || self.state.lock().wait_of_recv(posted);
        let awaited = self.awaited_from(source);
        let outcome = self.wait_for(subject, awaited, deadline, exited, || {
            let polls_all =
                polls % POLLS_OF_ONE == POLLS_OF_ONE - 1 || polls > ALONE.eager + ALONE.spins;
            polls += 1;
            self.poll_recv(&mut own, source, polls_all)
        });
        if !matches!(outcome, Ok(_) | Err(MatchError::Truncated { .. })) {
            self.detach(&own);
        }
        // Relaxed: a thread that waits has counted itself before it last held the lock.
        if self.waiting.load(Ordering::Relaxed) > 0 {
            // Behind this message there may be those of other threads, which sleep.
            self.own.wakeup().notify();
            if let Some(RemoteProgress::Connections(driver)) = &self.progress {
                driver.wake();
            }
        }
        outcome
    }

    /// Returns the sender that a receive waits for: that of its message, or else its source.
    fn awaited(&self, posted: Key, source: Option<u32>) -> Option<u32> {
        self.state.lock().sender_of(posted).or(source)
    }

    /// Keeps what arrives later for a receive that a call leaves incomplete.
    fn detach(&self, own: &Option<OwnRecv<'_>>) {
        if let Some(own) = own {
            self.state.lock().detach(own);
        }
    }

    #[inline]
    fn poll_recv(
        &self,
        own: &mut Option<OwnRecv<'_>>,
        source: Option<u32>,
        polls_all: bool,
    ) -> Result<Option<MessageHead>, MatchError> {
        let mut state = self.state.lock();
        match source {
            Some(source) if !polls_all => state.progress_from(source, own)?,
            _ => state.progress(own, &None)?,
        }
        let Some(recv) = own else { return Ok(None) };
        match state.poll_recv(recv)? {
            PolledRecv::Pending => Ok(None),
            PolledRecv::Complete(head) => Ok(Some(head)),
            PolledRecv::Read(message, offer, MessageHead { sender, envelope }) => {
                drop(state);
                let length = recv.buffer.len().min(envelope.bytes as usize);
                let is_read = self.read(sender, offer, &mut recv.buffer[..length]);
                let mut state = self.state.lock();
                state.finish_read(message, sender, offer, None, is_read)?;
                // Incomplete if the read has failed: then the message has been requested and comes
                // through the ring.
                match state.poll_recv(recv)? {
                    PolledRecv::Complete(head) => Ok(Some(head)),
                    _ => Ok(None),
                }
            }
        }
    }

    /// Cancels a receive. Returns false if a message has matched it; the receive is then to be
    /// waited for.
    pub fn cancel_recv(&self, recv: &PostedRecvKey) -> bool {
        self.state.lock().matcher.unpost(recv.key)
    }

    /// Drops a receive, and discards the message that it has matched.
    ///
    /// # Errors
    /// [`MatchError::Create`], [`MatchError::Corrupt`].
    pub fn drop_recv(&self, recv: PostedRecvKey) -> Result<(), MatchError> {
        self.state.lock().drop_recv(recv.key)
    }
}
