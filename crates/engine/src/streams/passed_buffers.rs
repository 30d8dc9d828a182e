//! Buffers that pass between two ranks with the messages in them: the rank that has read a message
//! from one sends a later message in it.
//!
//! The lines of a message lie in the cache of the rank that has read it last. A rank that writes
//! into a ring takes such lines from the other core, one round trip for each, and as many wait for
//! that as the core has buffers for missing lines; into lines that it has read itself it writes at
//! the speed of its own cache. So 256 KiB in alternating directions took 9.4 µs in one buffer, 13.1
//! in rings of 2 MiB, and 14.4 in rings of 256 KiB, with the same copies. Intel MPI does the same:
//! both directions share its buffer.
//!
//! Each buffer belongs to one of the two ranks. Its owner writes one message to it, in pieces; the
//! other rank reads the pieces that are published, and owns the buffer from the last one on. So the
//! pieces pass the buffer, and shared memory has no owner's number. Where all messages have one
//! direction, the receiver soon has all buffers, and the sender uses the ring.

use crate::error::Error;
use shm::memory::SegmentMemory;
use shm::prefetch::populate;
use shm::segment::Offset;
use smallvec::SmallVec;
use std::ops::RangeInclusive;

/// Buffers that each rank of a pair has at first, one for each of two messages in a call. With one,
/// a neighbour exchange of two messages of 256 KiB took 94 µs; with two it took 80, and 87 without.
const EACH: u8 = 2;

/// Length from which a message takes a buffer. At 64 KiB a broadcast took 0.84 times as long with a
/// buffer, but an allreduce 1.11 and an all-to-all 1.05 times.
const LEAST_BYTES: u64 = 128 << 10;

/// The place of a piece in a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferPlace {
    /// Number of the buffer.
    pub(super) number: u8,
    pub(super) at: Offset,
}

/// The buffers of two ranks, as one of them sees them.
#[derive(Debug)]
pub(super) struct PassedBuffers {
    at: Offset,
    /// Bytes of each buffer.
    bytes: u64,
    /// Numbers of this rank's buffers. The last one was read last.
    own: SmallVec<[u8; 2 * EACH as usize]>,
}

impl PassedBuffers {
    /// Returns the bytes of the shared memory of a pair, for messages of so many bytes at most.
    pub(super) fn bytes(longest: u64) -> u64 {
        if longest < LEAST_BYTES { 0 } else { 2 * u64::from(EACH) * longest }
    }

    /// Opens the buffers at this location, of which the pair's first rank has the first ones.
    pub(super) fn new(memory: &SegmentMemory, at: Offset, longest: u64, is_first: bool) -> Self {
        let own = match Self::bytes(longest) {
            0 => 0..0,
            bytes => {
                // As the rings: the first message would pay for page faults.
                populate(memory.segment(), at, bytes);
                if is_first { 0..EACH } else { EACH..2 * EACH }
            }
        };
        PassedBuffers { at, bytes: longest, own: own.collect() }
    }

    /// Lengths of the messages that take a buffer.
    fn lengths(&self) -> RangeInclusive<u64> {
        LEAST_BYTES..=self.bytes
    }

    /// Returns true if this rank has a buffer for a message of so many bytes.
    pub(super) fn has_one_for(&self, message: u64) -> bool {
        self.lengths().contains(&message) && !self.own.is_empty()
    }

    /// Takes the buffer for a message of so many bytes, if this rank has one for it. The other rank
    /// has it from the message's last piece on.
    pub(super) fn take(&mut self, message: u64) -> Option<u8> {
        if self.has_one_for(message) { self.own.pop() } else { None }
    }

    /// Returns the place of a piece that begins at byte `done` of the message in a buffer.
    pub(super) fn place(&self, number: u8, done: usize) -> BufferPlace {
        BufferPlace { number, at: Offset(self.at.0 + u64::from(number) * self.bytes + done as u64) }
    }

    /// Returns the place of a received piece, which begins at byte `done` of a message of so many
    /// bytes.
    ///
    /// # Errors
    /// Returns an error if messages of this length take no buffer, the number is none or that of a
    /// buffer of this rank, or the piece ends behind the message: the sender's memory is corrupt.
    pub(super) fn received_place(
        &self,
        number: u64,
        message: u64,
        (done, piece): (usize, usize),
    ) -> Result<BufferPlace, Error> {
        let number = u8::try_from(number).ok().filter(|number| *number < 2 * EACH);
        let is_inside = self.lengths().contains(&message) && done as u64 + piece as u64 <= message;
        match number.filter(|number| is_inside && !self.own.contains(number)) {
            Some(number) => Ok(self.place(number, done)),
            None => Err(Error::Broken),
        }
    }

    /// Adds a buffer of which this rank has read the whole message.
    pub(super) fn add(&mut self, number: u8) {
        self.own.push(number);
    }

    /// Returns the numbers of this rank's buffers.
    #[cfg(test)]
    pub(super) fn own(&self) -> &[u8] {
        &self.own
    }
}
