//! The sending end of a connection, over a ring or through receive queues.

use super::error::ConnectionError;
use super::queue_transport::QueueTransport;
use super::sender::Sender;
use std::time::Instant;

/// The sending end of a connection. A port may have ten thousands of them, most of them through
/// receive queues.
#[derive(Debug)]
pub(crate) enum Transport {
    Ring(Box<Sender>),
    Queue(QueueTransport),
}

/// Bound of the time that a send blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SendLimit {
    /// The send does not block.
    Immediate,
    /// The send blocks until the deadline; without one, until there is space.
    Until(Option<Instant>),
}

impl Transport {
    /// Sends a message. Returns false if there is no space and the limit is immediate.
    pub(crate) fn send(
        &mut self,
        handler: u8,
        bytes: &[u8],
        limit: SendLimit,
    ) -> Result<bool, ConnectionError> {
        match (self, limit) {
            (Transport::Ring(ring), SendLimit::Immediate) => ring.try_send(handler, bytes),
            (Transport::Ring(ring), SendLimit::Until(deadline)) => {
                ring.send_before(handler, bytes, deadline).map(|()| true)
            }
            (Transport::Queue(queue), SendLimit::Immediate) => queue.try_send(handler, bytes),
            (Transport::Queue(queue), SendLimit::Until(deadline)) => {
                queue.send_before(handler, bytes, deadline).map(|()| true)
            }
        }
    }

    /// Returns true if the messages pass through receive queues.
    pub(crate) fn is_queue(&self) -> bool {
        matches!(self, Transport::Queue(_))
    }

    /// Returns true if the name has another destination now.
    pub(crate) fn is_outdated(&self) -> bool {
        match self {
            Transport::Ring(ring) => ring.is_outdated(),
            Transport::Queue(queue) => queue.is_outdated(),
        }
    }

    /// Drops the end for another connection to the same name, which carries the next message.
    pub(crate) fn replace(self) {
        if let Transport::Queue(mut queue) = self {
            queue.mark_replaced();
        }
    }
}
