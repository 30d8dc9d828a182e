//! What can go wrong with append buffers.

use shm::arena::ArenaError;
use shm::process::ProcessError;
use shm::segment::{Offset, SegmentError};

/// Why an append buffer could not be made or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A buffer for no records, or for more than it can hold.
    #[error(
        "a buffer for {records} records of {record_bytes} bytes cannot be made: ask for 1 to {most} records"
    )]
    Size {
        /// How many records were asked for.
        records: u64,
        /// Bytes a record.
        record_bytes: u64,
        /// The most records that can be.
        most: u64,
    },
    /// There is something else at that place.
    #[error(
        "there is no append buffer at {offset}: use the offset that `Buffer::offset` gave, in the same segment"
    )]
    NoBuffer {
        /// Where it was looked for.
        offset: Offset,
    },
    /// Its owner has withdrawn it.
    #[error("the append buffer at {offset} was withdrawn by its owner, process {owner}")]
    Withdrawn {
        /// The buffer.
        offset: Offset,
        /// The number of the process that had made it.
        owner: u32,
    },
    /// As many handles are open as a buffer can have.
    #[error(
        "the append buffer at {offset} has {most} open handles, the most there can be: share one among threads"
    )]
    TooManyHandles {
        /// The buffer.
        offset: Offset,
        /// How many there can be.
        most: usize,
    },
    /// The arena has no room for it.
    #[error("no room for an append buffer: {0}")]
    Arena(#[from] ArenaError),
    /// The place does not lie in the segment.
    #[error("an append buffer cannot lie there: {0}")]
    Segment(#[from] SegmentError),
    /// This process cannot name itself to the others.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// Why a record was not appended. It was not appended in part either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The record is longer than the buffer's records can be.
    #[error(
        "a record of {bytes} bytes is too long for the append buffer at {buffer}: its records have {most} at most"
    )]
    TooLong {
        /// The buffer.
        buffer: Offset,
        /// The length of the record in bytes.
        bytes: usize,
        /// The most bytes.
        most: u64,
    },
    /// The owner has not made room yet.
    #[error("the append buffer at {buffer} is full: its owner has yet to take records out")]
    Full {
        /// The buffer.
        buffer: Offset,
    },
    /// The deadline passed before there was room.
    #[error("the append buffer at {buffer} stayed full until the deadline")]
    DeadlinePassed {
        /// The buffer.
        buffer: Offset,
    },
    /// The owner has withdrawn the buffer.
    #[error("the append buffer at {buffer} was withdrawn by its owner, process {owner}")]
    Withdrawn {
        /// The buffer.
        buffer: Offset,
        /// The number of the process that had made it.
        owner: u32,
    },
    /// The owner has ended.
    #[error(
        "the append buffer at {buffer} is full for good: its owner, process {owner}, has ended"
    )]
    OwnerGone {
        /// The buffer.
        buffer: Offset,
        /// The number that the process had.
        owner: u32,
    },
}
