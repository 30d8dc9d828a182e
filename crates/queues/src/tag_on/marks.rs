//! Marks of receivers, by which a sender on another node finds the buffers without a reference.
//!
//! The counts of a buffer do not show which of its receivers has released it, and a receiver that
//! was killed, or headers that were lost with its queue, never change them. So every receiver of a
//! node has a word for each buffer, with the generation that it has opened or released, and one
//! more word: set when it opens no further message. Only that receiver stores them.

use super::references::Generation;

/// Value of the last word of a receiver that opens no further message.
pub(super) const ENDED: u64 = 1;

/// The receiver has opened its message, and may read the buffer.
pub(super) fn opened(generation: Generation) -> u64 {
    u64::from(generation) << 2 | 1
}

/// The receiver does not read the buffer any more.
pub(super) fn released(generation: Generation) -> u64 {
    u64::from(generation) << 2 | 2
}
