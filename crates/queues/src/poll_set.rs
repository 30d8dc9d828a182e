//! One bit a queue, so that one look finds the first queue of many in which something waits.
//!
//! A sender sends, then loads the word with its queue's bit and sets the bit only if it is clear. A
//! receiver goes over the set bits alone, the lowest first, and when it finds a queue empty it
//! clears the bit, passes a fence, looks at the queue again and sets the bit again if something
//! came. So a queue that holds a message has its bit set, except while its sender is between
//! sending and setting, or a receiver between clearing and looking again.
//!
//! The bits of the queues that gave the latest messages are left standing when the queues are found
//! empty. As long as messages come from these, nobody writes to the bits, and what a message moves
//! is its own line.
//!
//! Sets of more than 512 queues have a summary above: one bit for each line of bits, kept in the
//! same way. So the cost of a look does not grow with the number of queues. After Ang et al. 1996,
//! sections 4.3 and 5.3.

use crate::order;
use crate::sync::{AtomicU64, Ordering, fence};

/// How many queues share a line of bits.
pub(crate) const QUEUES_PER_LINE: usize = 512;

/// How many queues a set has at most: those of the lines that one line of summary bits stands for.
pub const MOST_QUEUES: usize = QUEUES_PER_LINE * QUEUES_PER_LINE;

const WORDS_PER_LINE: usize = 8;

/// How many queues keep their bits.
const RECENT: usize = 4;

const NONE: u32 = u32::MAX;

/// One bit and the word that it is in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bit<'a> {
    pub(crate) word: &'a AtomicU64,
    pub(crate) mask: u64,
}

impl Bit<'_> {
    /// Sets the bit if it is clear.
    #[inline(always)]
    pub(crate) fn set(self) {
        // SeqCst: the load comes after the sending and the change before what follows, in the order
        // of all such accesses.
        if self.word.load(Ordering::SeqCst) & self.mask == 0 {
            self.word.fetch_or(self.mask, Ordering::SeqCst);
        }
        order::settle();
    }

    /// Clears the bit, and sets it again if `is_ready` says, after that, that it should be set.
    #[cold]
    fn clear_unless(self, is_ready: impl FnOnce() -> bool) {
        self.word.fetch_and(!self.mask, Ordering::SeqCst);
        // Pairs with the order of sending and load in `set`: the sender sees the bit clear, or the
        // message is seen here.
        fence(Ordering::SeqCst);
        if is_ready() {
            self.word.fetch_or(self.mask, Ordering::SeqCst);
        }
    }
}

/// The bits of a set: lines of eight words, and a summary line if there is more than one of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bits<'a> {
    /// A multiple of eight words.
    pub(crate) words: &'a [AtomicU64],
    /// Eight words, or none.
    pub(crate) summary: &'a [AtomicU64],
}

/// One queue of a set.
///
/// See [`crate::one_poll`] for a set of queues of several kinds.
pub trait Polled {
    /// What is received from it.
    type Item;

    /// Takes the next thing, if there is one.
    fn take(&mut self) -> Option<Self::Item>;

    /// Whether something waits.
    fn is_ready(&self) -> bool;
}

/// The queues of a set, as the set needs them. A slice with a [`Polled`] queue, or none, for each
/// index is one.
pub trait Members {
    /// What is received from them.
    type Item;

    /// Takes the next thing from the queue of this index, if there is one.
    fn take(&mut self, index: usize) -> Option<Self::Item>;

    /// Whether something waits in the queue of this index. If it says no, whatever is sent later
    /// sets the queue's bit.
    fn is_ready(&mut self, index: usize) -> bool;
}

impl<Q: Polled> Members for [Option<Q>] {
    type Item = Q::Item;

    #[inline]
    fn take(&mut self, index: usize) -> Option<Q::Item> {
        self.get_mut(index)?.as_mut()?.take()
    }

    #[inline]
    fn is_ready(&mut self, index: usize) -> bool {
        self.get(index).is_some_and(|queue| queue.as_ref().is_some_and(Q::is_ready))
    }
}

impl<'a> Bits<'a> {
    /// The bit of a queue; `None` if the set has no such queue.
    #[inline]
    pub(crate) fn bit(self, index: usize) -> Option<Bit<'a>> {
        Some(Bit { word: self.words.get(index / 64)?, mask: 1 << (index % 64) })
    }

    /// The summary bit above the bit of a queue; `None` if there is no summary.
    #[inline]
    pub(crate) fn summary_bit(self, index: usize) -> Option<Bit<'a>> {
        let line = index / QUEUES_PER_LINE;
        Some(Bit { word: self.summary.get(line / 64)?, mask: 1 << (line % 64) })
    }

    /// Announces something in a queue. It was sent before.
    #[inline(always)]
    pub(crate) fn announce(self, index: usize) {
        order::settle();
        let bits = [self.bit(index), self.summary_bit(index)];
        bits.into_iter().flatten().for_each(Bit::set);
    }

    /// The lowest set bit from `from` on.
    #[inline]
    fn next(self, from: usize, wanted: Option<&[u64]>) -> Option<usize> {
        if self.summary.is_empty() {
            return self.next_within(from, self.words.len() * 64, wanted);
        }
        let mut line = from / QUEUES_PER_LINE;
        let mut start = from;
        loop {
            if self.summary.get(line / 64)?.load(Ordering::Acquire) >> (line % 64) & 1 != 0 {
                let end = (line + 1) * QUEUES_PER_LINE;
                if let Some(found) = self.next_within(start, end, wanted) {
                    return Some(found);
                }
                if self.line_is_empty(line) {
                    self.summary_bit(line * QUEUES_PER_LINE)?
                        .clear_unless(|| !self.line_is_empty(line));
                }
            }
            line = self.next_line(line + 1)?;
            start = line * QUEUES_PER_LINE;
        }
    }

    /// The first line from `line` on whose summary bit is set.
    fn next_line(self, line: usize) -> Option<usize> {
        (line / 64..self.summary.len()).find_map(|word| {
            let skipped = if word == line / 64 { u64::MAX << (line % 64) } else { u64::MAX };
            // Acquire: as in `next_within`.
            let set = self.summary[word].load(Ordering::Acquire) & skipped;
            (set != 0).then(|| word * 64 + set.trailing_zeros() as usize)
        })
    }

    fn line_is_empty(self, line: usize) -> bool {
        let words =
            self.words.get(line * WORDS_PER_LINE..(line + 1) * WORDS_PER_LINE).unwrap_or_default();
        words.iter().all(|word| word.load(Ordering::Acquire) == 0)
    }

    /// The lowest set bit from `from` to before `end`, which ends a line.
    #[inline]
    fn next_within(self, from: usize, end: usize, wanted: Option<&[u64]>) -> Option<usize> {
        let mut mask = u64::MAX << (from % 64);
        let first = from / 64;
        for (ahead, word) in self.words.get(first..end / 64)?.iter().enumerate() {
            // Acquire: pairs with the sender's exchange on this word; its message is then seen.
            let mut set = word.load(Ordering::Acquire) & mask;
            if let Some(wanted) = wanted {
                set &= wanted.get(first + ahead).copied().unwrap_or(0);
            }
            if set != 0 {
                return Some((first + ahead) * 64 + set.trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }
}

/// A receiver's way through a set: which queues gave something lately.
#[derive(Debug, Clone)]
pub(crate) struct Poller {
    recent: [u32; RECENT],
}

impl Default for Poller {
    fn default() -> Self {
        Poller { recent: [NONE; RECENT] }
    }
}

impl Poller {
    /// Takes the next thing from the lowest of the wanted queues that hold something; gives the
    /// queue's index too. `wanted` has a bit a queue; `None` wants all.
    #[inline]
    pub(crate) fn poll<M: Members + ?Sized>(
        &mut self,
        bits: Bits<'_>,
        wanted: Option<&[u64]>,
        members: &mut M,
    ) -> Option<(usize, M::Item)> {
        let mut from = 0;
        loop {
            let index = bits.next(from, wanted)?;
            if let Some(item) = members.take(index) {
                self.remember(index);
                return Some((index, item));
            }
            if !self.recent.contains(&(index as u32)) {
                bits.bit(index)?.clear_unless(|| members.is_ready(index));
            }
            from = index + 1;
        }
    }

    /// Puts a queue before the others, the longest unused of which is forgotten. Its bit is cleared
    /// when it is found empty.
    #[inline(always)]
    fn remember(&mut self, index: usize) {
        let index = index as u32;
        if self.recent[0] != index {
            let place =
                self.recent.iter().position(|&recent| recent == index).unwrap_or(RECENT - 1);
            self.recent[..=place].rotate_right(1);
            self.recent[0] = index;
        }
    }

    /// Whether one of the wanted queues holds something. For a look before sleeping; who sends to
    /// one of the others later sets its bit and then rings.
    pub(crate) fn is_any_ready<M: Members + ?Sized>(
        &self,
        bits: Bits<'_>,
        wanted: Option<&[u64]>,
        members: &mut M,
    ) -> bool {
        // Between the announcement of a sleeper and the look at the bits.
        fence(Ordering::SeqCst);
        let mut from = 0;
        while let Some(index) = bits.next(from, wanted) {
            if members.is_ready(index) {
                return true;
            }
            from = index + 1;
        }
        false
    }
}
