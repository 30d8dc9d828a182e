//! Errors of connections.

use crate::basic::Corruption;
use crate::names::{CloseReason, Peer};

/// Reason why a connection cannot be used. After all but the first two it is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The message is too long.
    #[error("a message of {bytes} bytes is too long for a connection: at most {most}")]
    Oversized {
        /// Length of the message.
        bytes: usize,
        /// Largest length.
        most: usize,
    },
    /// The deadline has passed.
    #[error("the deadline has passed before {peer} freed space or sent")]
    TimedOut {
        /// Process at the other end.
        peer: Peer,
    },
    /// The other end has been dropped.
    #[error("{peer} has closed its end of the connection")]
    Closed {
        /// Process at the other end.
        peer: Peer,
    },
    /// The process at the other end has ended.
    #[error("{peer} has ended")]
    Gone {
        /// Process that was at the other end.
        peer: Peer,
    },
    /// The process at the other end is on another node and has ended.
    #[error("the process on another node for which {peer} stands has ended")]
    GoneThere {
        /// Process that stands for the one on the other node.
        peer: Peer,
    },
    /// The process at the other end is on another node, which does not respond any more.
    #[error("{peer} is on another node, whose name server does not respond any more")]
    NodeLost {
        /// Process that stands for the one on the other node.
        peer: Peer,
    },
    /// The right to send here has been revoked.
    #[error("the right to exchange messages with {peer} has been revoked")]
    Revoked {
        /// Process at the other end.
        peer: Peer,
    },
    /// The receive queue has been restricted to other sources.
    #[error("the receive queue does not accept messages between here and {peer}")]
    Refused {
        /// Process at the other end.
        peer: Peer,
    },
    /// The name server has moved the receiving end to another process, or the sender continues on
    /// another connection.
    #[error("messages between here and {peer} continue on another connection")]
    Moved {
        /// Process at the other end.
        peer: Peer,
    },
    /// The other end has written a value that a correct one never writes.
    #[error("{peer} has corrupted the connection: {what}")]
    Corrupt {
        /// Process at the other end.
        peer: Peer,
        /// Invalid value.
        what: Corruption,
    },
    /// The connection's memory is unusable.
    #[error("the connection to {peer} cannot be used: {why}")]
    Unusable {
        /// Process at the other end.
        peer: Peer,
        /// Reason.
        why: String,
    },
}

impl ConnectionError {
    /// Returns true if the connection is closed for good.
    pub fn is_final(&self) -> bool {
        !matches!(self, ConnectionError::Oversized { .. } | ConnectionError::TimedOut { .. })
    }

    /// Returns the error for a connection that the name server has closed.
    pub(super) fn of_close(reason: CloseReason, peer: Peer) -> ConnectionError {
        match reason {
            CloseReason::Revoked => ConnectionError::Revoked { peer },
            CloseReason::Refused => ConnectionError::Refused { peer },
            CloseReason::Gone => ConnectionError::Gone { peer },
            CloseReason::GoneThere => ConnectionError::GoneThere { peer },
            CloseReason::NodeLost => ConnectionError::NodeLost { peer },
            CloseReason::Left => ConnectionError::Closed { peer },
            CloseReason::Replaced => ConnectionError::Moved { peer },
        }
    }
}
