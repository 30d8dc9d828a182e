//! Who has come to a collective: one word a rank, each in a line of its own, written by its rank
//! alone.
//!
//! To arrive is one plain store, so that the processor goes on while the line travels; with it
//! comes the rank's small contribution, which lies in the same line. Whoever wants to know whether
//! all have come looks at every word. Words carry the run's number and grow; nothing is ever reset.
//!
//! Sleeping costs the one who sleeps: it marks one word of the communicator, runs a heavy fence and
//! looks again. Whoever arrives looks at that mark, which is in its cache as long as nobody sleeps.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, heavy_fence, light_fence};

/// Low bits of a word: what the rank called.
const DIGEST_BITS: u32 = 24;

/// The word of a rank that arrived to run `run` with a call of this stamp.
#[inline]
pub(crate) fn word(run: u64, stamp: u32) -> u64 {
    // One more than the number, so that zeroed memory is the word of no run.
    run.wrapping_add(1) << DIGEST_BITS | u64::from(stamp & ((1 << DIGEST_BITS) - 1))
}

/// The stamp that a word carries.
#[inline]
pub(crate) fn digest_of(word: u64) -> u32 {
    word as u32 & ((1 << DIGEST_BITS) - 1)
}

/// Whether the rank whose word this is has come to run `run`. What it wrote before it arrived is then
/// visible.
#[inline]
pub(crate) fn has_arrived(word: &AtomicU64, run: u64) -> bool {
    let expected = run.wrapping_add(1) << DIGEST_BITS;
    // Acquire: pairs with the Release in `arrive`. Run numbers wrap at 2⁴⁰, so what counts is the
    // sign of the difference.
    (word.load(Ordering::Acquire) & !((1 << DIGEST_BITS) - 1)).wrapping_sub(expected).cast_signed()
        >= 0
}

/// Comes to a run. `mine` is this rank's word, `value` comes from [`word`].
#[inline]
pub(crate) fn arrive(mine: &AtomicU64, value: u64) {
    // Release: pairs with the Acquire in `has_arrived`.
    mine.store(value, Ordering::Release);
}

/// After [`arrive`]: whether sleepers are to be woken. `have_all_arrived` looks at every word.
#[inline]
pub(crate) fn must_wake(sleepers: &AtomicU32, have_all_arrived: impl FnOnce() -> bool) -> bool {
    light_fence();
    // Partner of the marking in `mark`: either this sees the mark, or the sleeper sees the arrival.
    sleepers.load(Ordering::Relaxed) & 1 != 0 && take_mark(sleepers, have_all_arrived)
}

#[cold]
fn take_mark(sleepers: &AtomicU32, have_all_arrived: impl FnOnce() -> bool) -> bool {
    // Of two ranks that arrive last at once, at least one sees the other.
    fence(Ordering::SeqCst);
    if !have_all_arrived() {
        return false;
    }
    // The value changes, so that a sleeper that is just about to sleep does not. AcqRel: the
    // sleeper that finds the new value sees the arrivals.
    let seen = sleepers.load(Ordering::Relaxed);
    seen & 1 != 0
        && sleepers
            .compare_exchange(seen, seen.wrapping_add(1), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
}

/// Before a sleep: marks the word, and gives the value to sleep on unless `is_over` says that there
/// is nothing to wait for.
pub(crate) fn mark(sleepers: &AtomicU32, is_over: impl FnOnce() -> bool) -> Option<u32> {
    let seen = sleepers.fetch_or(1, Ordering::AcqRel) | 1;
    heavy_fence();
    // The mark stays when there is no need to sleep: another may need it, and a needless wake harms
    // nobody.
    (!is_over()).then_some(seen)
}
