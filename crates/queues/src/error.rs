//! Why a queue does not take or give a message.

use shm::arena::ArenaError;
use shm::segment::{Offset, SegmentError};

/// The smallest capacity of a ring, in messages.
pub const MIN_CAPACITY: usize = 2;

/// The largest capacity of a ring, in messages.
pub const MAX_CAPACITY: usize = 1 << 24;

/// What can go wrong when a queue is made or found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// A capacity that no ring has.
    #[error(
        "a queue cannot hold {capacity} messages: take a power of two from {MIN_CAPACITY} to {MAX_CAPACITY}"
    )]
    Capacity {
        /// What was asked for, in messages.
        capacity: usize,
    },
    /// Something else lies there.
    #[error("no {kind} queue lies at {offset}: attach to the offset that its maker gave")]
    NoQueue {
        /// Where it was looked for.
        offset: Offset,
        /// Which kind.
        kind: &'static str,
    },
    /// The queue already has receivers that another receiver would disturb.
    #[error(
        "the queue at {offset} has a receiver that the new one cannot share it with: drop that one first"
    )]
    Held {
        /// The queue.
        offset: Offset,
    },
    /// The poll set has fewer queues.
    #[error("the poll set at {offset} has {capacity} queues, so none of index {index}")]
    NoMember {
        /// The set.
        offset: Offset,
        /// How many queues it has.
        capacity: usize,
        /// What was asked for.
        index: usize,
    },
    /// The segment has no such place.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// No memory is left.
    #[error(transparent)]
    Arena(#[from] ArenaError),
}

/// Why a message was not sent. The message is still the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// Every slot holds a message that has not been received.
    #[error(
        "the receive queue is full: its receiver is behind; wait for it or make the queue larger"
    )]
    Full,
    /// The queue takes nothing any more: it was closed, or its ring now belongs to another queue.
    #[error("the receive queue is closed: look its name up again")]
    Closed,
    /// A word that no sender or receiver writes.
    #[error(
        "the receive queue holds a word that no sender or receiver writes: another program wrote over its memory"
    )]
    Broken,
    /// The process that received has ended without closing its queues. Only queues that know it say
    /// so: those of the [receive queues](crate::receive_queues) of a process.
    #[error("process {pid}, which received from the queue, has ended")]
    #[allow(dead_code, reason = "the models under loom know no processes")]
    Gone {
        /// Its number.
        pid: u32,
    },
    /// The rank that received has gone, says who is asked (see the page `departures`).
    #[error("rank {rank}, which received from the queue, has gone")]
    #[allow(dead_code, reason = "the models under loom know no ranks")]
    Departed {
        /// Which.
        rank: u32,
    },
}

/// Why there will be no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The queue was closed and everything sent to it has been received.
    #[error("the receive queue is closed and everything sent to it has been received")]
    Closed,
    /// A word that no sender or receiver writes.
    #[error(
        "the receive queue holds a word that no sender or receiver writes: another program wrote over its memory"
    )]
    Broken,
    /// A rank that might have sent has failed, or the last of them has left, says who is asked (see
    /// the page `departures`).
    #[error("rank {rank}, which might have sent to the queue, has gone")]
    #[allow(dead_code, reason = "the models under loom know no ranks")]
    Departed {
        /// Which.
        rank: u32,
    },
}
