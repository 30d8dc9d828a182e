//! Errors of connections.

use crate::wire::{CloseReason, Peer};
use queues::basic::Corruption;

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
    /// The receiver excludes the sender.
    #[error("{peer} excludes this program, or is excluded here")]
    Refused {
        /// Process at the other end.
        peer: Peer,
    },
    /// The name has another destination now, and everything that was sent before has been received.
    #[error("the name of {peer} has another destination")]
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
    /// Returns the process at the other end, if the error is one of the connection.
    pub(crate) fn peer(&self) -> Option<&Peer> {
        match self {
            ConnectionError::Oversized { .. } => None,
            ConnectionError::TimedOut { peer }
            | ConnectionError::Closed { peer }
            | ConnectionError::Gone { peer }
            | ConnectionError::GoneThere { peer }
            | ConnectionError::NodeLost { peer }
            | ConnectionError::Refused { peer }
            | ConnectionError::Moved { peer }
            | ConnectionError::Corrupt { peer, .. }
            | ConnectionError::Unusable { peer, .. } => Some(peer),
        }
    }

    /// Returns true if the connection is closed for good.
    pub fn is_final(&self) -> bool {
        !matches!(self, ConnectionError::Oversized { .. } | ConnectionError::TimedOut { .. })
    }

    /// Returns the error for a connection that the name server has closed.
    pub(super) fn of_close(reason: CloseReason, peer: Peer) -> ConnectionError {
        match reason {
            CloseReason::Refused => ConnectionError::Refused { peer },
            CloseReason::Gone => ConnectionError::Gone { peer },
            CloseReason::GoneThere => ConnectionError::GoneThere { peer },
            CloseReason::NodeLost => ConnectionError::NodeLost { peer },
            CloseReason::Left => ConnectionError::Closed { peer },
        }
    }
}
