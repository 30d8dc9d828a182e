//! The receiving end of a lane.

use super::bell::SocketBell;
use super::{End, LaneError, LaneParts, Memory, Partner, open_ring, too_small};
use crate::basic::ring::{Bell, RingError};
use crate::basic::{Corruption, LOOKS, receiver};
use crate::name::SourceName;
use crate::post::control::Control;
use crate::post::{Class, Closing, Dropped};
use crate::table::SourceTable;
use shm::segment::Segment;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

/// The receiving end.
#[derive(Debug)]
pub struct LaneReceiver {
    ring: receiver::Receiver<Memory, SocketBell>,
    end: End,
    segment: Arc<Segment>,
    sources: Arc<SourceTable>,
    source: SourceName,
    class: Class,
}

impl LaneReceiver {
    pub(crate) fn new(
        control: &Arc<Control>,
        sources: Arc<SourceTable>,
        position: u64,
        parts: LaneParts,
    ) -> Result<LaneReceiver, LaneError> {
        let LaneParts { offer, memory, socket } = parts;
        let end = End::new(control, &offer, Dropped::Receiver);
        let (segment, memory, geometry) = open_ring(&offer, memory)?;
        let bell = SocketBell::new(control, (offer.lane, true), socket);
        let ring = receiver::Receiver::new(memory, geometry, bell, LOOKS, position);
        let ring = ring.ok_or_else(|| too_small(&offer))?;
        Ok(LaneReceiver { ring, end, segment, sources, source: offer.source, class: offer.class })
    }

    /// Who sends.
    pub fn partner(&self) -> &Partner {
        &self.end.partner
    }

    /// The name to which an answer goes, if the sender's process receives and the rules allow it.
    pub fn source(&self) -> SourceName {
        self.source
    }

    /// Whether it carries requests or replies.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Takes the next message out, in place of what `bytes` held; waits for it. Gives its handler.
    ///
    /// # Errors
    ///
    /// [`LaneError`]. A partner's messages come before the news of its end.
    pub fn receive(&mut self, bytes: &mut Vec<u8>) -> Result<u8, LaneError> {
        self.receive_until(bytes, None)
    }

    /// As [`Self::receive`], but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`Self::receive`], and [`LaneError::TimedOut`].
    pub fn receive_by(&mut self, bytes: &mut Vec<u8>, deadline: Instant) -> Result<u8, LaneError> {
        self.receive_until(bytes, Some(deadline))
    }

    fn receive_until(
        &mut self,
        bytes: &mut Vec<u8>,
        deadline: Option<Instant>,
    ) -> Result<u8, LaneError> {
        loop {
            if let Some(handler) = self.try_receive(bytes)? {
                return Ok(handler);
            }
            match self.ring.wait_for_message(deadline) {
                Ok(()) => {}
                Err(RingError::Interrupted) => self.look_at_news()?,
                Err(error) => return Err(self.end.explain(error)),
            }
        }
    }

    /// As [`Self::receive`]; `None` if there is no message now.
    ///
    /// # Errors
    ///
    /// As [`Self::receive`].
    pub fn try_receive(&mut self, bytes: &mut Vec<u8>) -> Result<Option<u8>, LaneError> {
        if let Some(failed) = &self.end.failed {
            return Err(failed.clone());
        }
        if self.end.is_time() {
            self.look_at_news()?;
        }
        let header = match self.ring.copy_next(bytes) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(None),
            Err(error) => return Err(self.end.explain(error)),
        };
        if header.source != self.source {
            let what = Corruption::Source {
                found: header.source.number(),
                expected: self.source.number(),
            };
            return Err(self.end.explain(RingError::Corrupt(what)));
        }
        if !self.sources.accepts(self.source) {
            let error = LaneError::Refused { partner: self.end.partner.clone() };
            return Err(self.end.fail(error));
        }
        Ok(Some(header.handler))
    }

    /// What the post office says, and whether the sender is still there.
    fn look_at_news(&mut self) -> Result<(), LaneError> {
        if self.ring.bell().check().is_ok() {
            return Ok(());
        }
        if self.end.control.is_to_move(self.end.lane) {
            return Err(self.hand_over());
        }
        match self.end.control.closing((self.end.lane, true)) {
            // What it sent before it went comes first.
            Some(Closing::Gone) | None if self.ring.is_ready() => Ok(()),
            _ => Err(self.end.explain(RingError::Interrupted)),
        }
    }

    /// Gives the receiving end back to the post office, which passes it on to another process.
    fn hand_over(&mut self) -> LaneError {
        let position = self.ring.leave();
        let socket = self.ring.bell().as_fd();
        // Without the post office nobody can receive it; the sender learns that when the socket
        // closes.
        self.end.announces = self
            .end
            .control
            .hand_over(self.end.lane, position, self.segment.as_fd(), socket)
            .is_err();
        let error = LaneError::Moved { partner: self.end.partner.clone() };
        self.end.fail(error)
    }

    /// Has the sender ring from now on. After that, look once more before sleeping on the
    /// descriptor ([`AsFd`]): until it is readable, if nothing was there. [`Self::disarm`] when
    /// awake.
    ///
    /// Gives whether the sender is sure to ring; if not, sleep no longer than a millisecond.
    pub fn arm(&mut self) -> bool {
        self.ring.announce_sleep();
        self.ring.bell().heavy()
    }

    /// As [`Self::arm`], for several lanes before one barrier.
    pub(crate) fn announce_sleep(&self) {
        self.ring.announce_sleep();
    }

    /// Takes what has been rung and asks the sender not to ring any more.
    pub fn disarm(&mut self) {
        self.ring.stir();
        self.ring.bell().drain();
        // It may have been a farewell.
        self.hasten();
    }

    /// Has the next look for a message ask the post office, too.
    pub(crate) fn hasten(&mut self) {
        self.end.patience = 1;
    }

    /// Whether a message or an error waits.
    pub(crate) fn is_ready(&mut self) -> bool {
        self.end.failed.is_some() || self.ring.is_ready()
    }

    /// As [`Self::disarm`] where nothing has been rung.
    pub(crate) fn stir(&self) {
        self.ring.stir();
    }
}

impl AsFd for LaneReceiver {
    /// Readable when something has been rung, or the sender's process has gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.bell().as_fd()
    }
}
