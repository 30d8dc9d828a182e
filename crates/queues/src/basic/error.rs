//! Errors of Basic rings.

use super::ring::{Corruption, MAX_LINES, MIN_LINES};
use shm::segment::SegmentError;

/// Error of a Basic ring.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BasicError {
    /// The number of lines is not supported.
    #[error(
        "a ring cannot have {lines} lines: choose a power of two from {} to {}",
        MIN_LINES,
        MAX_LINES
    )]
    Lines {
        /// Requested number of lines.
        lines: u64,
    },
    /// The ring does not lie in the segment.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The message is too long for this ring.
    #[error("a message of {bytes} bytes is too long: this ring's messages have at most {most}")]
    Oversized {
        /// Size of the message.
        bytes: usize,
        /// Maximum size.
        most: usize,
    },
    /// The other end has been dropped.
    #[error("the other end of the ring has been closed")]
    Closed,
    /// The deadline passed.
    #[error("the deadline passed before the other end of the ring acted")]
    TimedOut,
    /// The watched process has ended without closing its end.
    #[error("process {pid} at the other end of the ring has ended")]
    PeerGone {
        /// Process number.
        pid: u32,
    },
    /// The memory of the ring holds words that neither end writes.
    #[error("the ring is corrupt: {0}")]
    Corrupt(#[from] Corruption),
    /// The poll set does not lie in the segment of the ring, or has no such index.
    #[error("the ring cannot join the poll set: {0}")]
    NotInSet(#[from] crate::error::CreateError),
}
