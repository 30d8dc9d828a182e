//! A ring of pieces from one rank to another.

use super::words::{self, PieceState};
use crate::error::Error;
use shm::mapped::{Mapped, MappedSlice};
use shm::memory::SegmentMemory;
use shm::segment::Offset;
use shm::sync::{AtomicU64, Ordering};

shm::shared_lines! {
    /// Number of pieces that the receiver has taken in all.
    struct TakenLine {
        taken: AtomicU64,
    }

    /// The piece at a position of the ring.
    struct PieceLine {
        /// See [`words`].
        tag: AtomicU64,
        /// Length and position of its message.
        message: AtomicU64,
        /// Tag of its message.
        message_tag: AtomicU64,
    }
}

/// Largest piece: long enough to hide the transfer time of a line between cores, short enough for
/// several in a second-level cache.
pub(super) const PIECE_BYTES: u64 = 32 << 10;

/// Description of a message, which the receiver compares with its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamedMessage {
    /// Length in bytes.
    pub(super) bytes: u64,
    /// Number of later messages to the same rank in the same call.
    pub(super) behind: u64,
    /// Tag that distinguishes parallel edges between neighbours.
    pub(super) tag: u64,
}

/// Number of low bits of a message's word that hold its length; the number behind is above them.
const BYTES_BITS: u32 = 48;

/// One rank's end of a ring.
#[derive(Debug)]
pub(super) struct PieceRing {
    memory: SegmentMemory,
    taken: Mapped<TakenLine>,
    pieces: MappedSlice<PieceLine>,
    data: Offset,
    /// The next piece at this end.
    next: u64,
    /// The sender may write pieces below this number. A lower bound, so the receiver's line is read
    /// only when it is reached.
    writable_until: u64,
}

impl PieceRing {
    /// Returns the bytes of a ring with space for `data` bytes.
    pub(super) fn bytes(data: u64) -> u64 {
        64 + data / PIECE_BYTES * 64 + data
    }

    /// Opens the ring at this location. Zeroed memory is an empty ring.
    pub(super) fn new(memory: &SegmentMemory, at: Offset, data: u64) -> Result<Self, Error> {
        let count = data / PIECE_BYTES;
        Ok(PieceRing {
            memory: memory.clone(),
            taken: Mapped::new(memory.segment(), at)?,
            pieces: MappedSlice::new(memory.segment(), Offset(at.0 + 64), count as usize)?,
            data: Offset(at.0 + 64 + count * 64),
            next: 0,
            writable_until: count,
        })
    }

    /// Returns the line and the bytes of the next piece.
    fn next_piece(&self) -> (&PieceLine, Offset) {
        let index = self.next % self.pieces.len() as u64;
        (&self.pieces[index as usize], Offset(self.data.0 + index * PIECE_BYTES))
    }

    /// Returns whether a piece can be written. For the sender.
    pub(super) fn is_writable(&mut self) -> bool {
        // The count of taken pieces only grows, so an old bound is a safe one.
        if self.next == self.writable_until {
            self.writable_until =
                words::writable_until(&self.taken.taken, self.pieces.len() as u64);
        }
        self.next < self.writable_until
    }

    /// Writes a piece. [`is_writable`](Self::is_writable) has returned true.
    pub(super) fn write(
        &mut self,
        bytes: &[u8],
        message: StreamedMessage,
        call: u32,
    ) -> Result<(), Error> {
        let (line, at) = self.next_piece();
        // The position is free, and no other rank writes to this ring.
        self.memory.write(at, bytes)?;
        // Relaxed: `publish` releases the bytes and both words.
        line.message.store(message.behind << BYTES_BITS | message.bytes, Ordering::Relaxed);
        line.message_tag.store(message.tag, Ordering::Relaxed);
        words::publish(&line.tag, self.next, call);
        self.next += 1;
        Ok(())
    }

    /// Returns the state of the next piece. For the receiver.
    pub(super) fn poll(&self, call: u32) -> PieceState {
        words::poll(&self.next_piece().0.tag, self.next, call)
    }

    /// Returns the message of the next piece, which is present.
    pub(super) fn message(&self) -> StreamedMessage {
        // Relaxed: `poll` has acquired the line.
        let line = self.next_piece().0;
        let word = line.message.load(Ordering::Relaxed);
        let tag = line.message_tag.load(Ordering::Relaxed);
        StreamedMessage { bytes: word & ((1 << BYTES_BITS) - 1), behind: word >> BYTES_BITS, tag }
    }

    /// Reads the next piece, which is present, and frees its position.
    pub(super) fn read<R>(
        &mut self,
        length: usize,
        consume: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, Error> {
        let (_, at) = self.next_piece();
        let result = self.memory.inspect(at, length as u64, consume)?;
        // Released after the bytes were consumed: the sender may overwrite them from here on.
        self.next += 1;
        words::release(&self.taken.taken, self.next);
        Ok(result)
    }
}
