//! Errors of queues.

#[allow(unused_imports, reason = "the loom models create no queues")]
pub use shm::object::CreateError;

/// Smallest capacity of a queue, in messages.
pub const MIN_CAPACITY: usize = 2;

/// Largest capacity of a queue, in messages.
pub const MAX_CAPACITY: usize = 1 << 24;

/// Error of a send operation. The message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The queue is full.
    #[error(
        "the receive queue is full: its receiver is behind; wait for it or make the queue larger"
    )]
    Full,
    /// There was no free space before the deadline.
    #[error("the receive queue stayed full until the deadline: its receiver is behind")]
    #[allow(dead_code, reason = "the loom models have no clock")]
    Timeout,
    /// The message exceeds the maximum size.
    #[error("the message is too long: this queue's messages have at most {max} bytes")]
    #[allow(dead_code, reason = "the loom models send short messages")]
    TooLong {
        /// Maximum size in bytes.
        max: u32,
    },
    /// The queue was closed, or its memory now holds another queue.
    #[error("the receive queue is closed: look its name up again")]
    Closed,
    /// The memory of the queue holds a word that no sender or receiver writes.
    #[error("the receive queue is corrupt: another program has overwritten its memory")]
    Broken,
    /// The receiving process has ended without closing its queues. Reported only by queues that
    /// record it, such as [receive queues](crate::receive_queues).
    #[error("process {pid}, which received from the queue, has ended")]
    #[allow(dead_code, reason = "the loom models have no processes")]
    Gone {
        /// Process number.
        pid: u32,
    },
    /// The receiving rank has left or failed (see [`shm::liveness::RankLiveness`]).
    #[error("rank {rank}, which received from the queue, has left or failed")]
    #[allow(dead_code, reason = "the loom models have no ranks")]
    Departed {
        /// Its rank.
        rank: u32,
    },
}

/// Error of a receive operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The queue is closed and everything sent to it has been received.
    #[error("the receive queue is closed and everything sent to it has been received")]
    Closed,
    /// The memory of the queue holds a word that no sender or receiver writes.
    #[error("the receive queue is corrupt: another program has overwritten its memory")]
    Broken,
    /// A sending rank has failed, or the last one has left (see [`shm::liveness::RankLiveness`]).
    #[error("rank {rank}, which might have sent to the queue, has left or failed")]
    #[allow(dead_code, reason = "the loom models have no ranks")]
    Departed {
        /// Its rank.
        rank: u32,
    },
}
