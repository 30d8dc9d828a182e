//! The receiving end of a connection with a ring.

use super::end::{ConnectionEnd, RingMemory, RingPeer, open_ring, too_small};
use super::error::ConnectionError;
use super::socket::{POLICY, SocketSleeper};
use crate::basic::Corruption;
use crate::basic::ring::{RingError, Signal};
use crate::basic::ring_receiver::RingReceiver;
use crate::id::SourceName;
use crate::names::{CloseReason, ConnectionParts, DroppedEnd, Peer, ServerConnection, SourceTable};
use crate::receive_queues::Class;
use shm::segment::Segment;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The receiving end.
#[derive(Debug)]
pub struct Receiver {
    ring: RingReceiver<RingMemory, SocketSleeper>,
    end: ConnectionEnd,
    peer: RingPeer,
    segment: Arc<Segment>,
    sources: Arc<SourceTable>,
    source: SourceName,
    class: Class,
}

impl Receiver {
    pub(crate) fn new(
        server: &Arc<ServerConnection>,
        sources: Arc<SourceTable>,
        position: u64,
        parts: ConnectionParts,
    ) -> Result<Receiver, ConnectionError> {
        let ConnectionParts { offer, memory, socket } = parts;
        let end = ConnectionEnd::new(server, offer.connection, DroppedEnd::Receiver);
        let (segment, memory, geometry) = open_ring(&offer, memory)?;
        let sleeper = SocketSleeper::new(server, (offer.connection, true), socket);
        let ring = RingReceiver::new(memory, geometry, sleeper, POLICY, position);
        let ring = ring.ok_or_else(|| too_small(&offer))?;
        let peer = RingPeer::new(&offer);
        Ok(Receiver { ring, end, peer, segment, sources, source: offer.source, class: offer.class })
    }

    /// Returns the sending process.
    pub fn peer(&self) -> &Peer {
        &self.peer.peer
    }

    /// Returns the name for replies, if the sender's process receives and the rules permit it.
    pub fn source(&self) -> SourceName {
        self.source
    }

    /// Returns the class of the messages.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Receives the next message, which replaces the contents of `bytes`. Blocks until there is
    /// one, and returns its handler.
    ///
    /// # Errors
    ///
    /// [`ConnectionError`]. A peer's messages are received before the report of its end.
    pub fn recv(&mut self, bytes: &mut Vec<u8>) -> Result<u8, ConnectionError> {
        self.recv_before(bytes, None)
    }

    /// Receives as [`Self::recv`] does, and blocks at most for `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Self::recv_deadline`].
    pub fn recv_timeout(
        &mut self,
        bytes: &mut Vec<u8>,
        timeout: Duration,
    ) -> Result<u8, ConnectionError> {
        self.recv_before(bytes, Instant::now().checked_add(timeout))
    }

    /// Receives as [`Self::recv`] does, and blocks at most until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`], and [`ConnectionError::TimedOut`].
    pub fn recv_deadline(
        &mut self,
        bytes: &mut Vec<u8>,
        deadline: Instant,
    ) -> Result<u8, ConnectionError> {
        self.recv_before(bytes, Some(deadline))
    }

    fn recv_before(
        &mut self,
        bytes: &mut Vec<u8>,
        deadline: Option<Instant>,
    ) -> Result<u8, ConnectionError> {
        loop {
            if let Some(handler) = self.try_recv(bytes)? {
                return Ok(handler);
            }
            match self.ring.wait_for_message(deadline) {
                Ok(()) => {}
                Err(RingError::Interrupted) => self.check_notices()?,
                Err(error) => return Err(self.peer.explain(&self.end, error)),
            }
        }
    }

    /// Receives the next message, if there is one, as [`Self::recv`] does.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`].
    pub fn try_recv(&mut self, bytes: &mut Vec<u8>) -> Result<Option<u8>, ConnectionError> {
        self.peer.check()?;
        if self.end.is_check_due() {
            self.check_notices()?;
        }
        // The sender can change the ring at any time. So the message is copied first, and only the
        // copy is validated.
        let header = match self.ring.copy_next(bytes) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(None),
            Err(error) => return Err(self.peer.explain(&self.end, error)),
        };
        // A ring belongs to one sender, so a message with another source is a protocol violation and
        // closes the connection. The inverse table may change at any time: it is read for every
        // message.
        if header.source != self.source {
            let what = Corruption::Source {
                found: header.source.number(),
                expected: self.source.number(),
            };
            return Err(self.peer.explain(&self.end, RingError::Corrupt(what)));
        }
        if !self.sources.accepts(self.source) {
            let error = ConnectionError::Refused { peer: self.peer.peer.clone() };
            return Err(self.peer.fail(error));
        }
        Ok(Some(header.handler))
    }

    /// Checks the notices of the name server, and that the sender is alive.
    fn check_notices(&mut self) -> Result<(), ConnectionError> {
        if self.ring.signal().check().is_ok() {
            return Ok(());
        }
        if self.end.server.is_to_move(self.end.connection) {
            return Err(self.hand_over());
        }
        match self.end.closing() {
            // Messages that a sender published before its end are received first. The name server
            // reports `Left` for a sender on another node, for which the name server has published them here.
            Some(
                CloseReason::Gone
                | CloseReason::NodeLost
                | CloseReason::GoneThere
                | CloseReason::Left,
            )
            | None
                if self.ring.is_ready() =>
            {
                Ok(())
            }
            _ => Err(self.peer.explain(&self.end, RingError::Interrupted)),
        }
    }

    /// Returns the receiving end to the name server, which passes it to another process.
    fn hand_over(&mut self) -> ConnectionError {
        // This process reads no message from here on; `position` is the first one for the next owner.
        // The messages stay in the shared ring, so none is lost or received twice.
        let position = self.ring.leave();
        let socket = self.ring.signal().as_fd();
        // Without the name server no process can take the end over; the sender observes the closed
        // socket.
        self.end.notifies_drop = self
            .end
            .server
            .hand_over(self.end.connection, position, self.segment.as_fd(), socket)
            .is_err();
        let error = ConnectionError::Moved { peer: self.peer.peer.clone() };
        self.peer.fail(error)
    }

    /// Requests wake-ups from the sender. Poll once more before sleeping on the descriptor
    /// ([`AsFd`]), and call [`Self::disarm`] after it.
    ///
    /// Returns true if the wake-up is certain. If not, sleep for at most a millisecond.
    pub fn arm(&mut self) -> bool {
        self.announce_sleep();
        self.ring.signal().heavy()
    }

    /// Requests wake-ups as [`Self::arm`] does, without the barrier: for several connections before
    /// one barrier.
    pub(crate) fn announce_sleep(&mut self) {
        self.ring.publish_position();
        self.ring.announce_sleep();
    }

    /// Cancels the request for wake-ups and consumes those that arrived.
    pub fn disarm(&mut self) {
        // First cancels the request, then consumes the wake-ups: the sender may add one in between,
        // which only ends a later sleep early.
        self.ring.stir();
        self.ring.signal().drain();
        // The wake-up may have been the close of the socket.
        self.check_soon();
    }

    /// Makes the next receive check the notices of the name server.
    pub(crate) fn check_soon(&mut self) {
        self.end.check_soon();
    }

    /// Returns true if a message or an error is available.
    pub(crate) fn is_ready(&mut self) -> bool {
        self.peer.failed.is_some() || self.ring.is_ready()
    }

    /// Cancels the request for wake-ups when none has arrived.
    pub(crate) fn cancel_sleep(&self) {
        self.ring.stir();
    }
}

impl AsFd for Receiver {
    /// Returns a descriptor that is readable after a wake-up, or when the sender has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.signal().as_fd()
    }
}
