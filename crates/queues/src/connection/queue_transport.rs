//! Transport of messages through the receive queues of the receiving process.

use super::error::ConnectionError;
use super::job_queues::PeerQueues;
use crate::cache_line::{CacheLineHeader, CacheLineMessage, LINE_DATA};
use crate::error::SendError;
use crate::id::{QueueIndex, SourceName};
use crate::names::Peer;
use crate::receive_queues::QueueSender;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time that a sender waits for space before it checks whether its name still has this destination.
const SLICE: Duration = Duration::from_millis(100);

/// A sender into the receive queue of a port. A port may have ten thousands of them.
#[derive(Debug)]
pub(super) struct QueueTransport {
    destination: QueueSender,
    peer: Arc<PeerQueues>,
    /// The receive queue for which the connection was opened.
    pub(super) queue: QueueIndex,
}

impl QueueTransport {
    pub(super) fn new(
        queue: QueueIndex,
        (peer, destination): (Arc<PeerQueues>, QueueSender),
    ) -> QueueTransport {
        QueueTransport { destination, peer, queue }
    }

    pub(super) fn peer(&self) -> &Peer {
        self.peer.peer()
    }

    /// Composes a message, if it fits into a cache line.
    pub(super) fn compose(
        source: SourceName,
        handler: u8,
        bytes: &[u8],
    ) -> Result<CacheLineMessage, ConnectionError> {
        let header = CacheLineHeader { source, handler, tag: 0 };
        CacheLineMessage::new(header, bytes)
            .ok_or(ConnectionError::Oversized { bytes: bytes.len(), most: LINE_DATA })
    }

    /// Sends a message. Returns false if there is no space.
    pub(super) fn try_send(&mut self, message: &CacheLineMessage) -> Result<bool, SendError> {
        match self.destination.try_send(message) {
            Ok(()) => Ok(true),
            Err(SendError::Full) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits for space for a slice of the time until the deadline. Returns true if the message has
    /// been sent.
    pub(super) fn send_slice(
        &mut self,
        message: &CacheLineMessage,
        deadline: Option<Instant>,
    ) -> Result<bool, SendError> {
        // The receive queue stays mapped and full after the name has moved, and its owner may live on
        // without receiving: so the caller checks the name after every slice.
        let slice = Instant::now() + SLICE;
        let until = deadline.map_or(slice, |deadline| deadline.min(slice));
        match self.destination.send_deadline(message, until) {
            Ok(()) => Ok(true),
            Err(SendError::Timeout)
                if deadline.is_none_or(|deadline| Instant::now() < deadline) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
