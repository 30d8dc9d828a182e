//! The sending end of a connection through receive queues.

use super::end::CHECK_INTERVAL;
use super::error::ConnectionError;
use super::job_queues::PeerQueues;
use crate::cache_line::{CacheLineHeader, CacheLineMessage, LINE_DATA};
use crate::error::SendError;
use crate::id::{QueueIndex, QueueName, SourceName};
use crate::names::{
    ConnectionOffer, DestinationTable, DroppedEnd, Peer, ServerConnection, TableError,
};
use crate::receive_queues::QueueSender;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time that a sender waits for space before it checks whether its name still has this destination.
const SLICE: Duration = Duration::from_millis(100);

/// Registration of an end at the name server, which is notified of the drop.
#[derive(Debug)]
pub(super) struct EndGuard {
    server: Arc<ServerConnection>,
    connection: u32,
    dropped: DroppedEnd,
}

impl EndGuard {
    pub(super) fn new(
        server: &Arc<ServerConnection>,
        connection: u32,
        dropped: DroppedEnd,
    ) -> EndGuard {
        EndGuard { server: Arc::clone(server), connection, dropped }
    }

    /// Returns the number of the connection.
    pub(super) fn connection(&self) -> u32 {
        self.connection
    }

    /// Returns the name server's reason for closing the connection, as far as received.
    pub(super) fn close_error(&self, is_receiver: bool, peer: &Peer) -> Option<ConnectionError> {
        let reason = self.server.closing((self.connection, is_receiver))?;
        Some(ConnectionError::of_close(reason, peer.clone()))
    }
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.server.forget_connection(self.connection, self.dropped, true);
    }
}

/// The sending end, for the messages of one transmit queue to one name. A port may have ten
/// thousands of them.
#[derive(Debug)]
pub(crate) struct QueueTransport {
    destination: QueueSender,
    peer: Arc<PeerQueues>,
    guard: EndGuard,
    table: Arc<DestinationTable>,
    /// The receive queue for which the connection was opened.
    queue: QueueIndex,
    name: QueueName,
    source: SourceName,
    /// Messages until the next check of the notices.
    countdown: u32,
}

impl QueueTransport {
    pub(crate) fn new(
        server: &Arc<ServerConnection>,
        table: &Arc<DestinationTable>,
        (name, queue): (QueueName, QueueIndex),
        offer: &ConnectionOffer,
        (peer, destination): (Arc<PeerQueues>, QueueSender),
    ) -> QueueTransport {
        QueueTransport {
            destination,
            peer,
            guard: EndGuard::new(server, offer.connection, DroppedEnd::Sender),
            table: Arc::clone(table),
            queue,
            name,
            source: offer.source,
            countdown: CHECK_INTERVAL,
        }
    }

    fn peer(&self) -> &Peer {
        self.peer.peer()
    }

    /// Returns true if the name has another destination than when the connection was opened.
    pub(super) fn is_outdated(&self) -> bool {
        self.table.lookup(self.name).is_ok_and(|destination| destination.queue != self.queue)
    }

    /// Marks the end as replaced by another connection. The drop follows.
    pub(super) fn mark_replaced(&mut self) {
        self.guard.dropped = DroppedEnd::SenderGoesOn;
    }

    /// Sends a message. Returns false if there is no space.
    pub(super) fn try_send(&mut self, handler: u8, bytes: &[u8]) -> Result<bool, ConnectionError> {
        let message = self.compose(handler, bytes)?;
        match self.destination.try_send(&message) {
            Ok(()) => Ok(true),
            Err(SendError::Full) => Ok(false),
            Err(why) => Err(self.explain(why)),
        }
    }

    /// Sends a message, and blocks at most until the deadline.
    pub(super) fn send_before(
        &mut self,
        handler: u8,
        bytes: &[u8],
        deadline: Option<Instant>,
    ) -> Result<(), ConnectionError> {
        let message = self.compose(handler, bytes)?;
        match self.destination.try_send(&message) {
            Ok(()) => Ok(()),
            Err(SendError::Full) => self.wait_to_send(&message, deadline),
            Err(why) => Err(self.explain(why)),
        }
    }

    #[cold]
    fn wait_to_send(
        &mut self,
        message: &CacheLineMessage,
        deadline: Option<Instant>,
    ) -> Result<(), ConnectionError> {
        loop {
            let slice = Instant::now() + SLICE;
            let until = deadline.map_or(slice, |deadline| deadline.min(slice));
            match self.destination.send_deadline(message, until) {
                Ok(()) => return Ok(()),
                Err(SendError::Timeout)
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) =>
                {
                    return Err(ConnectionError::TimedOut { peer: self.peer().clone() });
                }
                Err(SendError::Timeout) => self.countdown = 1,
                Err(why) => return Err(self.explain(why)),
            }
            self.check_destination()?;
        }
    }

    fn compose(&mut self, handler: u8, bytes: &[u8]) -> Result<CacheLineMessage, ConnectionError> {
        self.check_destination()?;
        let header = CacheLineHeader { source: self.source, handler, tag: 0 };
        CacheLineMessage::new(header, bytes)
            .ok_or(ConnectionError::Oversized { bytes: bytes.len(), most: LINE_DATA })
    }

    /// Checks that the name still has this destination: one load per message.
    fn check_destination(&mut self) -> Result<(), ConnectionError> {
        let peer = || self.peer().clone();
        match self.table.lookup(self.name) {
            Ok(destination) if destination.queue == self.queue => {}
            Ok(_) => return Err(ConnectionError::Moved { peer: peer() }),
            Err(TableError::ProcessGone { .. }) => {
                return Err(ConnectionError::Gone { peer: peer() });
            }
            Err(_) => return Err(ConnectionError::Revoked { peer: peer() }),
        }
        self.countdown -= 1;
        if self.countdown != 0 {
            return Ok(());
        }
        self.countdown = CHECK_INTERVAL;
        self.guard.server.receive();
        self.guard.close_error(false, self.peer()).map_or(Ok(()), Err)
    }

    fn explain(&self, why: SendError) -> ConnectionError {
        let peer = self.peer().clone();
        match why {
            SendError::ProcessExited { .. } => ConnectionError::Gone { peer },
            SendError::Closed => {
                self.guard.server.receive();
                let reason = self.guard.close_error(false, &peer);
                reason.unwrap_or(ConnectionError::Closed { peer })
            }
            other => ConnectionError::Unusable { peer, why: other.to_string() },
        }
    }
}
