//! Pieces from one rank to another.

use super::words::{self, Found};
use crate::error::Error;
use shm::mapped::{Mapped, MappedSlice};
use shm::memory::SegmentMemory;
use shm::segment::Offset;
use shm::sync::{AtomicU64, Ordering};

shm::shared_lines! {
    /// How many pieces the receiver has taken, in all.
    struct TakenLine {
        taken: AtomicU64,
    }

    /// Which piece lies in a place of the ring.
    struct PieceLine {
        stamp: AtomicU64,
        /// The message that the piece belongs to.
        message: AtomicU64,
        /// And its tag.
        tag: AtomicU64,
    }
}

/// The longest piece: long enough that a line's way from core to core does not count, short enough
/// for several to lie in a first cache's neighbour.
pub(super) const PIECE_BYTES: u64 = 32 << 10;

/// What a receiver is told of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Its length.
    pub(super) bytes: u64,
    /// How many messages to the same rank follow in the same call.
    pub(super) behind: u64,
    /// What tells parallel edges between neighbours apart.
    pub(super) tag: u64,
}

/// A message's word has the number behind above its bytes.
const BYTES_BITS: u32 = 48;

/// One side's view of a ring.
#[derive(Debug)]
pub(super) struct PieceRing {
    memory: SegmentMemory,
    taken: Mapped<TakenLine>,
    pieces: MappedSlice<PieceLine>,
    data: Offset,
    /// This side's next piece.
    next: u64,
    /// As far as the sender has seen.
    room_until: u64,
}

impl PieceRing {
    /// Bytes of a ring that holds `data` bytes.
    pub(super) fn bytes(data: u64) -> u64 {
        64 + data / PIECE_BYTES * 64 + data
    }

    /// The ring at this place. Zeroed memory is an empty one.
    pub(super) fn new(memory: &SegmentMemory, at: Offset, data: u64) -> Result<Self, Error> {
        let count = data / PIECE_BYTES;
        Ok(PieceRing {
            memory: memory.clone(),
            taken: Mapped::new(memory.segment(), at)?,
            pieces: MappedSlice::new(memory.segment(), Offset(at.0 + 64), count as usize)?,
            data: Offset(at.0 + 64 + count * 64),
            next: 0,
            room_until: count,
        })
    }

    fn place(&self) -> (&PieceLine, Offset) {
        let index = self.next % self.pieces.len() as u64;
        (&self.pieces[index as usize], Offset(self.data.0 + index * PIECE_BYTES))
    }

    /// Whether there is room for a piece. For the sender.
    pub(super) fn has_room(&mut self) -> bool {
        if self.next == self.room_until {
            self.room_until = words::room_until(&self.taken.taken, self.pieces.len() as u64);
        }
        self.next < self.room_until
    }

    /// Puts a piece where there is room.
    pub(super) fn put(&mut self, bytes: &[u8], message: Message, call: u32) -> Result<(), Error> {
        let (line, at) = self.place();
        self.memory.write(at, bytes)?;
        line.message.store(message.behind << BYTES_BITS | message.bytes, Ordering::Relaxed);
        line.tag.store(message.tag, Ordering::Relaxed);
        words::publish(&line.stamp, self.next, call);
        self.next += 1;
        Ok(())
    }

    /// What lies where the next piece is to be. For the receiver.
    pub(super) fn look(&self, call: u32) -> Found {
        words::look(&self.place().0.stamp, self.next, call)
    }

    /// The message that the piece which [`look`](Self::look) has found belongs to.
    pub(super) fn message(&self) -> Message {
        // Ordered by the look.
        let line = self.place().0;
        let word = line.message.load(Ordering::Relaxed);
        let tag = line.tag.load(Ordering::Relaxed);
        Message { bytes: word & ((1 << BYTES_BITS) - 1), behind: word >> BYTES_BITS, tag }
    }

    /// Uses the piece that [`look`](Self::look) has found and gives its place back.
    pub(super) fn take<R>(
        &mut self,
        length: usize,
        use_them: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, Error> {
        let (_, at) = self.place();
        let result = self.memory.inspect(at, length as u64, use_them)?;
        self.next += 1;
        words::give_back(&self.taken.taken, self.next);
        Ok(result)
    }
}
