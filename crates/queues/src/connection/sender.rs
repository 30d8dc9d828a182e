//! The sending end of a connection, over a ring or through receive queues.

use super::end::{ConnectionEnd, RingMemory, RingPeer, open_ring, too_small};
use super::error::ConnectionError;
use super::job_queues::PeerQueues;
use super::queue_transport::QueueTransport;
use super::socket::{POLICY, SocketSleeper};
use crate::basic::BasicHeader;
use crate::basic::ring::{RingError, Signal};
use crate::basic::ring_sender::{FreeSpace, RingSender};
use crate::basic::words::store_bytes;
use crate::cache_line::{CacheLineMessage, LINE_DATA};
use crate::error::SendError;
use crate::id::{QueueIndex, QueueName, SourceName};
use crate::names::{
    ConnectionOffer, ConnectionParts, DestinationTable, DroppedEnd, Peer, ServerConnection,
    TableError,
};
use crate::receive_queues::QueueSender;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The sending end, for the messages of one transmit queue to one name. A port may have ten
/// thousands of them, most of them through receive queues.
#[derive(Debug)]
pub struct Sender {
    end: ConnectionEnd,
    table: Arc<DestinationTable>,
    name: QueueName,
    source: SourceName,
    transport: Transport,
}

/// Way of the messages.
#[derive(Debug)]
enum Transport {
    /// A ring of this connection alone. Boxed, because the other transport is small.
    Ring(Box<RingTransport>),
    /// The receive queues of the receiving process.
    Queue(QueueTransport),
}

#[derive(Debug)]
struct RingTransport {
    ring: RingSender<RingMemory, SocketSleeper>,
    peer: RingPeer,
    /// Generation of the table entry for which the connection was opened.
    opened_for: u16,
    /// Generation of the table entry at the last message.
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
    /// Opens the sending end of a connection with a ring.
    pub(crate) fn over_ring(
        server: &Arc<ServerConnection>,
        table: Arc<DestinationTable>,
        name: QueueName,
        parts: ConnectionParts,
    ) -> Result<Sender, ConnectionError> {
        let ConnectionParts { offer, memory, socket } = parts;
        // Created first: its drop notifies the name server if the ring cannot be mapped.
        let end = ConnectionEnd::new(server, offer.connection, DroppedEnd::Sender);
        let (_, memory, geometry) = open_ring(&offer, memory)?;
        let generation = table.lookup(name).map_or(0, |destination| destination.generation);
        let sleeper = SocketSleeper::new(server, (offer.connection, false), socket);
        let ring = RingSender::new(memory, geometry, sleeper, POLICY);
        let ring = ring.ok_or_else(|| too_small(&offer))?;
        let peer = RingPeer::new(&offer);
        let transport = RingTransport { ring, peer, opened_for: generation, generation };
        let transport = Transport::Ring(Box::new(transport));
        Ok(Sender { end, table, name, source: offer.source, transport })
    }

    /// Opens the sending end of a connection through receive queues, of which `opened` is a sender.
    pub(crate) fn over_queue(
        server: &Arc<ServerConnection>,
        table: &Arc<DestinationTable>,
        (name, queue): (QueueName, QueueIndex),
        offer: &ConnectionOffer,
        opened: (Arc<PeerQueues>, QueueSender),
    ) -> Sender {
        Sender {
            end: ConnectionEnd::new(server, offer.connection, DroppedEnd::Sender),
            table: Arc::clone(table),
            name,
            source: offer.source,
            transport: Transport::Queue(QueueTransport::new(queue, opened)),
        }
    }

    /// Returns the receiving process.
    pub fn peer(&self) -> &Peer {
        match &self.transport {
            Transport::Ring(ring) => &ring.peer.peer,
            Transport::Queue(queue) => queue.peer(),
        }
    }

    /// Returns the length of the longest message in bytes.
    pub fn longest_message(&self) -> usize {
        match &self.transport {
            Transport::Ring(ring) => ring.ring.geometry().longest(),
            Transport::Queue(_) => LINE_DATA,
        }
    }

    /// Returns true if the messages pass through receive queues.
    pub(crate) fn is_over_queue(&self) -> bool {
        matches!(self.transport, Transport::Queue(_))
    }

    /// Returns true if the name has another destination than when the connection was opened.
    pub(crate) fn is_outdated(&self) -> bool {
        self.table.lookup(self.name).is_ok_and(|destination| match &self.transport {
            Transport::Ring(ring) => destination.generation != ring.opened_for,
            Transport::Queue(queue) => destination.queue != queue.queue,
        })
    }

    /// Drops the end for another connection to the same name, which carries the next message.
    pub(crate) fn replace(mut self) {
        if self.is_over_queue() {
            self.end.mark_replaced();
        }
    }

    /// Sends a message to one of the receiver's handlers. Blocks while there is no space.
    ///
    /// # Errors
    ///
    /// [`ConnectionError`]. Messages sent before the peer ended may have been received or not.
    pub fn send(&mut self, handler: u8, bytes: &[u8]) -> Result<(), ConnectionError> {
        self.send_limited(handler, bytes, SendLimit::Until(None)).map(drop)
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
        let limit = SendLimit::Until(Instant::now().checked_add(timeout));
        self.send_limited(handler, bytes, limit).map(drop)
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
        self.send_limited(handler, bytes, SendLimit::Until(Some(deadline))).map(drop)
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

    /// Sends a message. Returns false if there is no space and the limit is immediate.
    pub(crate) fn send_limited(
        &mut self,
        handler: u8,
        bytes: &[u8],
        limit: SendLimit,
    ) -> Result<bool, ConnectionError> {
        let SendLimit::Until(deadline) = limit else { return self.try_send(handler, bytes) };
        self.check_destination()?;
        match &mut self.transport {
            Transport::Ring(ring) => {
                let space = ring.ring.wait_for_space(bytes.len(), deadline);
                let space = space.map_err(|error| ring.peer.explain(&self.end, error))?;
                ring.compose(BasicHeader { source: self.source, handler }, bytes, space);
                ring.ring.publish();
                Ok(true)
            }
            Transport::Queue(queue) => {
                let message = QueueTransport::compose(self.source, handler, bytes)?;
                match queue.try_send(&message) {
                    Ok(false) => self.wait_to_send(&message, deadline),
                    sent => sent.map_err(|error| self.explain_send(error)),
                }
            }
        }
    }

    /// Sends through a receive queue that is full.
    #[cold]
    fn wait_to_send(
        &mut self,
        message: &CacheLineMessage,
        deadline: Option<Instant>,
    ) -> Result<bool, ConnectionError> {
        while let Transport::Queue(queue) = &mut self.transport {
            match queue.send_slice(message, deadline) {
                Ok(true) => return Ok(true),
                // The name may have been re-pointed meanwhile: a message that is sent after the
                // change has to go to the new destination.
                Ok(false) => self.end.check_soon(),
                Err(error) => return Err(self.explain_send(error)),
            }
            self.check_destination()?;
        }
        Ok(false)
    }

    /// Writes a message as [`Self::try_send`] does, but leaves it invisible to the receiver until
    /// [`Self::publish`], which publishes all messages written before. Messages through receive
    /// queues are visible at once.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn try_put(&mut self, handler: u8, bytes: &[u8]) -> Result<bool, ConnectionError> {
        self.check_destination()?;
        match &mut self.transport {
            Transport::Ring(ring) => {
                let space = ring.ring.space_for(bytes.len());
                let space = space.map_err(|error| ring.peer.explain(&self.end, error))?;
                let Some(space) = space else { return Ok(false) };
                ring.compose(BasicHeader { source: self.source, handler }, bytes, space);
                Ok(true)
            }
            Transport::Queue(queue) => {
                let message = QueueTransport::compose(self.source, handler, bytes)?;
                let sent = queue.try_send(&message);
                sent.map_err(|error| self.explain_send(error))
            }
        }
    }

    /// Publishes all written messages by one store.
    pub fn publish(&mut self) {
        if let Transport::Ring(ring) = &mut self.transport {
            ring.ring.publish();
        }
    }

    /// Checks that the name still has this destination: one load per message.
    fn check_destination(&mut self) -> Result<(), ConnectionError> {
        // A failure is final: the ring may be corrupt, so nothing is written into it again.
        if let Transport::Ring(ring) = &self.transport {
            ring.peer.check()?;
        }
        // Acquire, in the table: pairs with the name server's Release. The entry of a name that was
        // revoked or moved is seen here before the message is composed, not after.
        let destination = match self.table.lookup(self.name) {
            Ok(destination) => destination,
            Err(error) => {
                let peer = self.peer().clone();
                let error = match error {
                    // A notice of the name server names the reason, if there is one.
                    TableError::ProcessGone { .. } => {
                        self.end.closed(&peer, ConnectionError::Gone { peer: peer.clone() })
                    }
                    _ => ConnectionError::Revoked { peer },
                };
                return Err(self.fail(error));
            }
        };
        match &mut self.transport {
            // The name was re-pointed. If the receiving end moves with it, this end continues; if
            // the receiver has ended, the check below finds that.
            Transport::Ring(ring) if destination.generation != ring.generation => {
                ring.generation = destination.generation;
                self.end.check_soon();
            }
            // A receive queue holds the messages of many senders and does not move.
            Transport::Queue(queue) if destination.queue != queue.queue => {
                return Err(ConnectionError::Moved { peer: queue.peer().clone() });
            }
            _ => {}
        }
        if self.end.is_check_due() { self.check_notices() } else { Ok(()) }
    }

    #[cold]
    fn check_notices(&mut self) -> Result<(), ConnectionError> {
        match &mut self.transport {
            // The other end has closed its socket, or the name server has sent a notice.
            Transport::Ring(ring) if ring.ring.signal().check().is_err() => {
                Err(ring.peer.explain(&self.end, RingError::Interrupted))
            }
            Transport::Ring(_) => Ok(()),
            Transport::Queue(queue) => {
                self.end.server.receive();
                self.end.close_error(queue.peer()).map_or(Ok(()), Err)
            }
        }
    }

    /// Checks that the receiver is alive and the connection open.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn check(&mut self) -> Result<(), ConnectionError> {
        self.end.check_soon();
        self.check_destination()
    }

    /// Requests a wake-up for the time when the receiver has freed space. Try to send once more
    /// before sleeping on the [descriptor](Self::descriptor), and call [`Self::disarm`] after it. Only for
    /// connections with a ring.
    ///
    /// Returns true if the wake-up is certain. If not, sleep for at most a millisecond.
    pub fn arm(&self) -> bool {
        match &self.transport {
            Transport::Ring(ring) => ring.ring.announce_sleep(),
            Transport::Queue(_) => false,
        }
    }

    /// Cancels the request for a wake-up and consumes those that arrived.
    pub fn disarm(&self) {
        if let Transport::Ring(ring) = &self.transport {
            // First cancels the request, then consumes the wake-ups: the receiver may add one in
            // between, which only ends a later sleep early.
            ring.ring.stir();
            ring.ring.signal().drain();
        }
    }

    /// Returns a descriptor that is readable after a wake-up, or when the receiver has ended;
    /// `None` for a connection through receive queues.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.transport {
            Transport::Ring(ring) => Some(ring.ring.signal().as_fd()),
            Transport::Queue(_) => None,
        }
    }

    /// Remembers an error of a connection with a ring.
    fn fail(&mut self, error: ConnectionError) -> ConnectionError {
        match &mut self.transport {
            Transport::Ring(ring) => ring.peer.fail(error),
            Transport::Queue(_) => error,
        }
    }

    /// Converts an error of the receive queue.
    fn explain_send(&self, error: SendError) -> ConnectionError {
        let peer = self.peer().clone();
        match error {
            SendError::Timeout => ConnectionError::TimedOut { peer },
            SendError::ProcessExited { .. } => ConnectionError::Gone { peer },
            SendError::Closed => {
                self.end.closed(&peer, ConnectionError::Closed { peer: peer.clone() })
            }
            other => ConnectionError::Unusable { peer, why: other.to_string() },
        }
    }
}

impl RingTransport {
    fn compose(&mut self, header: BasicHeader, bytes: &[u8], space: FreeSpace) {
        let message = self.ring.compose(header, space);
        store_bytes(message.words(), bytes);
        message.finish();
    }
}
