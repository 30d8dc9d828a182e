//! Who still needs a buffer: one word that counts those who hold it, the messages under way that
//! refer to it, and how often it was taken.
//!
//! A buffer is free when nobody holds it and nothing under way refers to it. Whoever takes it is
//! its first holder and moves the generation on. A message counts from before it is sent until it
//! is opened; from then on its receiver is a holder. So a message that is opened twice can at worst
//! take the place of another one, which then finds nothing to open; nobody ever reads a buffer that
//! is not held for it.

use crate::sync::{AtomicU64, Ordering};

const COUNT_BITS: u32 = 16;
const MOST: u64 = (1 << COUNT_BITS) - 1;

/// How often a buffer was taken, modulo 2³².
pub(crate) type Generation = u32;

/// The reference does not, or no longer, hold the buffer; or there are too many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotHeld;

#[derive(Clone, Copy)]
struct State {
    generation: Generation,
    /// Messages that were sent and not opened.
    under_way: u64,
    holders: u64,
}

impl State {
    fn of(word: u64) -> State {
        State {
            generation: (word >> (2 * COUNT_BITS)) as Generation,
            under_way: word >> COUNT_BITS & MOST,
            holders: word & MOST,
        }
    }

    fn word(self) -> u64 {
        u64::from(self.generation) << (2 * COUNT_BITS) | self.under_way << COUNT_BITS | self.holders
    }

    /// `None` if a count leaves its range.
    fn with(self, under_way: i64, holders: i64) -> Option<State> {
        let moved =
            |count: u64, by: i64| count.checked_add_signed(by).filter(|count| *count <= MOST);
        let (under_way, holders) =
            (moved(self.under_way, under_way)?, moved(self.holders, holders)?);
        Some(State { under_way, holders, ..self })
    }
}

/// Takes the buffer if it is free.
pub(crate) fn take(word: &AtomicU64) -> Option<Generation> {
    let seen = word.load(Ordering::Relaxed);
    let State { generation, under_way, holders } = State::of(seen);
    if under_way != 0 || holders != 0 {
        return None;
    }
    let taken = State { generation: generation.wrapping_add(1), under_way, holders: 1 };
    // Acquire: pairs with the Release of `release`: the last holder has read what it wanted before
    // the new owner writes.
    let exchange = word.compare_exchange(seen, taken.word(), Ordering::Acquire, Ordering::Relaxed);
    exchange.ok().map(|_| taken.generation)
}

/// Counts a message that a holder is about to send.
pub(crate) fn send(word: &AtomicU64, generation: Generation) -> Result<(), NotHeld> {
    change(word, generation, 1, 0)
}

/// A message was not sent after all.
pub(crate) fn take_back(word: &AtomicU64, generation: Generation) -> Result<(), NotHeld> {
    change(word, generation, -1, 0)
}

/// Opens a message: its receiver holds the buffer. What the sender wrote is visible, because the
/// message was received.
pub(crate) fn open(word: &AtomicU64, generation: Generation) -> Result<(), NotHeld> {
    change(word, generation, -1, 1)
}

/// A holder lets go.
pub(crate) fn release(word: &AtomicU64, generation: Generation) -> Result<(), NotHeld> {
    change(word, generation, 0, -1)
}

/// Whether the buffer is free.
pub(crate) fn is_free(word: &AtomicU64) -> bool {
    // Acquire: pairs with the Release of `release`.
    let State { under_way, holders, .. } = State::of(word.load(Ordering::Acquire));
    under_way == 0 && holders == 0
}

fn change(
    word: &AtomicU64,
    generation: Generation,
    under_way: i64,
    holders: i64,
) -> Result<(), NotHeld> {
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        let state = State::of(seen);
        let after = state
            .with(under_way, holders)
            .filter(|_| state.generation == generation)
            .ok_or(NotHeld)?;
        // Release: pairs with the Acquire of `take`. AcqRel, so that the chain of holders carries
        // all their reading.
        match word.compare_exchange_weak(seen, after.word(), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return Ok(()),
            Err(other) => seen = other,
        }
    }
}
