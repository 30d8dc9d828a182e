//! The protocol of a Basic ring between one sender and one receiver: where things lie, what can go
//! wrong, how an end sleeps. The two ends are in `sender.rs` and `receiver.rs`: loads, stores and
//! barriers, no read-modify-write.
//!
//! The ring is a row of cache lines ("transmit and receive queues consist of a cacheable message
//! buffer region", Ang et al. 1996, section 2.2). There are no shared pointers that a message has
//! to move: the first word of a message's first line, its stamp, tells that it is there. So a
//! message of one line costs the transfer of one line.
//!
//! - **Publishing.** The sender writes the data and the stamps of all messages of a batch but the
//!   first with plain stores, and then the first one's stamp with a release store: that one store
//!   publishes the whole batch.
//! - **Long messages** fill several lines, one after the other, without stamps between: their bytes
//!   lie side by side. A message that does not fit before the ring's end begins at its start, and a
//!   skip stamp says so. Data where a stamp will be looked for could be taken for one; the sender
//!   keeps books of such lines and clears the next one before it publishes. For that, and for the
//!   end stamp, one line always stays free.
//! - **Credits.** The receiver publishes its position whenever a quarter of the ring has been
//!   released. With messages of at most a quarter, a sender finds room as soon as the receiver has
//!   drained the ring, published or not: at most a quarter is unpublished, less than a quarter is
//!   skipped, one line stays free.
//! - **Sleeping.** Each end has a word in which it says that it sleeps, which the other reads after
//!   it has published; a barrier on either side makes sure that one of them sees the other (store,
//!   barrier, load, on both sides).
//! - **Events and poll sets.** In the same word the receiver says that it wants an event, or that
//!   the ring is in a poll set; a sender that finds the word 0 has nothing to do. Requests have
//!   numbers, and the sender keeps that of the last one it has answered: so neither writes to a
//!   word of the other's. For the bits of a set the sender passes a full fence.
//!
//! The receiver believes nothing: it loads a stamp once, checks it, and `Receiver::copy_next` takes
//! the data out before anybody looks at it. The sender believes nothing either: a credit that
//! cannot be is an error.

use super::stamp::MAX_BYTES;
use std::time::Instant;

/// Words of a cache line.
pub(crate) const LINE_WORDS: usize = 8;
/// Words before the first line: a pair of lines for each end, because processors fetch lines in
/// pairs.
pub(crate) const HEAD_WORDS: usize = 4 * LINE_WORDS;
/// The fewest lines of a ring.
pub(crate) const MIN_LINES: u64 = 4;
/// The most lines of a ring: a quarter of it is the longest message that a stamp can announce.
pub(crate) const MAX_LINES: u64 = 1 << 16;

/// Written by the sender: changes when a sleeping receiver is to look.
pub(crate) const ARRIVALS: usize = 0;
/// Written by the sender: how it is (one of the states below).
pub(crate) const SENDER: usize = 1;
/// Written by the receiver: all positions before this one are released.
pub(crate) const CREDIT: usize = 2 * LINE_WORDS;
/// Written by the receiver: how it is, and what it asks for.
pub(crate) const RECEIVER: usize = 2 * LINE_WORDS + 1;
/// Written by the receiver: changes when a sleeping sender is to look.
pub(crate) const ROOM: usize = 2 * LINE_WORDS + 2;
/// Written by the receiver: where the poll set lies that the ring is in.
pub(crate) const SET: usize = 2 * LINE_WORDS + 3;
/// Written by the receiver: the ring's index in that set.
pub(crate) const INDEX: usize = 2 * LINE_WORDS + 4;

/// States of an end.
pub(crate) const AWAKE: u64 = 0;
pub(crate) const SLEEPS: u64 = 1;
pub(crate) const CLOSED: u64 = 2;

/// Bits that a receiver adds to its state: the ring is in a poll set.
pub(crate) const IN_SET: u64 = 4;
/// It asks for an event when a message arrives.
pub(crate) const ASKS_ARRIVAL: u64 = 8;
/// It asks for an event when half of the ring is full.
pub(crate) const ASKS_HALF_FULL: u64 = 16;
/// What it asks for, and from here on the number of the request.
pub(crate) const REQUEST: u64 = !(SLEEPS | CLOSED | IN_SET);
pub(crate) const ONE_REQUEST: u64 = 32;

/// How one end sleeps and how it wakes the other.
pub(crate) trait Bell {
    /// Keeps a publishing store before the look at whether the other end sleeps. Pairs with the
    /// other end's [`Self::heavy`].
    fn light(&self);
    /// Keeps the store that says "I sleep" before the last look at what the other end has
    /// published; gives whether the other end is sure to see it.
    fn heavy(&self) -> bool;
    /// Sleeps until the other end rings, the deadline is over, or for no reason; not at all if this
    /// end's word is not what was seen any more.
    fn sleep(&self, seen: Seen, deadline: Option<Instant>) -> Result<(), Interrupted>;
    /// Wakes the other end; its word has just been changed.
    fn ring(&self);
    /// Writes to the receiver's event.
    fn notify(&self) {}
    /// Announces a message in the poll set of this place, in which the ring has this index. A full
    /// fence stands between.
    fn announce(&mut self, _set: u64, _index: u64) {}
    /// Looks, without sleeping, whether the other end is there.
    fn check(&self) -> Result<(), Interrupted> {
        Ok(())
    }
}

/// What an end saw before it went to sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The value of the word that the other end changes when it rings.
    pub(crate) word: u64,
    /// Whether the other end is sure to ring. If not, the sleep must be short.
    pub(crate) certain: bool,
}

/// The other end will not ring any more; the [`Bell`] knows why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interrupted;

/// Something in the ring that the other end of it would never write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corruption {
    /// A line begins with a word that is no stamp.
    #[error("the line at position {position} begins with {word:#018x}, which no sender writes")]
    Stamp {
        /// Which line, counted from the beginning of time.
        position: u64,
        /// What stood there.
        word: u64,
    },
    /// A message longer than messages of this ring are, or one that leaves the ring.
    #[error("the message at position {position} says that it has {bytes} bytes: it cannot, there")]
    Length {
        /// Which line.
        position: u64,
        /// The length announced.
        bytes: usize,
    },
    /// A skip that does not lead to the ring's start.
    #[error("the line at position {position} skips {lines} lines: not to the ring's start")]
    Skip {
        /// Which line.
        position: u64,
        /// How many.
        lines: u64,
    },
    /// The receiver says that it has released what was never sent, or takes back what it has
    /// released.
    #[error("the receiver's position is {credit}: it must lie between {known} and {tail}")]
    Credit {
        /// What it says.
        credit: u64,
        /// What it said before.
        known: u64,
        /// Up to where messages have been sent.
        tail: u64,
    },
    /// A source name that this sender has not been given.
    #[error("a message says that it comes from {found}: this sender is {expected}")]
    Source {
        /// The name in the message.
        found: u16,
        /// The sender's name.
        expected: u16,
    },
}

/// Why an operation on a ring cannot be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RingError {
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

/// Where things lie in a ring of so many lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Geometry {
    shift: u32,
}

impl Geometry {
    /// `None` unless `lines` is a power of two from [`MIN_LINES`] to [`MAX_LINES`].
    pub(crate) fn new(lines: u64) -> Option<Self> {
        let fits = lines.is_power_of_two() && (MIN_LINES..=MAX_LINES).contains(&lines);
        fits.then(|| Geometry { shift: lines.trailing_zeros() })
    }

    pub(crate) fn lines(self) -> u64 {
        1 << self.shift
    }

    /// Words of the whole ring.
    pub(crate) fn words(self) -> usize {
        HEAD_WORDS + (LINE_WORDS << self.shift)
    }

    pub(crate) fn lap(self, position: u64) -> u64 {
        position >> self.shift
    }

    pub(crate) fn index(self, position: u64) -> u64 {
        position & (self.lines() - 1)
    }

    /// The word with the stamp of this position.
    pub(crate) fn stamp(self, position: u64) -> usize {
        HEAD_WORDS + self.index(position) as usize * LINE_WORDS
    }

    /// Lines from this position to the ring's end.
    pub(crate) fn before_end(self, position: u64) -> u64 {
        self.lines() - self.index(position)
    }

    /// The most lines of a message.
    pub(crate) fn quarter(self) -> u64 {
        self.lines() / 4
    }

    /// Half of the lines.
    pub(crate) fn half(self) -> u64 {
        self.lines() / 2
    }

    /// The longest message in bytes.
    pub(crate) fn longest(self) -> usize {
        (self.quarter() as usize * LINE_WORDS * 8 - 8).min(MAX_BYTES)
    }

    /// Lines of a message of so many bytes.
    pub(crate) fn lines_of(self, bytes: usize) -> u64 {
        // The stamp takes the place of eight bytes.
        (bytes + 8).div_ceil(LINE_WORDS * 8) as u64
    }
}

/// Whether there is a deadline and it has passed.
pub(crate) fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}
