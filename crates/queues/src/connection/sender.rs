//! The sending end of a connection with a ring.

use super::end::{ConnectionEnd, RingMemory, open_ring, too_small};
use super::error::ConnectionError;
use super::socket::{POLICY, SocketSleeper};
use crate::basic::ring::{RingError, Signal};
use crate::basic::words::store_bytes;
use crate::basic::{Header, sender};
use crate::id::{QueueName, SourceName};
use crate::names::{
    ConnectionParts, DestinationTable, DroppedEnd, Peer, ServerConnection, TableError,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The sending end, for the messages of one transmit queue to one name.
#[derive(Debug)]
pub struct Sender {
    ring: sender::Sender<RingMemory, SocketSleeper>,
    end: ConnectionEnd,
    table: Arc<DestinationTable>,
    name: QueueName,
    source: SourceName,
    /// Generation of the table entry for which the connection was opened.
    opened_for: u16,
    /// Generation of the table entry at the last message.
    generation: u16,
}

impl Sender {
    pub(crate) fn new(
        server: &Arc<ServerConnection>,
        table: Arc<DestinationTable>,
        name: QueueName,
        parts: ConnectionParts,
    ) -> Result<Sender, ConnectionError> {
        let ConnectionParts { offer, memory, socket } = parts;
        let end = ConnectionEnd::new(server, &offer, DroppedEnd::Sender);
        let (_, memory, geometry) = open_ring(&offer, memory)?;
        let generation = table.lookup(name).map_or(0, |destination| destination.generation);
        let sleeper = SocketSleeper::new(server, (offer.connection, false), socket);
        let ring = sender::Sender::new(memory, geometry, sleeper, POLICY);
        let ring = ring.ok_or_else(|| too_small(&offer))?;
        let source = offer.source;
        Ok(Sender { ring, end, table, name, source, opened_for: generation, generation })
    }

    /// Returns the receiving process.
    pub fn peer(&self) -> &Peer {
        &self.end.peer
    }

    /// Returns the length of the longest message in bytes.
    pub fn longest_message(&self) -> usize {
        self.ring.geometry().longest()
    }

    /// Returns true if the name has another destination than when the connection was opened.
    pub(super) fn is_outdated(&self) -> bool {
        self.table
            .lookup(self.name)
            .is_ok_and(|destination| destination.generation != self.opened_for)
    }

    /// Sends a message to one of the receiver's handlers. Blocks while there is no space.
    ///
    /// # Errors
    ///
    /// [`ConnectionError`]. Messages sent before the peer ended may have been received or not.
    pub fn send(&mut self, handler: u8, bytes: &[u8]) -> Result<(), ConnectionError> {
        self.send_before(handler, bytes, None)
    }

    /// Sends as [`Self::send`] does, and blocks at most for `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Self::send_deadline`].
    pub fn send_timeout(
        &mut self,
        handler: u8,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<(), ConnectionError> {
        self.send_before(handler, bytes, Instant::now().checked_add(timeout))
    }

    /// Sends as [`Self::send`] does, and blocks at most until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Self::send`], and [`ConnectionError::TimedOut`].
    pub fn send_deadline(
        &mut self,
        handler: u8,
        bytes: &[u8],
        deadline: Instant,
    ) -> Result<(), ConnectionError> {
        self.send_before(handler, bytes, Some(deadline))
    }

    pub(super) fn send_before(
        &mut self,
        handler: u8,
        bytes: &[u8],
        deadline: Option<Instant>,
    ) -> Result<(), ConnectionError> {
        self.check_destination()?;
        let room = self
            .ring
            .wait_for_room(bytes.len(), deadline)
            .map_err(|error| self.end.explain(error))?;
        self.compose(handler, bytes, room);
        self.publish();
        Ok(())
    }

    /// Sends a message if there is space. Returns false if there is none.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn try_send(&mut self, handler: u8, bytes: &[u8]) -> Result<bool, ConnectionError> {
        let put = self.try_put(handler, bytes)?;
        self.publish();
        Ok(put)
    }

    /// Writes a message as [`Self::try_send`] does, but leaves it invisible to the receiver until
    /// [`Self::publish`], which publishes all messages written before.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn try_put(&mut self, handler: u8, bytes: &[u8]) -> Result<bool, ConnectionError> {
        self.check_destination()?;
        let room = self.ring.room_for(bytes.len()).map_err(|error| self.end.explain(error))?;
        let has_space = room.is_some();
        if let Some(room) = room {
            self.compose(handler, bytes, room);
        }
        Ok(has_space)
    }

    /// Publishes all written messages by one store.
    pub fn publish(&mut self) {
        self.ring.publish();
    }

    fn compose(&mut self, handler: u8, bytes: &[u8], room: sender::Room) {
        let message = self.ring.compose(Header { source: self.source, handler }, room);
        store_bytes(message.words(), bytes);
        message.finish();
    }

    /// Checks that the name still has this destination: one load per message.
    fn check_destination(&mut self) -> Result<(), ConnectionError> {
        if let Some(failed) = &self.end.failed {
            return Err(failed.clone());
        }
        let peer = || self.end.peer.clone();
        match self.table.lookup(self.name) {
            Ok(destination) if destination.generation == self.generation => {}
            // The name was re-pointed. If the receiving end moves with it, this end continues; if
            // the receiver has ended, the check below finds that.
            Ok(destination) => {
                self.generation = destination.generation;
                self.end.check_soon();
            }
            Err(TableError::ProcessGone { .. }) => {
                let error = ConnectionError::Gone { peer: peer() };
                return Err(self.end.fail(error));
            }
            Err(_) => {
                let error = ConnectionError::Revoked { peer: peer() };
                return Err(self.end.fail(error));
            }
        }
        if self.end.is_check_due() && self.ring.signal().check().is_err() {
            return Err(self.end.explain(RingError::Interrupted));
        }
        Ok(())
    }
}
