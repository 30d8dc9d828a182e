//! The sending end of a connection.

use super::end::{ConnectionEnd, RingMemory, RingPeer, open_ring, too_small};
use super::error::ConnectionError;
use super::socket::{POLICY, SocketSleeper};
use crate::server_connection::{ConnectionParts, ServerConnection};
use crate::table::{DestinationTable, NameState};
use crate::wire::{DroppedEnd, Peer};
use queues::basic::BasicHeader;
use queues::basic::ring::{RingError, Signal};
use queues::basic::ring_sender::{FreeSpace, RingSender};
use queues::basic::words::store_bytes;
use queues::id::{QueueName, SourceName};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

/// The sending end, for the messages of one program to one name.
#[derive(Debug)]
pub(crate) struct Sender {
    ring: RingSender<RingMemory, SocketSleeper>,
    end: ConnectionEnd,
    peer: RingPeer,
    table: Arc<DestinationTable>,
    name: QueueName,
    source: SourceName,
    /// Generation of the table entry for which the connection was opened.
    generation: u16,
}

/// Bound of the time that a send blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SendLimit {
    /// The send does not block.
    Immediate,
    /// The send blocks until the deadline; without one, until there is space.
    Until(Option<Instant>),
}

impl Sender {
    /// Opens the sending end. `generation` is that of the table's entry before the connection was
    /// requested: the entry may have changed since, which the first message finds.
    pub(crate) fn new(
        server: &Arc<ServerConnection>,
        table: Arc<DestinationTable>,
        (name, generation): (QueueName, u16),
        parts: ConnectionParts,
    ) -> Result<Sender, ConnectionError> {
        let ConnectionParts { offer, memory, socket } = parts;
        // Created first: its drop notifies the name server if the ring cannot be mapped.
        let end = ConnectionEnd::new(server, offer.connection, DroppedEnd::Sender);
        let (memory, geometry) = open_ring(&offer, memory)?;
        let sleeper = SocketSleeper::new(server, (offer.connection, DroppedEnd::Sender), socket);
        let ring = RingSender::new(memory, geometry, sleeper, POLICY);
        let ring = ring.ok_or_else(|| too_small(&offer))?;
        let peer = RingPeer::new(&offer);
        Ok(Sender { ring, end, peer, table, name, source: offer.source, generation })
    }

    /// Returns the receiving process.
    pub(crate) fn peer(&self) -> &Peer {
        &self.peer.peer
    }

    /// Returns true if the name has another destination than when the connection was opened.
    pub(crate) fn is_outdated(&self) -> bool {
        let entry = self.table.entry(self.name);
        matches!(entry.state, NameState::Open(_)) && entry.generation != self.generation
    }

    /// Sends a message to one of the receiver's handlers. Returns false if there is no space and the
    /// limit is immediate. Messages sent before the peer ended may have been received or not.
    ///
    /// # Errors
    ///
    /// [`ConnectionError::Moved`] without having sent, if the name has another destination and all
    /// earlier messages have been received here; until then there is no space.
    pub(crate) fn send(
        &mut self,
        handler: u8,
        bytes: &[u8],
        limit: SendLimit,
    ) -> Result<bool, ConnectionError> {
        let SendLimit::Until(deadline) = limit else {
            let is_sent = self.try_put(handler, bytes)?;
            self.publish();
            return Ok(is_sent);
        };
        while !self.check_destination()? {
            let waited = self.ring.wait_until_empty(deadline);
            waited.map_err(|error| self.explain(error))?;
        }
        let space = self.ring.wait_for_space(bytes.len(), deadline);
        let space = space.map_err(|error| self.explain(error))?;
        self.compose(handler, bytes, space);
        self.ring.publish();
        Ok(true)
    }

    /// Writes a message if there is space, but leaves it invisible to the receiver until
    /// [`Self::publish`], which publishes all messages written before. Errors as for [`Self::send`].
    pub(crate) fn try_put(&mut self, handler: u8, bytes: &[u8]) -> Result<bool, ConnectionError> {
        if !self.check_destination()? {
            return Ok(false);
        }
        let space = self.ring.space_for(bytes.len()).map_err(|error| self.explain(error))?;
        let Some(space) = space else { return Ok(false) };
        self.compose(handler, bytes, space);
        Ok(true)
    }

    /// Publishes all written messages by one store.
    pub(crate) fn publish(&mut self) {
        self.ring.publish();
    }

    fn compose(&mut self, handler: u8, bytes: &[u8], space: FreeSpace) {
        let message = self.ring.compose(BasicHeader { source: self.source, handler }, space);
        store_bytes(message.words(), bytes);
        message.finish();
    }

    fn explain(&mut self, error: RingError) -> ConnectionError {
        self.peer.explain(&self.end, error)
    }

    /// Checks that the name still has this destination: one load per message. Returns false if it
    /// has another one, and messages are in the ring.
    fn check_destination(&mut self) -> Result<bool, ConnectionError> {
        // A failure is final: the ring may be corrupt, so nothing is written into it again.
        self.peer.check()?;
        // Acquire, in the table: pairs with the name server's Release. The entry of a name that was
        // moved is seen here before the message is composed, not after.
        let entry = self.table.entry(self.name);
        if entry.generation != self.generation {
            return self.check_change(entry.state);
        }
        if self.end.is_check_due() {
            self.check_notices()?;
        }
        Ok(true)
    }

    #[cold]
    fn check_change(&mut self, state: NameState) -> Result<bool, ConnectionError> {
        let peer = self.peer.peer.clone();
        let error = match state {
            // A notice of the name server names the reason, if there is one.
            NameState::Gone | NameState::Unknown => {
                self.end.closed(&peer, ConnectionError::Gone { peer: peer.clone() })
            }
            NameState::Excluded => ConnectionError::Refused { peer },
            NameState::Open(_) => match self.is_received()? {
                true => ConnectionError::Moved { peer },
                false => return Ok(false),
            },
        };
        Err(self.peer.fail(error))
    }

    /// Returns true if all messages have been received. The next connection begins behind the last
    /// message of this one, so nothing is lost or reordered. If the receiver ends before it has
    /// received that, its end is the error.
    fn is_received(&mut self) -> Result<bool, ConnectionError> {
        // First the check: an end that is found before the last look is not reported for a ring
        // that is empty.
        let alive = self.ring.signal().check();
        match self.ring.is_empty() {
            Ok(true) => Ok(true),
            Ok(false) => alive.map(|()| false).map_err(|error| self.explain(error.into())),
            Err(error) => Err(self.explain(error)),
        }
    }

    #[cold]
    fn check_notices(&mut self) -> Result<(), ConnectionError> {
        // The other end has closed its socket, or the name server has sent a notice.
        match self.ring.signal().check() {
            Ok(()) => Ok(()),
            Err(interrupted) => Err(self.explain(interrupted.into())),
        }
    }

    /// Checks that the receiver is alive and the connection open. Errors as for [`Self::send`].
    pub(crate) fn check(&mut self) -> Result<(), ConnectionError> {
        self.end.check_soon();
        self.check_destination().map(drop)
    }

    /// Ends the connection at the name server before the drop, so that another one can be opened to
    /// the name. For a connection that has failed: nothing more is sent over it.
    pub(crate) fn close(&mut self) {
        self.end.close();
    }

    /// Requests a wake-up for the time when the receiver has freed space. Try to send once more
    /// before sleeping on the descriptor ([`AsFd`]), and call [`Self::disarm`] after it.
    ///
    /// Returns true if the wake-up is certain. If not, sleep for at most a millisecond.
    pub(crate) fn arm(&self) -> bool {
        self.ring.announce_sleep()
    }

    /// Cancels the request for a wake-up and consumes those that arrived.
    pub(crate) fn disarm(&self) {
        // First cancels the request, then consumes the wake-ups: the receiver may add one in
        // between, which only ends a later sleep early.
        self.ring.stir();
        self.ring.signal().drain();
    }
}

impl AsFd for Sender {
    /// Returns a descriptor that is readable after a wake-up, or when the receiver has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.signal().as_fd()
    }
}
