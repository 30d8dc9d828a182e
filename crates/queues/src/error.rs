//! Errors of queues.

use shm::arena::ArenaError;
use shm::segment::{Offset, SegmentError};

/// Smallest capacity of a queue, in messages.
pub const MIN_CAPACITY: usize = 2;

/// Largest capacity of a queue, in messages.
pub const MAX_CAPACITY: usize = 1 << 24;

/// Error of creating or connecting to a queue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The capacity is not supported.
    #[error(
        "a queue cannot hold {capacity} messages: choose a power of two from {MIN_CAPACITY} to \
         {MAX_CAPACITY}"
    )]
    Capacity {
        /// Requested capacity in messages.
        capacity: usize,
    },
    /// No queue of this kind lies at the offset.
    #[error("no {kind} queue lies at {offset}: connect to the offset that its creator returned")]
    NoQueue {
        /// Requested offset.
        offset: Offset,
        /// Kind of queue.
        kind: &'static str,
    },
    /// The queue has receivers that exclude the new one.
    #[error(
        "the queue at {offset} has a receiver that excludes another one: drop that receiver first"
    )]
    Held {
        /// Offset of the queue.
        offset: Offset,
    },
    /// The index exceeds the capacity of the poll set.
    #[error("the poll set at {offset} has {capacity} queues, so none of index {index}")]
    NoMember {
        /// Offset of the poll set.
        offset: Offset,
        /// Capacity of the poll set.
        capacity: usize,
        /// Requested index.
        index: usize,
    },
    /// The range lies outside the segment.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The arena has no memory left.
    #[error(transparent)]
    Arena(#[from] ArenaError),
}

/// Error of a send operation. The message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The queue is full.
    #[error(
        "the receive queue is full: its receiver is behind; wait for it or make the queue larger"
    )]
    Full,
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
