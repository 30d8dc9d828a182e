//! One bit per queue, so that one load finds the first non-empty queue of many.
//!
//! A sender sends, then loads the word with its queue's bit and sets the bit only if it is clear. A
//! receiver visits the set bits, the lowest first. When it finds a queue empty, it clears the bit,
//! passes a fence, polls the queue again and sets the bit again if a message has arrived. So the
//! bit of a non-empty queue is set, except while its sender is between the send and the bit, or a
//! receiver between the clear and the second poll.
//!
//! The bits of the queues with the latest messages stay set when the queues are found empty. As
//! long as messages arrive in these, the bits are only read, and a message transfers only its own
//! line.
//!
//! Sets of more than 512 queues have a summary: one bit for each line of bits, maintained in the
//! same way. So the cost of a poll does not grow with the number of queues. After Ang et al. 1996,
//! sections 4.3 and 5.3.

use crate::fence::after_exchange;
use crate::remote_waits::RemoteWaits;
use crate::sync::{AtomicU64, Ordering, fence};
use shm::liveness::PeerExit;
use std::sync::Arc;

/// Number of queues that share a line of bits.
pub(crate) const QUEUES_PER_LINE: usize = 512;

/// Largest number of queues of a set: those covered by one line of summary bits.
pub const MAX_QUEUES: usize = QUEUES_PER_LINE * QUEUES_PER_LINE;

const WORDS_PER_LINE: usize = 8;

/// Number of recently used queues; their bits stay set.
const RECENT: usize = 4;

const NONE: u32 = u32::MAX;

/// One bit of a word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bit<'a> {
    pub(crate) word: &'a AtomicU64,
    pub(crate) mask: u64,
}

impl Bit<'_> {
    /// Sets the bit if it is clear.
    #[inline(always)]
    pub(crate) fn set(self) {
        // SeqCst: in the total order of such accesses the load comes after the send, and the change
        // before the wake-up that follows.
        //
        // The load saves the exclusive access to a line that all senders and receivers read. A bit
        // found set stays set until a receiver clears it, and that receiver then polls the queue
        // again (`clear_unless`). A sender that dies before this leaves a message without a bit,
        // which the receiver's recovery finds.
        if self.word.load(Ordering::SeqCst) & self.mask == 0 {
            self.word.fetch_or(self.mask, Ordering::SeqCst);
        }
        after_exchange();
    }

    /// Clears the bit, and sets it again if `is_ready` then returns true.
    #[cold]
    fn clear_unless(self, is_ready: impl FnOnce() -> bool) {
        // A receiver killed after this leaves a queue without its bit until the next send into it
        // or the recovery of another receiver.
        self.word.fetch_and(!self.mask, Ordering::SeqCst);
        // Pairs with the order of send and load in `set`: either the sender sees the cleared bit
        // and sets it, or the message is seen here.
        fence(Ordering::SeqCst);
        if is_ready() {
            self.word.fetch_or(self.mask, Ordering::SeqCst);
        }
    }
}

/// The bits of a set: lines of eight words, and summary lines if there is more than one of them.
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
    /// Type of the received items.
    type Item;

    /// Takes the next item, if there is one.
    fn take(&mut self) -> Option<Self::Item>;

    /// Returns true if an item is available.
    fn is_ready(&self) -> bool;

    /// Returns the exit after which nothing arrives in the queue any more; `None` if there is none,
    /// or if the queue does not check its senders.
    fn exited(&self) -> Option<PeerExit> {
        None
    }

    /// Returns the marks of waiting threads, if the queue has senders on other nodes.
    fn remote_waits(&self) -> Option<Arc<dyn RemoteWaits>> {
        None
    }
}

/// The queues of a set, by index. A slice with an optional [`Polled`] queue for each index
/// implements it.
pub trait Members {
    /// Type of the received items.
    type Item;

    /// Takes the next item of the queue with this index, if there is one.
    fn take(&mut self, index: usize) -> Option<Self::Item>;

    /// Returns true if an item is available in the queue with this index. After a false, every
    /// later send sets the queue's bit.
    fn is_ready(&mut self, index: usize) -> bool;

    /// Returns the exit that makes waiting pointless: a sender to one of the queues has failed, or
    /// nothing arrives in any of them any more.
    fn exited(&mut self) -> Option<PeerExit> {
        None
    }

    /// Returns the marks of waiting threads, if a queue has senders on other nodes.
    fn remote_waits(&mut self) -> Option<Arc<dyn RemoteWaits>> {
        None
    }
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

    fn exited(&mut self) -> Option<PeerExit> {
        let mut left = None;
        let mut all_have_left = true;
        for queue in self.iter().flatten() {
            match queue.exited() {
                None => all_have_left = false,
                Some(PeerExit::Left(rank)) => left = Some(PeerExit::Left(rank)),
                failed => return failed,
            }
        }
        left.filter(|_| all_have_left)
    }

    fn remote_waits(&mut self) -> Option<Arc<dyn RemoteWaits>> {
        self.iter().flatten().find_map(Q::remote_waits)
    }
}

impl<'a> Bits<'a> {
    /// Returns the bit of a queue; `None` if the set has no such queue.
    #[inline]
    pub(crate) fn bit(self, index: usize) -> Option<Bit<'a>> {
        Some(Bit { word: self.words.get(index / 64)?, mask: 1 << (index % 64) })
    }

    /// Returns the summary bit of a queue's line; `None` if there is no summary.
    #[inline]
    pub(crate) fn summary_bit(self, index: usize) -> Option<Bit<'a>> {
        let line = index / QUEUES_PER_LINE;
        Some(Bit { word: self.summary.get(line / 64)?, mask: 1 << (line % 64) })
    }

    /// Announces a message in a queue. Call it after the send.
    #[inline(always)]
    pub(crate) fn announce(self, index: usize) {
        after_exchange();
        // The queue's bit precedes that of its line: a receiver that finds the line's bit set
        // without a bit in the line clears it and checks the line once more, after a fence.
        let bits = [self.bit(index), self.summary_bit(index)];
        bits.into_iter().flatten().for_each(Bit::set);
    }

    /// Returns the lowest set bit from `from` on.
    #[inline]
    fn next(self, from: usize, wanted: Option<&[u64]>) -> Option<usize> {
        if self.summary.is_empty() {
            return self.next_within(from, self.words.len() * 64, wanted);
        }
        let mut line = from / QUEUES_PER_LINE;
        let mut start = from;
        loop {
            // Acquire: pairs with the exchange in `Bit::set`, so that the bits of the line are
            // visible.
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

    /// Returns the first line from `line` on with a set summary bit.
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
        // Acquire: as in `next_within`. In `clear_unless` the fence orders these loads.
        words.iter().all(|word| word.load(Ordering::Acquire) == 0)
    }

    /// Returns the lowest set bit from `from` to before `end`, which ends a line.
    #[inline]
    fn next_within(self, from: usize, end: usize, wanted: Option<&[u64]>) -> Option<usize> {
        let mut mask = u64::MAX << (from % 64);
        let first = from / 64;
        for (ahead, word) in self.words.get(first..end / 64)?.iter().enumerate() {
            // Acquire: pairs with the sender's exchange on this word, so that its message is
            // visible.
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

/// A receiver's memory of the queues with the latest messages.
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
    /// Takes the next item of the lowest wanted queue that has one, with the queue's index.
    /// `wanted` has one bit per queue; `None` means all.
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
            // The bit of a recent queue stays set: its next message then changes no line but its
            // own. Sleeping is safe all the same, because `is_any_ready` polls the queues of set
            // bits.
            if !self.recent.contains(&(index as u32)) {
                bits.bit(index)?.clear_unless(|| members.is_ready(index));
            }
            from = index + 1;
        }
    }

    /// Moves a queue to the front of the recent ones and drops the least recently used one;
    /// its bit is cleared when that queue is next found empty.
    #[inline(always)]
    fn remember(&mut self, index: usize) {
        let index = index as u32;
        if self.recent[0] != index {
            let position =
                self.recent.iter().position(|&recent| recent == index).unwrap_or(RECENT - 1);
            self.recent[..=position].rotate_right(1);
            self.recent[0] = index;
        }
    }

    /// Returns true if one of the wanted queues is ready. For the poll before a sleep: a later
    /// sender sets its queue's bit and then wakes the receiver.
    pub(crate) fn is_any_ready<M: Members + ?Sized>(
        &self,
        bits: Bits<'_>,
        wanted: Option<&[u64]>,
        members: &mut M,
    ) -> bool {
        // Orders the announcement of the sleeper before the loads of the bits: a sender either sees
        // the sleeper, or its bit is seen here.
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
