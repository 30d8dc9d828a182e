//! Positions of a queue, read from outside the job.

use shm::segment::{Offset, SegmentReader};

/// Positions of a queue at one moment, as far as its memory has them. Any process may have written
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Positions {
    /// Largest number of messages in the queue.
    pub(crate) capacity: u64,
    /// Number of messages sent since the creation; `None` if only the senders have it.
    pub(crate) sent: Option<u64>,
    /// Number of messages received since the creation.
    pub(crate) received: u64,
}

/// Reads the word `skip` bytes behind an object's beginning.
pub(crate) fn word_behind(segment: &SegmentReader, at: Offset, skip: usize) -> Option<u64> {
    let [word] = segment.words(Offset(at.0.checked_add(skip as u64)?))?;
    Some(word)
}
