//! The protocol of a channel: one producer, one consumer, and slots. Filling a slot changes its
//! last word.
//!
//! A slot holds the value combined with the key of its lap. The consumer remembers the word that it
//! read from the slot one lap ago; if the word differs, the value has arrived and is already in a
//! register. So there is no flag beside the data, every bit pattern is a value, and a send is one
//! store. If a new value happens to equal the old word, the producer announces its position in a
//! word beside the ring instead, the *notice*; the consumer loads it when the slot has not changed.
//! The notice holds the highest position announced so far, so it covers all positions before it
//! too, and the consumer then reads their slots again. Its lowest bit marks the end of the stream.
//!
//! A value may have a *tail* in the slots behind its own, which the producer writes first. It
//! arrives with the value, so neither end checks its slots one by one: an end that reads a line
//! which the other still writes takes it away, and both then wait for the line once more.
//!
//! The consumer publishes its position once every quarter of the ring; the producer loads it only
//! when it has used up its credit. (Rosing and Saltz, *Low Latency Messages on Distributed Memory
//! Multiprocessors*, 1995, section 4: an open channel, a send of one store and a receive of two
//! loads.)

use super::key;
use crate::sync::{AtomicU64, Ordering};
use core::ops::Range;

const NO_MORE: u64 = 1;

/// Words of the ring in shared memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingWords<'a> {
    /// `LEAD + 1` words per slot, of which the last one signals the arrival.
    pub(crate) slots: &'a [AtomicU64],
    /// `positions announced << 1 | NO_MORE`; written by the producer.
    pub(crate) notice: &'a AtomicU64,
    /// Number of values taken out; written by the consumer.
    pub(crate) consumed: &'a AtomicU64,
}

impl<'a> RingWords<'a> {
    /// Returns the words of a range of slots.
    #[inline(always)]
    fn of_slots<const LEAD: usize>(self, slots: &Range<usize>) -> &'a [AtomicU64] {
        &self.slots[slots.start * (LEAD + 1)..slots.end * (LEAD + 1)]
    }
}

/// Returns the slots of so many positions: one range, and a second one at the start of the ring if
/// the positions pass its end. At most a whole ring.
#[inline(always)]
fn ranges(first: u64, count: u64, mask: u64) -> [Range<usize>; 2] {
    let start = (first & mask) as usize;
    let end = start + count as usize;
    let slots = mask as usize + 1;
    [start..end.min(slots), 0..end.saturating_sub(slots)]
}

/// Reason why a value was not put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PutError {
    /// The ring is full.
    Full,
    /// The consumer's position is impossible.
    Broken,
}

/// Reason why no value was taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakeError {
    /// No value has arrived.
    Empty,
    /// The stream has ended.
    Closed,
}

/// Returns the number of values after which the consumer publishes its position.
pub(crate) const fn interval(slots: u64) -> u64 {
    if slots < 4 { 1 } else { slots / 4 }
}

/// Returns the number of values that always fit into a ring of `slots` slots: the consumer may be
/// an interval less one ahead of its published position.
pub(crate) const fn capacity(slots: u64) -> u64 {
    slots - interval(slots) + 1
}

/// Private state of the sending end.
#[derive(Debug)]
pub(crate) struct Producer {
    sent: u64,
    /// Position up to which the producer may fill slots.
    credit_until: u64,
    key: u64,
    mask: u64,
    /// Contents of each slot, so that the sender never loads a line that the receiver caches.
    contents: Box<[u64]>,
    announced: u64,
}

impl Producer {
    /// Starts at the first position of a zeroed ring of `slots` slots, a power of two.
    pub(crate) fn new(slots: u64) -> Self {
        let contents = vec![0; slots as usize].into_boxed_slice();
        Producer {
            sent: 0,
            credit_until: slots,
            key: key::of_lap(0),
            mask: slots - 1,
            contents,
            announced: 0,
        }
    }

    /// Puts a value in: one store (`LEAD` more for a value of several words, into the same line).
    #[inline(always)]
    pub(crate) fn put<const LEAD: usize>(
        &mut self,
        words: RingWords<'_>,
        lead: [u64; LEAD],
        last: u64,
    ) -> Result<(), PutError> {
        if self.sent == self.credit_until {
            self.load_credit(words)?;
        }
        let slot = (self.sent & self.mask) as usize;
        let cells = &words.slots[slot * (LEAD + 1)..][..=LEAD];
        for (word, value) in cells.iter().zip(lead) {
            // Relaxed: the store of the last word, or of the notice, publishes them.
            word.store(value, Ordering::Relaxed);
        }
        let wire = last ^ self.key;
        if wire == self.contents[slot] {
            self.announce(words);
        } else {
            self.contents[slot] = wire;
            // Release: pairs with the Acquire loads of the last word in `take`.
            cells[LEAD].store(wire, Ordering::Release);
        }
        self.sent += 1;
        if self.sent & self.mask == 0 {
            self.key = key::of_lap(self.sent / (self.mask + 1));
        }
        Ok(())
    }

    /// Returns true if so many values can be put in, at most the [`capacity`] of the ring.
    #[inline]
    pub(crate) fn has_space(
        &mut self,
        words: RingWords<'_>,
        values: u64,
    ) -> Result<bool, PutError> {
        if self.credit_until - self.sent < values {
            match self.load_credit(words) {
                Ok(()) | Err(PutError::Full) => {}
                Err(PutError::Broken) => return Err(PutError::Broken),
            }
        }
        Ok(self.credit_until - self.sent >= values)
    }

    /// Puts a value in with a tail of `slots` slots. `fill` writes their words, which are
    /// consecutive except at the end of the ring, where it is called once more for the rest, and
    /// stores the last word of each slot, as the consumer will find it: the slot may hold a value in
    /// the next lap.
    #[inline]
    pub(crate) fn put_with_tail<const LEAD: usize>(
        &mut self,
        words: RingWords<'_>,
        (lead, last): ([u64; LEAD], u64),
        slots: u64,
        mut fill: impl FnMut(&[AtomicU64], &mut [u64]),
    ) -> Result<(), PutError> {
        if !self.has_space(words, slots + 1)? {
            return Err(PutError::Full);
        }
        let behind = self.sent + 1;
        for range in ranges(behind, slots, self.mask) {
            fill(words.of_slots::<LEAD>(&range), &mut self.contents[range]);
        }
        // After the tail: its store, or that of the notice, publishes the tail too.
        self.put(words, lead, last)?;
        self.skip(slots);
        Ok(())
    }

    /// Leaves so many slots empty, which the consumer skips as well.
    /// [`has_space`](Self::has_space) has returned true for them.
    #[inline]
    pub(crate) fn skip(&mut self, slots: u64) {
        self.sent += slots;
        self.key = key::of_lap(self.sent >> self.mask.count_ones());
    }

    /// Returns the words of the next slot, if the consumer is known to have freed it. For hints to the
    /// processor.
    #[inline]
    pub(crate) fn free_slot<'a, const LEAD: usize>(&self, words: RingWords<'a>) -> &'a [AtomicU64] {
        let [slot, _] = ranges(self.sent, (self.credit_until - self.sent).min(1), self.mask);
        words.of_slots::<LEAD>(&slot)
    }

    /// Returns the words of the slots of the next `values` values, as far as the consumer is known to
    /// have freed them: before the end of the ring, and at its start. For hints to the processor.
    #[inline]
    pub(crate) fn free_words<'a, const LEAD: usize>(
        &self,
        words: RingWords<'a>,
        values: u64,
    ) -> [&'a [AtomicU64]; 2] {
        let free = values.min(self.credit_until - self.sent);
        ranges(self.sent, free, self.mask).map(|range| words.of_slots::<LEAD>(&range))
    }

    #[cold]
    fn load_credit(&mut self, words: RingWords<'_>) -> Result<(), PutError> {
        // Acquire: pairs with the Release in `Consumer::publish`. The consumer's reads of the slots
        // up to this position come before the producer overwrites them.
        let consumed = words.consumed.load(Ordering::Acquire);
        let slots = self.mask + 1;
        match self.sent.checked_sub(consumed) {
            Some(pending) if pending < slots => {
                self.credit_until = consumed + slots;
                Ok(())
            }
            Some(pending) if pending == slots => Err(PutError::Full),
            // The position is ahead of the producer, or moved backwards: it was overwritten.
            _ => Err(PutError::Broken),
        }
    }

    /// Announces a value with a word equal to the old contents of its slot.
    #[cold]
    fn announce(&mut self, words: RingWords<'_>) {
        self.announced = self.sent + 1;
        // Release: pairs with the Acquire load in `Consumer::check_notice`; all slots before are
        // visible with it.
        words.notice.store(self.announced << 1, Ordering::Release);
    }

    /// Returns the number of slots put in.
    pub(crate) fn position(&self) -> u64 {
        self.sent
    }

    /// Returns true if the consumer has taken the value that was put in last. Exact once it has
    /// closed its end after it [published](Consumer::publish) its position, and the caller has seen
    /// that with Acquire.
    pub(crate) fn is_taken(&self, words: RingWords<'_>) -> bool {
        // Acquire: pairs with the Release in `publish`. All that the consumer did before it took
        // the value is visible.
        words.consumed.load(Ordering::Acquire) == self.sent
    }

    /// Marks the end of the stream.
    pub(crate) fn finish(&self, words: RingWords<'_>) {
        // Release: pairs with the Acquire load in `Consumer::check_notice`; all slots are visible
        // with it.
        words.notice.store(self.announced << 1 | NO_MORE, Ordering::Release);
    }
}

/// The words that change when the next value arrives or the sender closes, with their old values: a
/// waiting receiver keeps them in registers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Next<'a> {
    last: &'a AtomicU64,
    notice: &'a AtomicU64,
    seen: u64,
    received: u64,
}

impl Next<'_> {
    /// Returns true if `take` may have a result.
    #[inline(always)]
    pub(crate) fn is_there(self) -> bool {
        // Relaxed, both: `take` loads again with Acquire before it uses anything.
        let notice = || self.notice.load(Ordering::Relaxed);
        self.last.load(Ordering::Relaxed) != self.seen
            || notice() & NO_MORE != 0
            || notice() >> 1 > self.received
    }
}

/// Private state of the receiving end.
#[derive(Debug)]
pub(crate) struct Consumer {
    received: u64,
    key: u64,
    mask: u64,
    /// Contents of each slot when it was last read.
    seen: Box<[u64]>,
}

impl Consumer {
    /// Starts at the first position of a zeroed ring of `slots` slots, a power of two.
    pub(crate) fn new(slots: u64) -> Self {
        let seen = vec![0; slots as usize].into_boxed_slice();
        Consumer { received: 0, key: key::of_lap(0), mask: slots - 1, seen }
    }

    /// Takes a value out. After a success the caller checks [`Consumer::is_due`].
    #[inline(always)]
    pub(crate) fn take<const LEAD: usize>(
        &mut self,
        words: RingWords<'_>,
    ) -> Result<([u64; LEAD], u64), TakeError> {
        let slot = (self.received & self.mask) as usize;
        let cells = &words.slots[slot * (LEAD + 1)..][..=LEAD];
        // Acquire: pairs with the Release store in `offer`, for the words before it and for what
        // the producer wrote elsewhere.
        let mut wire = cells[LEAD].load(Ordering::Acquire);
        if wire == self.seen[slot] {
            wire = self.check_notice(words, &cells[LEAD], wire)?;
        }
        self.seen[slot] = wire;
        let mut lead = [0; LEAD];
        for (value, word) in lead.iter_mut().zip(cells) {
            // Relaxed: the load of the last word, or of the notice, made them visible.
            *value = word.load(Ordering::Relaxed);
        }
        let last = wire ^ self.key;
        self.received += 1;
        if self.received & self.mask == 0 {
            self.key = key::of_lap(self.received / (self.mask + 1));
        }
        Ok((lead, last))
    }

    /// Takes the tail of `slots` slots of the value that was taken last. `read` reads their words,
    /// as the producer's `fill` wrote them, and stores the last word of each slot. Afterwards the
    /// caller checks [`Consumer::is_due_since`].
    #[inline]
    pub(crate) fn take_tail<const LEAD: usize>(
        &mut self,
        words: RingWords<'_>,
        slots: u64,
        mut read: impl FnMut(&[AtomicU64], &mut [u64]),
    ) {
        for range in ranges(self.received, slots, self.mask) {
            read(words.of_slots::<LEAD>(&range), &mut self.seen[range]);
        }
        self.skip(slots);
    }

    /// Skips so many slots, which the producer has left empty. Afterwards the caller checks
    /// [`Consumer::is_due_since`].
    #[inline]
    pub(crate) fn skip(&mut self, slots: u64) {
        self.received += slots;
        self.key = key::of_lap(self.received >> self.mask.count_ones());
    }

    /// Returns the number of slots taken out.
    #[inline(always)]
    pub(crate) fn position(&self) -> u64 {
        self.received
    }

    /// Returns the words that the next value changes.
    pub(crate) fn next<'a, const LEAD: usize>(&self, words: RingWords<'a>) -> Next<'a> {
        let slot = (self.received & self.mask) as usize;
        let last = &words.slots[slot * (LEAD + 1) + LEAD];
        Next { last, notice: words.notice, seen: self.seen[slot], received: self.received }
    }

    /// Checks whether the notice covers the unchanged slot at the consumer's position.
    #[inline]
    fn check_notice(
        &self,
        words: RingWords<'_>,
        last: &AtomicU64,
        seen: u64,
    ) -> Result<u64, TakeError> {
        // Acquire: pairs with the Release stores in `announce` and `finish`. The slot is loaded
        // again afterwards, because it may have changed between the first load and the notice.
        let notice = words.notice.load(Ordering::Acquire);
        let announced = notice >> 1 > self.received;
        if !announced && notice & NO_MORE == 0 {
            return Err(TakeError::Empty);
        }
        // Acquire: as in `take`.
        let wire = last.load(Ordering::Acquire);
        if announced || wire != seen { Ok(wire) } else { Err(TakeError::Closed) }
    }

    /// Returns true once every quarter of the ring: the position is then to be published, so that
    /// the producer can fill the slots again.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        self.received & (interval(self.mask + 1) - 1) == 0
    }

    /// As [`is_due`](Self::is_due), for all that was taken since this position.
    #[inline(always)]
    pub(crate) fn is_due_since(&self, before: u64) -> bool {
        (before ^ self.received) & !(interval(self.mask + 1) - 1) != 0
    }

    /// Publishes the position of the consumer.
    pub(crate) fn publish(&self, words: RingWords<'_>) {
        // Release: pairs with the Acquire in `Producer::load_credit`.
        words.consumed.store(self.received, Ordering::Release);
    }
}
