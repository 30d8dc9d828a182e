//! Buffers that the agent uses where they lie, in the memory that it shares with the rank.
//!
//! Long messages are not copied to the agent and back. A rank that changes a borrowed buffer during
//! the run corrupts its own messages and nothing else.

use interpreter::ExternalBuffer;
use shm::segment::{Offset, Segment};
use shm::word_copy;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that fit a first-level cache.
const STRIDE: usize = 8 << 10;

/// A buffer of a run. Keeps the memory mapped, also after the rank has exited.
#[derive(Debug)]
pub(super) struct BorrowedBuffer {
    segment: Arc<Segment>,
    at: Offset,
    length: u64,
}

impl BorrowedBuffer {
    /// Borrows `length` bytes of a rank's region, which the caller has checked to lie inside it.
    pub(super) fn new(segment: Arc<Segment>, at: Offset, length: u64) -> Self {
        BorrowedBuffer { segment, at, length }
    }
}

impl ExternalBuffer for BorrowedBuffer {
    fn length(&self) -> u64 {
        self.length
    }

    fn read(&self, range: Range<u64>, into: &mut Vec<u8>) {
        let mut piece = [0; STRIDE];
        let mut at = range.start;
        while at < range.end {
            let bytes = &mut piece[..STRIDE.min((range.end - at) as usize)];
            // The range lies inside the region, so this cannot fail.
            let read = word_copy::load(&self.segment, Offset(self.at.0 + at), bytes);
            debug_assert!(read.is_ok(), "{read:?}");
            into.extend_from_slice(bytes);
            at += bytes.len() as u64;
        }
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        let written = word_copy::store(&self.segment, Offset(self.at.0 + at), bytes);
        debug_assert!(written.is_ok(), "{written:?}");
    }
}
