//! A ring of pieces from one rank to another.

use super::passed_buffers::BufferPlace;
use super::words::{self, PieceState};
use crate::error::{Error, Outcome};
use shm::mapped::{Mapped, MappedSlice};
use shm::memory::{Purpose, SegmentMemory};
use shm::part_claims::PartClaims;
use shm::prefetch::{populate, prefetch};
use shm::process_memory::GuardValue;
use shm::segment::Offset;
use shm::sync::{AtomicU64, Ordering};

shm::shared_lines! {
    /// Number of positions that the receiver has taken in all.
    struct TakenLine {
        taken: AtomicU64,
        /// Outcome of the last offered message, a [`OfferOutcome`]. Published by `taken`.
        outcome: AtomicU64,
    }

    /// An offered message that both ends copy.
    struct JointLine {
        parts: PartClaims,
        /// Position behind the message that the receiver has joined. Publishes `target`.
        joined: AtomicU64,
        /// Address of the receiver's buffer in its own memory, and address and value of its guard.
        target: [AtomicU64; 3],
    }

    /// The piece that begins at a position of the ring.
    struct PieceLine {
        /// See [`words`].
        tag: AtomicU64,
        /// Length and position of its message.
        message: AtomicU64,
        /// Tag of its message.
        message_tag: AtomicU64,
        /// The piece itself, if it is this short: it arrives with its tag. Of a piece in a buffer,
        /// the buffer's number. Of an offered message, the address, and address and value of the
        /// guard.
        short: [AtomicU64; SHORT_WORDS],
    }
}

/// Bytes before the lines of the positions.
const HEADER_BYTES: u64 = (size_of::<TakenLine>() + size_of::<JointLine>()) as u64;

/// Number of words of a line that hold a short piece.
const SHORT_WORDS: usize = 5;

/// Length of the longest piece that lies in its line, in bytes.
const SHORT_BYTES: usize = SHORT_WORDS * size_of::<u64>();

/// Distance of the positions of a ring. Every position has a tag line; a piece takes as many
/// positions as it needs and uses the line of the first. Pieces lie behind one another, whatever
/// their length: a stream of short pieces at a distance of 32 KiB took four times as long, because
/// the processors prefetch what lies behind.
const POSITION_BYTES: u64 = 4 << 10;

/// Description of a message, which the receiver compares with its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamedMessage {
    /// Length in bytes.
    pub(super) bytes: u64,
    /// Number of later messages to the same rank in the same call, in as many bits as a message's
    /// word has for it.
    pub(super) behind: u64,
    /// Tag that distinguishes parallel edges between neighbours.
    pub(super) tag: u64,
}

impl StreamedMessage {
    pub(super) fn new(bytes: u64, behind: u64, tag: u64) -> Self {
        // Lists of neighbours may have more parallel edges than the bits above the length count.
        StreamedMessage { bytes, behind: behind & (u64::MAX >> BYTES_BITS), tag }
    }
}

/// Number of low bits of a message's word that hold its length; the number behind is above them.
const BYTES_BITS: u32 = 48;

/// The bit of a message's word that marks an offered message. No address space has as many bytes.
const OFFERED: u64 = 1 << (BYTES_BITS - 1);

/// The bit of a message's word that marks a piece in a buffer: see
/// [`PassedBuffers`](super::passed_buffers::PassedBuffers). No message has as many bytes.
const IN_BUFFER: u64 = 1 << (BYTES_BITS - 2);

/// A message in the private memory of its sender, or the memory of its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RemoteBuffer {
    /// Address of the bytes in their process.
    pub(super) address: u64,
    /// The process's guard, and its value while the memory is offered.
    pub(super) guard: GuardValue,
}

impl RemoteBuffer {
    /// Writes the words. The caller publishes them.
    fn store(self, words: &[AtomicU64]) {
        let own = [self.address, self.guard.address, self.guard.generation];
        own.into_iter().zip(words).for_each(|(own, word)| word.store(own, Ordering::Relaxed));
    }

    /// Reads the words. The caller has acquired their publication.
    fn load(words: &[AtomicU64]) -> Self {
        let word = |number: usize| words.get(number).map_or(0, |word| word.load(Ordering::Relaxed));
        let guard = GuardValue { address: word(1), generation: word(2) };
        RemoteBuffer { address: word(0), guard }
    }
}

/// State of an offered message, for its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfferState {
    /// The receiver has not read it.
    Pending,
    /// The receiver has passed it.
    Over(OfferOutcome),
}

/// Outcome of an offered message, for its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfferOutcome {
    /// It has been read.
    Read = 0,
    /// It is not, or not readable, where the sender has offered it.
    NotThere = 1,
    /// The kernel refuses access to the sender's memory.
    Refused = 2,
}

/// One rank's end of a ring.
#[derive(Debug)]
pub(super) struct PieceRing {
    memory: SegmentMemory,
    taken: Mapped<TakenLine>,
    joint: Mapped<JointLine>,
    lines: MappedSlice<PieceLine>,
    data: Offset,
    /// The position where the next piece at this end begins, among all since the ring was created.
    pub(super) next: u64,
    /// `next` modulo the number of positions.
    index: u64,
    /// The sender may use positions below this number. A lower bound, so the receiver's line is
    /// read only when it is reached.
    writable_until: u64,
    /// The receiver has not refused to read the sender's private memory. For the sender.
    pub(super) takes_offers: bool,
}

impl PieceRing {
    /// Returns the bytes of a ring with space for `data` bytes.
    pub(super) fn bytes(data: u64) -> u64 {
        HEADER_BYTES + data / POSITION_BYTES * 64 + data
    }

    /// Opens the ring at this location. Zeroed memory is an empty ring.
    pub(super) fn new(memory: &SegmentMemory, at: Offset, data: u64) -> Result<Self, Error> {
        let count = data / POSITION_BYTES;
        // Otherwise the first piece in each position would pay for page faults, which take longer
        // than a short piece.
        populate(memory.segment(), at, Self::bytes(data));
        let lines_at = Offset(at.0 + HEADER_BYTES);
        Ok(PieceRing {
            memory: memory.clone(),
            taken: Mapped::new(memory.segment(), at)?,
            joint: Mapped::new(memory.segment(), Offset(at.0 + size_of::<TakenLine>() as u64))?,
            lines: MappedSlice::new(memory.segment(), lines_at, count as usize)?,
            data: Offset(lines_at.0 + count * 64),
            next: 0,
            index: 0,
            writable_until: count,
            takes_offers: true,
        })
    }

    /// Number of positions of the ring.
    fn positions(&self) -> u64 {
        self.lines.len() as u64
    }

    /// Length of the longest piece, in bytes.
    pub(super) fn longest_piece(&self) -> usize {
        Self::longest_piece_of(self.positions() * POSITION_BYTES) as usize
    }

    /// Length of the longest piece of a ring with space for `data` bytes: a quarter of the ring, so
    /// a sender seldom waits for the receiver.
    pub(super) fn longest_piece_of(data: u64) -> u64 {
        data / POSITION_BYTES / 4 * POSITION_BYTES
    }

    /// Returns the line and the bytes of the next piece.
    fn next_piece(&self) -> (&PieceLine, Offset) {
        (&self.lines[self.index as usize], Offset(self.data.0 + self.index * POSITION_BYTES))
    }

    /// Returns the position behind the next piece, which has `length` bytes.
    fn behind(&self, length: usize) -> u64 {
        let taken = (length as u64).div_ceil(POSITION_BYTES).max(1);
        // No piece passes the end of the ring. Where the longest would, the next one begins at the
        // start; this does not depend on its length, so a receiver that expects another length
        // looks at the same line and finds the difference.
        let left = self.positions() - self.index - taken;
        let is_last = left * POSITION_BYTES < self.longest_piece() as u64;
        self.next + taken + if is_last { left } else { 0 }
    }

    fn advance(&mut self, length: usize) {
        let behind = self.behind(length);
        self.index += behind - self.next;
        if self.index == self.positions() {
            self.index = 0;
        }
        self.next = behind;
    }

    /// Returns whether this end has begun another quarter of the ring since it was at position
    /// `before`.
    pub(super) fn has_passed_quarter(&self, before: u64) -> bool {
        // Without a division: the number of positions is a power of two.
        (self.next ^ before) & !(self.positions() / 4 - 1) != 0
    }

    /// Returns whether a piece of this length can be written. For the sender.
    pub(super) fn is_writable(&mut self, length: usize) -> bool {
        let behind = self.behind(length);
        // The count of taken positions only grows, so an old bound is a safe one.
        if behind > self.writable_until {
            self.writable_until = words::writable_until(&self.taken.taken, self.positions());
        }
        behind <= self.writable_until
    }

    /// Writes a piece, to the ring or to a buffer that this rank has.
    /// [`is_writable`](Self::is_writable) has returned true for its length, or for 0.
    pub(super) fn write(
        &mut self,
        bytes: &[u8],
        message: StreamedMessage,
        call: u32,
        place: Option<BufferPlace>,
    ) -> Outcome {
        let (line, at) = self.next_piece();
        // The positions are free, and no other rank writes to this ring or to this rank's buffers.
        // Relaxed: `publish` releases the bytes and all words.
        let mut in_buffer = 0;
        let mut length = bytes.len();
        if let Some(place) = place {
            self.memory.write(place.at, bytes)?;
            line.short[0].store(u64::from(place.number), Ordering::Relaxed);
            in_buffer = IN_BUFFER;
            length = 0;
        } else if length > SHORT_BYTES {
            self.memory.write(at, bytes)?;
        } else {
            // Whole arrays, because a copy of unknown length costs a call of `memmove`.
            let (words, tail) = bytes.as_chunks();
            let mut places = line.short.iter();
            for (word, place) in words.iter().zip(places.by_ref()) {
                place.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            }
            if !tail.is_empty()
                && let Some(place) = places.next()
            {
                let mut word = [0; size_of::<u64>()];
                word[..tail.len()].copy_from_slice(tail);
                place.store(u64::from_ne_bytes(word), Ordering::Relaxed);
            }
        }
        let word = message.behind << BYTES_BITS | in_buffer | message.bytes;
        line.message.store(word, Ordering::Relaxed);
        line.message_tag.store(message.tag, Ordering::Relaxed);
        words::publish(&line.tag, self.next, call);
        self.advance(length);
        self.prefetch_next(length);
        Ok(())
    }

    /// Prefetches the place of the next piece, as long as this one as a rule, for writing. The
    /// receiver, or the cache that all share, has its lines. They come while this rank waits, where
    /// the stores of the next call would wait for them.
    #[inline]
    fn prefetch_next(&self, length: usize) {
        /// Of a longer piece the rest comes in time: the processor prefetches in a long copy.
        const LONGEST: u64 = 8 << 10;
        let (line, at) = self.next_piece();
        prefetch((&raw const *line).cast(), size_of::<PieceLine>(), Purpose::Write);
        if length > SHORT_BYTES {
            // Only a hint: the place lies in the ring, where the piece itself will be written.
            let _ = self.memory.prefetch(at, (length as u64).min(LONGEST), Purpose::Write);
        }
    }

    /// Offers a whole message, which takes one position. [`is_writable`](Self::is_writable) has
    /// returned true for a length of 0.
    pub(super) fn offer(&mut self, offered: RemoteBuffer, message: StreamedMessage, call: u32) {
        // The receiver has taken the message that was offered before, so no rank uses the claims.
        self.joint.parts.reset();
        let line = self.next_piece().0;
        // Relaxed: `publish` releases all words, and the bytes of the message with them.
        offered.store(&line.short);
        let word = message.behind << BYTES_BITS | OFFERED | message.bytes;
        line.message.store(word, Ordering::Relaxed);
        line.message_tag.store(message.tag, Ordering::Relaxed);
        words::publish(&line.tag, self.next, call);
        self.advance(0);
    }

    /// Returns the state of the message that was offered last. No other piece follows it until the
    /// receiver has taken it. For the sender.
    pub(super) fn offer_state(&self) -> OfferState {
        if !words::are_taken(&self.taken.taken, self.next) {
            return OfferState::Pending;
        }
        // Relaxed: the number of taken positions has published it.
        OfferState::Over(match self.taken.outcome.load(Ordering::Relaxed) {
            0 => OfferOutcome::Read,
            1 => OfferOutcome::NotThere,
            _ => OfferOutcome::Refused,
        })
    }

    /// Returns the receiver's buffer, if the receiver has joined the copy of the message that was
    /// offered last. For the sender.
    pub(super) fn joined_target(&self) -> Option<RemoteBuffer> {
        // Acquire: pairs with the Release in `join`. Relaxed: `joined` publishes the target.
        let is_joined = self.joint.joined.load(Ordering::Acquire) == self.next;
        is_joined.then(|| RemoteBuffer::load(&self.joint.target))
    }

    /// Lets the sender take part in the copy of the next message, which is offered, to this buffer.
    /// For the receiver.
    pub(super) fn join(&self, target: RemoteBuffer) {
        // `joined` publishes it.
        target.store(&self.joint.target);
        // Release: pairs with the Acquire in `joined_target`.
        self.joint.joined.store(self.behind(0), Ordering::Release);
    }

    /// Returns the parts of an offered message that both ends copy.
    pub(super) fn parts(&self) -> &PartClaims {
        &self.joint.parts
    }

    /// Returns the next message, which is present, if it is offered. For the receiver.
    pub(super) fn offered(&self) -> Option<RemoteBuffer> {
        let line = self.next_piece().0;
        // Relaxed: `poll` has acquired the line.
        let is_offered = line.message.load(Ordering::Relaxed) & OFFERED != 0;
        is_offered.then(|| RemoteBuffer::load(&line.short))
    }

    /// Passes the next message, which is offered.
    pub(super) fn pass_offered(&mut self, outcome: OfferOutcome) {
        // Relaxed: the number of taken positions publishes it.
        self.taken.outcome.store(outcome as u64, Ordering::Relaxed);
        // After the last access to the sender's memory: from here on its caller has it back.
        self.advance(0);
        words::release(&self.taken.taken, self.next);
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
        StreamedMessage { bytes: word & (IN_BUFFER - 1), behind: word >> BYTES_BITS, tag }
    }

    /// Returns the number of the buffer of the next piece, which is present, if it lies in one.
    pub(super) fn buffer(&self) -> Option<u64> {
        let line = self.next_piece().0;
        // Relaxed: `poll` has acquired the line.
        let is_in_buffer = line.message.load(Ordering::Relaxed) & IN_BUFFER != 0;
        is_in_buffer.then(|| line.short[0].load(Ordering::Relaxed))
    }

    /// Reads the next piece, which is present, from the ring or this place in a buffer, and frees
    /// its positions.
    pub(super) fn read<R>(
        &mut self,
        length: usize,
        place: Option<BufferPlace>,
        consume: impl FnOnce(&[u8]) -> R,
    ) -> Outcome<R> {
        let (line, at) = self.next_piece();
        let mut in_ring = length;
        let result = if let Some(place) = place {
            in_ring = 0;
            self.memory.inspect(place.at, length as u64, consume)?
        } else if length > SHORT_BYTES {
            self.memory.inspect(at, length as u64, consume)?
        } else {
            // Relaxed: `poll` has acquired the line.
            let words = line.short.each_ref().map(|word| word.load(Ordering::Relaxed));
            consume(&words.map(u64::to_ne_bytes).as_flattened()[..length])
        };
        // Released after the bytes were consumed: the sender may overwrite them from here on.
        self.advance(in_ring);
        words::release(&self.taken.taken, self.next);
        Ok(result)
    }
}
