//! Errors of queues: one for creating, one for each direction. Messages are copied or borrowed, so
//! an error has nothing to return but the reason; it is as small as a word.

use shm::liveness::PeerExit;
#[allow(unused_imports, reason = "the loom models create no queues")]
pub use shm::object::CreateError;

/// Smallest capacity of a queue, in messages.
pub const MIN_CAPACITY: usize = 2;

/// Largest capacity of a queue, in messages.
pub const MAX_CAPACITY: usize = 1 << 24;

/// Error of a send operation. No part of the message was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(dead_code, reason = "the loom models have no processes, ranks and clock")]
pub enum SendError {
    /// The queue is full.
    #[error(
        "the receive queue is full: its receiver is behind; wait for it or make the queue larger"
    )]
    Full,
    /// There was no free space before the deadline.
    #[error("the receive queue stayed full until the deadline: its receiver is behind")]
    Timeout,
    /// The message exceeds the maximum size.
    #[error("the message is too long: this queue's messages have at most {max} bytes")]
    TooLong {
        /// Maximum size in bytes.
        max: u32,
    },
    /// The receiver has closed the queue, or its memory now holds another queue.
    #[error("the receive queue is closed: look its name up again")]
    Closed,
    /// The receiving process has ended without closing its queue. Reported by queues that record
    /// it.
    #[error("process {pid}, which received from the queue, has ended")]
    ProcessExited {
        /// Process number.
        pid: u32,
    },
    /// The receiving rank has left or failed (see [`shm::liveness::RankLiveness`]).
    #[error("rank {rank}, which received from the queue, has left or failed")]
    RankExited {
        /// Its rank.
        rank: u32,
    },
    /// The node service of this node, which carries messages to other nodes, has ended.
    #[error(
        "the node service, which carries messages to other nodes, has ended: start the job again"
    )]
    NodeServiceEnded,
    /// The memory of the queue holds a word that no sender or receiver writes.
    #[error("the receive queue is corrupt: another program has overwritten its memory")]
    Corrupt,
}

/// Error of a receive operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(dead_code, reason = "the loom models have no processes, ranks and clock")]
pub enum RecvError {
    /// No message has arrived.
    #[error("the receive queue is empty")]
    Empty,
    /// No message arrived before the deadline.
    #[error("no message arrived before the deadline")]
    Timeout,
    /// The queue is closed and everything sent to it has been received.
    #[error("the receive queue is closed and everything sent to it has been received")]
    Closed,
    /// The sending process has ended, and everything that it sent has been received.
    #[error("process {pid}, which sent to the queue, has ended and all of it has been received")]
    ProcessExited {
        /// Process number.
        pid: u32,
    },
    /// A sending rank has failed, or the last one has left (see [`shm::liveness::RankLiveness`]).
    #[error("rank {rank}, which might have sent to the queue, has left or failed")]
    RankExited {
        /// Its rank.
        rank: u32,
    },
    /// The node service of this node, which carries messages from other nodes, has ended.
    #[error(
        "the node service, which carries messages from other nodes, has ended: start the job again"
    )]
    NodeServiceEnded,
    /// The memory of the queue holds a word that no sender or receiver writes.
    #[error("the receive queue is corrupt: another program has overwritten its memory")]
    Corrupt,
}

impl From<PeerExit> for SendError {
    fn from(exit: PeerExit) -> Self {
        match exit {
            PeerExit::Left(rank) | PeerExit::Failed(rank) => SendError::RankExited { rank },
            PeerExit::NodeServiceEnded => SendError::NodeServiceEnded,
        }
    }
}

impl From<PeerExit> for RecvError {
    fn from(exit: PeerExit) -> Self {
        match exit {
            PeerExit::Left(rank) | PeerExit::Failed(rank) => RecvError::RankExited { rank },
            PeerExit::NodeServiceEnded => RecvError::NodeServiceEnded,
        }
    }
}

// The results of the fastest operations are returned in registers.
const _: () = assert!(size_of::<SendError>() <= 8 && size_of::<RecvError>() <= 8);
