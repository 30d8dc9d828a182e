//! Errors of append buffers.

use shm::segment::Offset;

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
