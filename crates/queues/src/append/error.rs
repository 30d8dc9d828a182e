//! Errors of append buffers.

use shm::arena::ArenaError;
use shm::process::ProcessError;
use shm::segment::{Offset, SegmentError};

/// Error of creating or connecting to an append buffer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The requested size is not supported.
    #[error(
        "a buffer for {records} records of {record_bytes} bytes cannot be created: choose 1 to \
         {most} records"
    )]
    Size {
        /// Requested number of records.
        records: u64,
        /// Requested bytes per record.
        record_bytes: u64,
        /// Maximum number of records.
        most: u64,
    },
    /// No append buffer lies at the offset.
    #[error(
        "there is no append buffer at {offset}: connect to the offset that `Receiver::offset` \
         returned, in the same segment"
    )]
    NoBuffer {
        /// Requested offset.
        offset: Offset,
    },
    /// Its owner has withdrawn it.
    #[error("the append buffer at {offset} was withdrawn by its owner, process {owner}")]
    Withdrawn {
        /// Offset of the buffer.
        offset: Offset,
        /// Process number of the owner.
        owner: u32,
    },
    /// The number of connected senders is at its maximum.
    #[error(
        "the append buffer at {offset} has {most} connected senders, the maximum: share one among \
         threads"
    )]
    TooManyHandles {
        /// Offset of the buffer.
        offset: Offset,
        /// Maximum number of senders.
        most: usize,
    },
    /// The arena has no memory left.
    #[error("no memory for an append buffer: {0}")]
    Arena(#[from] ArenaError),
    /// The buffer does not lie in the segment.
    #[error("an append buffer cannot lie there: {0}")]
    Segment(#[from] SegmentError),
    /// The identity of this process is unavailable.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// Error of appending a record. No part of the record was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The record exceeds the maximum size.
    #[error(
        "a record of {bytes} bytes is too long for the append buffer at {buffer}: its records have \
         {most} at most"
    )]
    TooLong {
        /// Offset of the buffer.
        buffer: Offset,
        /// Size of the record in bytes.
        bytes: usize,
        /// Maximum size in bytes.
        most: u64,
    },
    /// The buffer is full.
    #[error("the append buffer at {buffer} is full: its owner has not received enough records")]
    Full {
        /// Offset of the buffer.
        buffer: Offset,
    },
    /// The deadline passed before space was free.
    #[error("the append buffer at {buffer} stayed full until the deadline")]
    DeadlinePassed {
        /// Offset of the buffer.
        buffer: Offset,
    },
    /// The owner has withdrawn the buffer.
    #[error("the append buffer at {buffer} was withdrawn by its owner, process {owner}")]
    Withdrawn {
        /// Offset of the buffer.
        buffer: Offset,
        /// Process number of the owner.
        owner: u32,
    },
    /// The owner has ended.
    #[error("the append buffer at {buffer} remains full: its owner, process {owner}, has ended")]
    OwnerGone {
        /// Offset of the buffer.
        buffer: Offset,
        /// Process number of the owner.
        owner: u32,
    },
}
