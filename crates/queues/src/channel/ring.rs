//! The protocol of a channel: one producer, one consumer, slots whose last word tells by its change
//! that they were filled.
//!
//! What stands in a slot is the value combined with the key of its lap. The consumer remembers what
//! it read from the slot one lap ago; if the word differs, the value has arrived and is already in
//! a register. So no flag travels beside the data, every bit pattern is a value, and a send is one
//! store. If a new value happens to look exactly like the old word, the producer announces its
//! position in a word beside the ring instead, the *notice*; the consumer looks at it when the slot
//! has not changed. The notice holds the highest position announced so far, so it also speaks for
//! all positions before it, whose slots the consumer then reads again. Its lowest bit says that no
//! more values will come.
//!
//! The consumer publishes how far it is once every quarter of the ring; the producer looks only
//! when it has used up the room it knows of. (Rosing and Saltz, *Low Latency Messages on
//! Distributed Memory Multiprocessors*, 1995, section 4: a channel held open, a send of one store
//! and a receive of two loads.)

use super::key;
use crate::sync::{AtomicU64, Ordering};

const NO_MORE: u64 = 1;

/// The words in shared memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words<'a> {
    /// `LEAD + 1` words a slot, of which the last one tells.
    pub(crate) slots: &'a [AtomicU64],
    /// `positions announced << 1 | NO_MORE`; written by the producer.
    pub(crate) notice: &'a AtomicU64,
    /// How many values the consumer has taken out; written by the consumer.
    pub(crate) consumed: &'a AtomicU64,
}

/// Why a value was not put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There is no room.
    Full,
    /// The consumer claims to have taken what was never put in.
    Broken,
}

/// Why no value was taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nothing {
    /// None has arrived.
    Yet,
    /// None will come.
    More,
}

/// After how many values the consumer publishes its position.
pub(crate) fn interval(slots: u64) -> u64 {
    (slots / 4).max(1)
}

/// How many values always fit into a ring of `slots` slots: the consumer may be an interval less
/// one ahead of what it published.
pub(crate) fn capacity(slots: u64) -> u64 {
    slots - interval(slots) + 1
}

/// The private side of the one who sends.
#[derive(Debug)]
pub(crate) struct Producer {
    sent: u64,
    /// Up to here there is room.
    room_until: u64,
    key: u64,
    mask: u64,
    /// What stands in each slot, so that the sender never has to load a line that the receiver has.
    standing: Box<[u64]>,
    announced: u64,
}

impl Producer {
    /// For a zeroed ring of `slots` slots, a power of two.
    pub(crate) fn new(slots: u64) -> Self {
        let standing = vec![0; slots as usize].into_boxed_slice();
        Producer {
            sent: 0,
            room_until: slots,
            key: key::of_lap(0),
            mask: slots - 1,
            standing,
            announced: 0,
        }
    }

    /// Puts a value in: one store (`LEAD` more for a value of several words, into the same line).
    #[inline(always)]
    pub(crate) fn offer<const LEAD: usize>(
        &mut self,
        words: Words<'_>,
        lead: [u64; LEAD],
        tell: u64,
    ) -> Result<(), Refused> {
        if self.sent == self.room_until {
            self.look_for_room(words)?;
        }
        let slot = (self.sent & self.mask) as usize;
        let place = &words.slots[slot * (LEAD + 1)..][..=LEAD];
        for (word, value) in place.iter().zip(lead) {
            // Relaxed: the telling word or the notice publishes them.
            word.store(value, Ordering::Relaxed);
        }
        let wire = tell ^ self.key;
        if wire == self.standing[slot] {
            self.announce(words);
        } else {
            self.standing[slot] = wire;
            // Release: pairs with the Acquire loads of the telling word in `take`.
            place[LEAD].store(wire, Ordering::Release);
        }
        self.sent += 1;
        if self.sent & self.mask == 0 {
            self.key = key::of_lap(self.sent / (self.mask + 1));
        }
        Ok(())
    }

    #[cold]
    fn look_for_room(&mut self, words: Words<'_>) -> Result<(), Refused> {
        // Acquire: pairs with the Release in `Consumer::publish`; what the consumer read, it read
        // before the slot is written.
        let consumed = words.consumed.load(Ordering::Acquire);
        let slots = self.mask + 1;
        match self.sent.checked_sub(consumed) {
            Some(pending) if pending < slots => {
                self.room_until = consumed + slots;
                Ok(())
            }
            Some(pending) if pending == slots => Err(Refused::Full),
            // Ahead of the producer, or behind what it has published before.
            _ => Err(Refused::Broken),
        }
    }

    /// Says that the value has arrived although its word looks as before.
    #[cold]
    fn announce(&mut self, words: Words<'_>) {
        self.announced = self.sent + 1;
        // Release: pairs with the Acquire load in `Consumer::look_beside`; all slots before are
        // visible with it.
        words.notice.store(self.announced << 1, Ordering::Release);
    }

    /// Says that no more values will come.
    pub(crate) fn finish(&self, words: Words<'_>) {
        // Release: pairs with the Acquire load in `Consumer::look_beside`; all slots are visible
        // with it.
        words.notice.store(self.announced << 1 | NO_MORE, Ordering::Release);
    }
}

/// What changes when the next value arrives or the sender ends: all that one who waits has to look
/// at, in registers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Next<'a> {
    tell: &'a AtomicU64,
    notice: &'a AtomicU64,
    seen: u64,
    received: u64,
}

impl Next<'_> {
    /// Whether it is worth taking.
    #[inline(always)]
    pub(crate) fn is_there(self) -> bool {
        // Relaxed, both: `take` looks again before it uses anything.
        let notice = || self.notice.load(Ordering::Relaxed);
        self.tell.load(Ordering::Relaxed) != self.seen
            || notice() & NO_MORE != 0
            || notice() >> 1 > self.received
    }
}

/// The private side of the one who receives.
#[derive(Debug)]
pub(crate) struct Consumer {
    received: u64,
    key: u64,
    mask: u64,
    /// What each slot held when it was read last.
    seen: Box<[u64]>,
}

impl Consumer {
    /// For a zeroed ring of `slots` slots, a power of two.
    pub(crate) fn new(slots: u64) -> Self {
        let seen = vec![0; slots as usize].into_boxed_slice();
        Consumer { received: 0, key: key::of_lap(0), mask: slots - 1, seen }
    }

    /// Takes a value out. If it gives one, [`Consumer::is_due`] has to be asked.
    #[inline(always)]
    pub(crate) fn take<const LEAD: usize>(
        &mut self,
        words: Words<'_>,
    ) -> Result<([u64; LEAD], u64), Nothing> {
        let slot = (self.received & self.mask) as usize;
        let place = &words.slots[slot * (LEAD + 1)..][..=LEAD];
        // Acquire: pairs with the Release store in `offer`, for the words before it and for what
        // the producer wrote elsewhere.
        let mut wire = place[LEAD].load(Ordering::Acquire);
        if wire == self.seen[slot] {
            wire = self.look_beside(words, &place[LEAD], wire)?;
        }
        self.seen[slot] = wire;
        let mut lead = [0; LEAD];
        for (value, word) in lead.iter_mut().zip(place) {
            // Relaxed: the telling word or the notice made them visible.
            *value = word.load(Ordering::Relaxed);
        }
        let tell = wire ^ self.key;
        self.received += 1;
        if self.received & self.mask == 0 {
            self.key = key::of_lap(self.received / (self.mask + 1));
        }
        Ok((lead, tell))
    }

    /// What the next value changes.
    pub(crate) fn next<'a, const LEAD: usize>(&self, words: Words<'a>) -> Next<'a> {
        let slot = (self.received & self.mask) as usize;
        let tell = &words.slots[slot * (LEAD + 1) + LEAD];
        Next { tell, notice: words.notice, seen: self.seen[slot], received: self.received }
    }

    /// The slot has not changed; perhaps the notice speaks for it.
    #[inline]
    fn look_beside(&self, words: Words<'_>, tell: &AtomicU64, seen: u64) -> Result<u64, Nothing> {
        // Acquire: pairs with the Release stores in `announce` and `finish`, so that the slot read
        // after it is no older.
        let notice = words.notice.load(Ordering::Acquire);
        let announced = notice >> 1 > self.received;
        if !announced && notice & NO_MORE == 0 {
            return Err(Nothing::Yet);
        }
        // Acquire: as in `take`.
        let wire = tell.load(Ordering::Acquire);
        if announced || wire != seen { Ok(wire) } else { Err(Nothing::More) }
    }

    /// Whether the values taken out so far are to be published, so that the producer can fill their
    /// slots again.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        self.received & (interval(self.mask + 1) - 1) == 0
    }

    /// Publishes how many values were taken out.
    pub(crate) fn publish(&self, words: Words<'_>) {
        // Release: pairs with the Acquire in `Producer::look_for_room`.
        words.consumed.store(self.received, Ordering::Release);
    }
}
