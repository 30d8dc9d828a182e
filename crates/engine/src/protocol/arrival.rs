//! Arrival flags: one word for each rank, in a line of its own, written by its rank only.
//!
//! Arriving is one plain store, so the processor continues while the line is transferred. The
//! rank's small contribution lies in the same line and is transferred with it. A waiter reads the
//! word of every rank it waits for. Words carry the run number and increase; they are never reset.
//!
//! The sleeper bears the cost of sleeping: it marks one word of the communicator, executes a heavy
//! fence and polls again. An arriving rank only reads that word, which stays in its cache while no
//! rank sleeps.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, heavy_fence, light_fence};

/// Number of low bits of a word that hold the digest of the rank's call.
const DIGEST_BITS: u32 = 24;

/// Returns the word of a rank that arrived at run `run` with a call of this digest.
#[inline]
pub(crate) fn word(run: u64, digest: u32) -> u64 {
    // The run number plus one: zeroed memory is then the word of no run.
    run.wrapping_add(1) << DIGEST_BITS | u64::from(digest & ((1 << DIGEST_BITS) - 1))
}

/// Returns the digest in a word.
#[inline]
pub(crate) fn digest_of(word: u64) -> u32 {
    word as u32 & ((1 << DIGEST_BITS) - 1)
}

/// Returns whether the owner of `word` has arrived at run `run`. If so, all its writes before the
/// arrival are visible.
#[inline]
pub(crate) fn has_arrived(word: &AtomicU64, run: u64) -> bool {
    let expected = run.wrapping_add(1) << DIGEST_BITS;
    // Acquire: pairs with the Release in `arrive`. A later run also counts: the owner starts it
    // only after this one. Run numbers wrap at 2⁴⁰, so the sign of the difference decides; two
    // words compared here are never more than the number of slots apart, or refreshed before they
    // are.
    (word.load(Ordering::Acquire) & !((1 << DIGEST_BITS) - 1)).wrapping_sub(expected).cast_signed()
        >= 0
}

/// Publishes the arrival at a run. `mine` is this rank's word, `value` comes from [`word`].
#[inline]
pub(crate) fn arrive(mine: &AtomicU64, value: u64) {
    // Release: pairs with the Acquire in `has_arrived`; the contribution was written before. A
    // plain store suffices because only this rank writes the word.
    mine.store(value, Ordering::Release);
}

/// Returns, after [`arrive`], whether this rank must wake the sleepers. `have_all_arrived` reads
/// every word.
#[inline]
pub(crate) fn must_wake(sleepers: &AtomicU32, have_all_arrived: impl FnOnce() -> bool) -> bool {
    // Store the arrival, then load the mark; `mark` stores the mark, then loads the arrivals. With
    // a fence on both sides (Dekker), at least one side sees the other's store: either this rank
    // sees the mark, or the sleeper sees the arrival and does not sleep. The light fence costs
    // nothing here, because the heavy fence in `mark` makes every processor that runs a registered
    // process execute one.
    light_fence();
    sleepers.load(Ordering::Relaxed) & 1 != 0 && take_mark(sleepers, have_all_arrived)
}

#[cold]
fn take_mark(sleepers: &AtomicU32, have_all_arrived: impl FnOnce() -> bool) -> bool {
    // If two ranks arrive last at the same time, at least one of them sees the other's arrival and
    // wakes the sleepers.
    fence(Ordering::SeqCst);
    if !have_all_arrived() {
        return false;
    }
    // The futex compares the word with the value the sleeper saw. Changing the value here prevents
    // a sleeper between its last poll and its futex call from sleeping. AcqRel: a sleeper that
    // finds the new value sees the arrivals.
    let seen = sleepers.load(Ordering::Relaxed);
    // A failed exchange means that another rank has taken the mark and wakes the sleepers, or that
    // a new sleeper has marked the word and polls again by itself.
    seen & 1 != 0
        && sleepers
            .compare_exchange(seen, seen.wrapping_add(1), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
}

/// A marked word of sleepers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SleepMark {
    /// Value to sleep on.
    pub(crate) value: u32,
    /// False if an arrival may have been missed, so that the sleep must be short.
    pub(crate) certain: bool,
}

/// Marks the word before a sleep. Returns `None` if `is_over` reports that the wait has ended.
pub(crate) fn mark(sleepers: &AtomicU32, is_over: impl FnOnce() -> bool) -> Option<SleepMark> {
    let value = sleepers.fetch_or(1, Ordering::AcqRel) | 1;
    // Partner of the light fence in `must_wake`.
    let certain = heavy_fence();
    // The mark stays if the wait has ended: another sleeper may need it, and an unnecessary wake is
    // harmless.
    (!is_over()).then_some(SleepMark { value, certain })
}
