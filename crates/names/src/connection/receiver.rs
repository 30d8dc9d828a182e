//! The receiving end of a connection.

use super::end::{ConnectionEnd, RingMemory, RingPeer, open_ring, too_small};
use super::error::ConnectionError;
use super::socket::{POLICY, SocketSleeper};
use crate::server_connection::{ConnectionParts, ServerConnection};
use crate::wire::{CloseReason, DroppedEnd, Peer};
use queues::basic::Corruption;
use queues::basic::ring::{RingError, Signal};
use queues::basic::ring_receiver::RingReceiver;
use queues::id::SourceName;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// The receiving end.
#[derive(Debug)]
pub(crate) struct Receiver {
    ring: RingReceiver<RingMemory, SocketSleeper>,
    end: ConnectionEnd,
    peer: RingPeer,
    source: SourceName,
}

impl Receiver {
    pub(crate) fn new(
        server: &Arc<ServerConnection>,
        parts: ConnectionParts,
    ) -> Result<Receiver, ConnectionError> {
        let ConnectionParts { offer, memory, socket } = parts;
        let end = ConnectionEnd::new(server, offer.connection, DroppedEnd::Receiver);
        let (memory, geometry) = open_ring(&offer, memory)?;
        let sleeper = SocketSleeper::new(server, (offer.connection, DroppedEnd::Receiver), socket);
        let ring = RingReceiver::new(memory, geometry, sleeper, POLICY);
        let ring = ring.ok_or_else(|| too_small(&offer))?;
        let peer = RingPeer::new(&offer);
        Ok(Receiver { ring, end, peer, source: offer.source })
    }

    /// Returns the sending process.
    pub(crate) fn peer(&self) -> &Peer {
        &self.peer.peer
    }

    /// Returns the name for replies.
    pub(crate) fn source(&self) -> SourceName {
        self.source
    }

    /// Receives the next message, if there is one, which replaces the contents of `bytes`. Returns
    /// its handler. The messages of a peer are received before the report of its end.
    pub(crate) fn try_recv(&mut self, bytes: &mut Vec<u8>) -> Result<Option<u8>, ConnectionError> {
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
        // closes the connection.
        if header.source != self.source {
            let what = Corruption::Source {
                found: header.source.number(),
                expected: self.source.number(),
            };
            return Err(self.peer.explain(&self.end, RingError::Corrupt(what)));
        }
        Ok(Some(header.handler))
    }

    /// Checks the notices of the name server, and that the sender is alive.
    fn check_notices(&mut self) -> Result<(), ConnectionError> {
        if self.ring.signal().check().is_ok() {
            return Ok(());
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

    /// Publishes that all messages so far have been received: a sender whose name has another
    /// destination waits for that.
    pub(crate) fn publish_position(&mut self) {
        self.ring.publish_position();
    }

    /// Requests wake-ups from the sender. Poll once more before sleeping on the descriptor
    /// ([`AsFd`]), and call [`Self::disarm`] after it.
    ///
    /// Returns true if the wake-up is certain. If not, sleep for at most a millisecond.
    pub(crate) fn arm(&mut self) -> bool {
        self.announce_sleep();
        self.ring.signal().heavy()
    }

    /// Requests wake-ups as [`Self::arm`] does, without the barrier: for several connections before
    /// one barrier.
    pub(crate) fn announce_sleep(&mut self) {
        self.publish_position();
        self.ring.announce_sleep();
    }

    /// Cancels the request for wake-ups and consumes those that arrived.
    pub(crate) fn disarm(&mut self) {
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
