//! Sends of an endpoint.

use super::waiting::{Awaited, test};
use super::{Endpoint, StartedSendKey};
use crate::matching::error::MatchError;
use crate::matching::line::Envelope;
use crate::matching::slab::Key;
use crate::matching::state::StartedSend;
use shm::published_wait::Wait;
use std::time::Instant;

/// Polls for space in a ring before a send leaves its bytes in its own memory.
const SPACE_POLLS: u32 = 2000;

impl Endpoint {
    /// Sends a message and waits until its buffer may be changed.
    ///
    /// # Errors
    /// [`MatchError::RankExited`], [`MatchError::Create`], [`MatchError::Corrupt`].
    #[inline]
    pub fn send(
        &self,
        to: u32,
        envelope: Envelope,
        bytes: &[u8],
        exited: impl Fn() -> Option<u32>,
    ) -> Result<(), MatchError> {
        let mut polls = 0;
        loop {
            let mut state = self.state.lock();
            if state.try_eager(to, envelope, bytes)? {
                return Ok(());
            }
            // A ring is full for as long as its receiver takes to empty it, if it is in a call.
            if polls == SPACE_POLLS || !self.may_spin() || !state.has_credit(to, bytes.len())? {
                break;
            }
            // The receiver may wait for space in its ring to this rank, so this rank empties its
            // rings while it waits.
            state.look(to >= self.ranks);
            state.progress(&mut None, &None)?;
            polls += 1;
        }
        self.send_when_matched(to, envelope, bytes, exited)
    }

    /// Sends a message and waits until it is matched.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    #[cold]
    pub fn send_when_matched(
        &self,
        to: u32,
        envelope: Envelope,
        bytes: &[u8],
        exited: impl Fn() -> Option<u32>,
    ) -> Result<(), MatchError> {
        let key = self.state.lock().start_matched_send(to, envelope, bytes)?;
        self.wait_for_send(key, bytes, None, exited)
    }

    /// Sends a message if the ring to its receiver and the receiver have space for it now; false
    /// otherwise, and for messages of more than [`EAGER_BYTES`](crate::matching::EAGER_BYTES).
    ///
    /// # Errors
    /// [`MatchError::Create`], [`MatchError::Corrupt`].
    pub fn try_send(&self, to: u32, envelope: Envelope, bytes: &[u8]) -> Result<bool, MatchError> {
        self.state.lock().try_eager(to, envelope, bytes)
    }

    /// Starts a send; `None` if it is complete.
    ///
    /// # Errors
    /// [`MatchError::Create`], [`MatchError::Corrupt`].
    #[inline]
    pub fn start_send(
        &self,
        to: u32,
        envelope: Envelope,
        bytes: &[u8],
        is_synchronous: bool,
    ) -> Result<Option<StartedSendKey>, MatchError> {
        let mut state = self.state.lock();
        let started = if !is_synchronous && state.try_eager(to, envelope, bytes)? {
            StartedSend::Complete
        } else {
            StartedSend::Pending(state.start_matched_send(to, envelope, bytes)?)
        };
        Ok(match started {
            StartedSend::Complete => None,
            StartedSend::Pending(key) => Some(StartedSendKey { key, tests: 0 }),
        })
    }

    /// Returns true if a send is complete; its key is then invalid. `bytes` is its buffer.
    ///
    /// # Errors
    /// [`MatchError::RankExited`], which some of the unsuccessful tests look for,
    /// [`MatchError::Create`], [`MatchError::Corrupt`]. The key is invalid after an error too.
    pub fn test_send(
        &self,
        send: &mut StartedSendKey,
        bytes: &[u8],
        exited: impl Fn() -> Option<u32>,
    ) -> Result<bool, MatchError> {
        let own = Some((send.key, bytes));
        let key = send.key;
        let poll = || {
            let mut state = self.state.lock();
            state.progress(&mut None, &own)?;
            Ok(state.finish_send(key).then_some(()))
        };
        let outcome = test(&mut send.tests, exited, || {
            self.poll_and_look(|state| state.receiver_of(key), poll)
        });
        if let Err(error) = &outcome {
            self.state.lock().fail_send(send.key, bytes, error);
        }
        outcome.map(|complete| complete.is_some())
    }

    /// Waits for a send. Its key is invalid afterwards unless the wait has timed out.
    ///
    /// # Errors
    /// [`MatchError::Timeout`] and the errors of [`send`](Self::send).
    pub fn wait_send(
        &self,
        send: &StartedSendKey,
        bytes: &[u8],
        deadline: Option<Instant>,
        exited: impl Fn() -> Option<u32>,
    ) -> Result<(), MatchError> {
        self.wait_for_send(send.key, bytes, deadline, exited)
    }

    fn wait_for_send(
        &self,
        send: Key,
        bytes: &[u8],
        deadline: Option<Instant>,
        exited: impl Fn() -> Option<u32>,
    ) -> Result<(), MatchError> {
        let own = Some((send, bytes));
        let subject = || Wait::Send { to: self.state.lock().receiver_of(send) };
        let awaited = match self.state.lock().receiver_of(send) {
            Some(to) if to >= self.ranks => Awaited::Remote,
            _ => Awaited::Rank { bytes: bytes.len() },
        };
        let outcome = self.wait_for(subject, awaited, deadline, exited, || {
            let mut state = self.state.lock();
            state.progress(&mut None, &own)?;
            Ok(state.finish_send(send).then_some(()))
        });
        match &outcome {
            Err(MatchError::Timeout) | Ok(()) => {}
            Err(error) => self.state.lock().fail_send(send, bytes, error),
        }
        outcome
    }

    /// Drops a started send: its bytes are copied unless they have been read, and the message is
    /// still delivered.
    pub fn drop_send(&self, send: StartedSendKey, bytes: &[u8]) {
        self.state.lock().drop_send(send.key, bytes);
    }
}
