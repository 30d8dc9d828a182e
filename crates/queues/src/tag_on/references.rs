//! The reference count of a buffer: one word with the number of holders, the number of unopened
//! messages that refer to it, and its generation.
//!
//! A buffer is free when it has no holder and no unopened message. Taking it makes the caller its
//! first holder and increments the generation. A message counts as unopened from before its send
//! until it is opened; then its receiver is a holder. So a message that is opened twice can at
//! worst consume the count of another message, which then cannot be opened; a buffer is never read
//! without a reference to it.

use crate::sync::{AtomicU64, Ordering};

const COUNT_BITS: u32 = 16;
const MOST: u64 = (1 << COUNT_BITS) - 1;

/// Number of times that a buffer was taken, modulo 2³².
pub(crate) type Generation = u32;

/// The reference is of another generation, or a count would leave its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotReferenced;

#[derive(Clone, Copy)]
struct ReferenceCounts {
    generation: Generation,
    /// Messages that are sent and not opened.
    in_flight: u64,
    holders: u64,
}

impl ReferenceCounts {
    fn of(word: u64) -> ReferenceCounts {
        ReferenceCounts {
            generation: (word >> (2 * COUNT_BITS)) as Generation,
            in_flight: word >> COUNT_BITS & MOST,
            holders: word & MOST,
        }
    }

    fn word(self) -> u64 {
        u64::from(self.generation) << (2 * COUNT_BITS) | self.in_flight << COUNT_BITS | self.holders
    }

    /// Adds to both counts; `None` if one would leave its range.
    fn with(self, in_flight: i64, holders: i64) -> Option<ReferenceCounts> {
        let moved =
            |count: u64, by: i64| count.checked_add_signed(by).filter(|count| *count <= MOST);
        let in_flight = moved(self.in_flight, in_flight)?;
        let holders = moved(self.holders, holders)?;
        Some(ReferenceCounts { in_flight, holders, ..self })
    }
}

/// The word of a buffer of a generation with so many holders and unopened messages.
#[allow(dead_code, reason = "the loom models have no other nodes")]
pub(crate) fn word(generation: Generation, holders: u16, in_flight: u16) -> u64 {
    ReferenceCounts { generation, in_flight: in_flight.into(), holders: holders.into() }.word()
}

/// The generation of a word.
#[allow(dead_code, reason = "the loom models have no other nodes")]
pub(crate) fn generation(word: u64) -> Generation {
    ReferenceCounts::of(word).generation
}

/// Takes the buffer if it is free.
pub(crate) fn take(word: &AtomicU64) -> Option<Generation> {
    // Relaxed: the exchange below decides, and fails if any count has changed since.
    let seen = word.load(Ordering::Relaxed);
    let ReferenceCounts { generation, in_flight, holders } = ReferenceCounts::of(seen);
    if in_flight != 0 || holders != 0 {
        return None;
    }
    let taken = ReferenceCounts { generation: generation.wrapping_add(1), in_flight, holders: 1 };
    // Acquire: pairs with the Release of `release`. The reads of the last holder come before the
    // writes of the new one.
    let exchange = word.compare_exchange(seen, taken.word(), Ordering::Acquire, Ordering::Relaxed);
    exchange.ok().map(|_| taken.generation)
}

/// Counts a message that a holder is about to send. Before the send: a receiver that opens the
/// message at once finds it counted.
pub(crate) fn send(word: &AtomicU64, generation: Generation) -> Result<(), NotReferenced> {
    change(word, generation, 1, 0)
}

/// Uncounts a message after its send failed.
pub(crate) fn take_back(word: &AtomicU64, generation: Generation) -> Result<(), NotReferenced> {
    change(word, generation, -1, 0)
}

/// Opens a message: its receiver becomes a holder. The sender's writes are visible, because the
/// message was received.
pub(crate) fn open(word: &AtomicU64, generation: Generation) -> Result<(), NotReferenced> {
    change(word, generation, -1, 1)
}

/// Releases a holder's reference.
pub(crate) fn release(word: &AtomicU64, generation: Generation) -> Result<(), NotReferenced> {
    change(word, generation, 0, -1)
}

/// Returns true if the buffer is free.
pub(crate) fn is_free(word: &AtomicU64) -> bool {
    // Acquire: pairs with the Release of `release`.
    let ReferenceCounts { in_flight, holders, .. } =
        ReferenceCounts::of(word.load(Ordering::Acquire));
    in_flight == 0 && holders == 0
}

fn change(
    word: &AtomicU64,
    generation: Generation,
    in_flight: i64,
    holders: i64,
) -> Result<(), NotReferenced> {
    // Relaxed: as in `take`. Both counts and the generation share the word, so the exchange checks
    // all three: a reference of a former generation leaves the counts of the present one unchanged.
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        let state = ReferenceCounts::of(seen);
        let after = state
            .with(in_flight, holders)
            .filter(|_| state.generation == generation)
            .ok_or(NotReferenced)?;
        // Release: pairs with the Acquire of `take`. AcqRel, so that the release of the last holder
        // also orders the reads of all earlier ones.
        match word.compare_exchange_weak(seen, after.word(), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return Ok(()),
            Err(other) => seen = other,
        }
    }
}
