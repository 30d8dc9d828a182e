//! A rank's buffer, used by the agent where it lies in the memory that both share.
//!
//! A long message would be copied to the agent and back otherwise. The rank may spoil what it has
//! lent, which spoils its own messages and nothing else.

use interpreter::ExternalBuffer;
use shm::segment::{Offset, Segment};
use shm::word_copy;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that go through a first-level cache at once.
const STRIDE: usize = 8 << 10;

/// A buffer of a run. It keeps the memory, whatever becomes of the rank.
#[derive(Debug)]
pub(super) struct LentBuffer {
    segment: Arc<Segment>,
    at: Offset,
    length: u64,
}

impl LentBuffer {
    /// So many bytes of a rank's area, inside which they lie.
    pub(super) fn new(segment: Arc<Segment>, at: Offset, length: u64) -> Self {
        LentBuffer { segment, at, length }
    }
}

impl ExternalBuffer for LentBuffer {
    fn length(&self) -> u64 {
        self.length
    }

    fn read(&self, range: Range<u64>, into: &mut Vec<u8>) {
        let mut piece = [0; STRIDE];
        let mut at = range.start;
        while at < range.end {
            let bytes = &mut piece[..STRIDE.min((range.end - at) as usize)];
            // Inside the area: that was looked at when the run started.
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
