//! Protocol of a Basic ring between one sender and one receiver: layout, errors, and the interface
//! for sleeping. The two ends are in `ring_sender.rs` and `ring_receiver.rs`; they use loads, stores and
//! barriers, and no read-modify-write.
//!
//! The ring is a row of cache lines ("transmit and receive queues consist of a cacheable message
//! buffer region", Ang et al. 1996, section 2.2). There is no shared pointer that a message must
//! advance: the first word of its first line, its header word, signals its presence. A message of
//! one line therefore costs the transfer of one line.
//!
//! - **Publishing.** The sender writes the data and the header words of all messages of a batch but
//!   the first with plain stores, and then the first one's header word with a release store: that
//!   one store publishes the whole batch.
//! - **Long messages** occupy several consecutive lines without header words between, so their
//!   bytes are contiguous. A message that does not fit before the end of the ring begins at its
//!   start, after a skip header word. Data where a header word is expected could be mistaken for
//!   one; the sender records such lines and clears the next one before it publishes. For that, and
//!   for the end header word, one line always stays free.
//! - **Credits.** The receiver publishes its position whenever a quarter of the ring has been
//!   released. With messages of at most a quarter, a sender finds space as soon as the receiver has
//!   drained the ring, published or not: at most a quarter is unpublished, less than a quarter is
//!   skipped, one line stays free.
//! - **Sleeping.** Each end stores its state in a word that the other reads after it has published.
//!   A barrier on either side ensures that one of them sees the other's store (store, barrier,
//!   load, on both sides).
//! - **Events and poll sets.** In the same word the receiver requests an event, or states that the
//!   ring is in a poll set; a sender that reads 0 has nothing to do. Requests are numbered, and the
//!   sender keeps the number of the last one it answered, so neither end writes to a word of the
//!   other. Before it sets a bit of a poll set, the sender executes a full fence.
//!
//! The receiver trusts nothing: it loads a header word once and checks it, and
//! `RingReceiver::copy_next` copies the data before any use. The sender checks credits in the same
//! way: an impossible one is an error.

use super::header_word::MAX_BYTES;
use crate::sync::{AtomicU64, Ordering};
use shm::wait::Sleeper;
use shm::wakeup::Armed;
use std::time::Duration;

/// Words of a cache line.
pub const LINE_WORDS: usize = 8;
/// Words before the first line: a pair of lines for each end, because processors fetch lines in
/// pairs.
pub const HEAD_WORDS: usize = 4 * LINE_WORDS;
/// Smallest number of lines of a ring.
pub const MIN_LINES: u64 = 4;
/// Largest number of lines of a ring: a quarter of it is the longest message that a header word
/// encodes.
pub const MAX_LINES: u64 = 1 << 16;

/// Written by the sender: wake-up word of the receiver.
pub const ARRIVALS: usize = 0;
/// Written by the sender: its state (see below).
pub const SENDER: usize = 1;
/// Written by the receiver: all positions before this one are released.
pub const CREDIT: usize = 2 * LINE_WORDS;
/// Written by the receiver: its state and requests.
pub const RECEIVER: usize = 2 * LINE_WORDS + 1;
/// Written by the receiver: wake-up word of the sender.
pub const SPACE: usize = 2 * LINE_WORDS + 2;
/// Written by the receiver: offset of the poll set.
pub const SET: usize = 2 * LINE_WORDS + 3;
/// Written by the receiver: index in the poll set.
pub const INDEX: usize = 2 * LINE_WORDS + 4;

/// States of an end.
pub const AWAKE: u64 = 0;
pub const SLEEPS: u64 = 1;
pub const CLOSED: u64 = 2;

/// Bit of the receiver's state: the ring is in a poll set.
pub const IN_SET: u64 = 4;
/// Bit of the receiver's state: requests an event when a message arrives.
pub const ASKS_ARRIVAL: u64 = 8;
/// Bit of the receiver's state: requests an event when half of the ring is full.
pub const ASKS_HALF_FULL: u64 = 16;
/// Bits of the request, including its number.
pub const REQUEST: u64 = !(SLEEPS | CLOSED | IN_SET);
pub const ONE_REQUEST: u64 = 32;

/// Barriers, sleep of one end and wake-up of the other.
pub trait Signal {
    /// Orders a publishing store before the load of the other end's state. Pairs with the other
    /// end's [`Self::heavy`].
    fn light(&self);
    /// Orders the store of the sleeping state before the last check of what the other end
    /// published; returns whether the other end is certain to see it.
    fn heavy(&self) -> bool;
    /// Sleeps until a notification or a spurious wake-up, at most for `limit`; not at all if the
    /// wake-up word of this end is no longer `word`. Returns true if [`Self::check`] is due: there
    /// was no notification, or another sign of the other end.
    fn sleep(&self, word: u64, limit: Duration) -> bool;
    /// Wakes the other end, after a change of its wake-up word.
    fn wake(&self);
    /// Notifies the receiver's event.
    fn notify_event(&self) {}
    /// Sets the bit of this index in the poll set at offset `_set`. Called after a full fence.
    fn announce(&mut self, _set: u64, _index: u64) {}
    /// Checks, without sleeping, that the other end is alive.
    fn check(&self) -> Result<(), Interrupted> {
        Ok(())
    }
}

/// Sleep of one end on its two words: the wake-up word, which the other end writes, and its state,
/// which tells the other end whether to write.
#[derive(Debug)]
pub struct RingSleeper<'a, S> {
    pub memory: &'a [AtomicU64],
    pub signal: &'a S,
    /// Index of the wake-up word.
    pub wakeup: usize,
    /// Index of the state.
    pub state: usize,
    /// Bits of the state besides [`SLEEPS`].
    pub flags: u64,
}

impl<S: Signal> Sleeper for RingSleeper<'_, S> {
    fn arm(&self) -> Armed {
        // Acquire: pairs with the Release stores of the word in `RingSender::serve_requests` and
        // `RingReceiver::wake`: an end that sees the new word also sees what was published before it.
        let word = self.memory[self.wakeup].load(Ordering::Acquire);
        // Release: pairs with the Acquire load in `RingSender::release`.
        self.memory[self.state].store(SLEEPS | self.flags, Ordering::Release);
        // Pairs with the light barrier of the other end: either it sees that this end sleeps, or
        // this end's last poll sees what it published.
        Armed { word, certain: self.signal.heavy(), counted: false }
    }

    fn sleep(&self, armed: Armed, limit: Duration) -> bool {
        self.signal.sleep(armed.word, limit)
    }

    fn disarm(&self, _: Armed) {
        // Release: as in `arm`.
        self.memory[self.state].store(AWAKE | self.flags, Ordering::Release);
    }
}

/// The other end has ended; the [`Signal`] reports the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted;

/// Contents of a ring that the other end never writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corruption {
    /// A line begins with an invalid header word.
    #[error("the line at position {position} begins with {word:#018x}, which no sender writes")]
    Header {
        /// Position of the line since the creation of the ring.
        position: u64,
        /// Word that was found.
        word: u64,
    },
    /// A message exceeds the maximum size, or the end of the ring.
    #[error("the message at position {position} claims {bytes} bytes, which do not fit there")]
    Length {
        /// Position of the line.
        position: u64,
        /// Claimed length.
        bytes: usize,
    },
    /// A skip does not lead to the start of the ring.
    #[error("the line at position {position} skips {lines} lines: not to the ring's start")]
    Skip {
        /// Position of the line.
        position: u64,
        /// Number of skipped lines.
        lines: u64,
    },
    /// The receiver released lines that were never sent, or moved its position back.
    #[error("the receiver's position is {credit}: it must lie between {known} and {tail}")]
    Credit {
        /// Claimed position.
        credit: u64,
        /// Previous position.
        known: u64,
        /// Position of the sender.
        tail: u64,
    },
    /// A message has a source name that does not belong to its sender.
    #[error("a message claims source {found}, but its sender is {expected}")]
    Source {
        /// Name in the message.
        found: u16,
        /// Name of the sender.
        expected: u16,
    },
}

/// Error of a ring operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingError {
    Corrupt(Corruption),
    /// The other end has been closed.
    Closed,
    Oversized {
        bytes: usize,
        most: usize,
    },
    TimedOut,
    Interrupted,
}

impl From<Corruption> for RingError {
    fn from(corruption: Corruption) -> Self {
        RingError::Corrupt(corruption)
    }
}

impl From<Interrupted> for RingError {
    fn from(_: Interrupted) -> Self {
        RingError::Interrupted
    }
}

/// Layout of a ring.
#[derive(Debug, Clone, Copy)]
pub struct Geometry {
    shift: u32,
}

impl Geometry {
    /// `None` unless `lines` is a power of two from [`MIN_LINES`] to [`MAX_LINES`].
    pub fn new(lines: u64) -> Option<Self> {
        let fits = lines.is_power_of_two() && (MIN_LINES..=MAX_LINES).contains(&lines);
        fits.then(|| Geometry { shift: lines.trailing_zeros() })
    }

    pub fn lines(self) -> u64 {
        1 << self.shift
    }

    /// Returns the size of the ring in words.
    pub fn words(self) -> usize {
        HEAD_WORDS + (LINE_WORDS << self.shift)
    }

    pub fn lap(self, position: u64) -> u64 {
        position >> self.shift
    }

    pub fn index(self, position: u64) -> u64 {
        position & (self.lines() - 1)
    }

    /// Returns the index of the header word of a position.
    pub fn header_index(self, position: u64) -> usize {
        HEAD_WORDS + self.index(position) as usize * LINE_WORDS
    }

    /// Returns the number of lines from a position to the end of the ring.
    pub fn before_end(self, position: u64) -> u64 {
        self.lines() - self.index(position)
    }

    /// Returns the maximum number of lines of a message.
    pub fn quarter(self) -> u64 {
        self.lines() / 4
    }

    /// Returns half the number of lines.
    pub fn half(self) -> u64 {
        self.lines() / 2
    }

    /// Returns the maximum size of a message in bytes.
    pub fn longest(self) -> usize {
        (self.quarter() as usize * LINE_WORDS * 8 - 8).min(MAX_BYTES)
    }

    /// Returns the number of lines of a message of `bytes` bytes.
    pub fn lines_of(self, bytes: usize) -> u64 {
        // The header word occupies eight bytes.
        (bytes + 8).div_ceil(LINE_WORDS * 8) as u64
    }
}
