//! Ranks that are short of memory, as the ranks of a node see each other.
//!
//! The mark of a short rank is the time at which it last was blocked: all its runs lacked ranks
//! that were blocked themselves. It is renewed in each wait and test of a run. The mark of a rank
//! that computes becomes old, so the rank counts as late, as does a rank with a run that lacks a late
//! one. In a cycle each rank is blocked only if the others are. Therefore a short rank is taken for
//! blocked at first, and again from time to time.

use shm::clock::monotonic_nanoseconds;
use shm::futex;
use shm::sync::{AtomicU32, Ordering};
use std::time::Duration;

/// Milliseconds for which a rank counts as blocked after it was.
const BLOCKED_FOR: u32 = 1000;

/// Milliseconds after which a short rank that was not blocked is taken for blocked again.
const ASSUMED_AFTER: u32 = 5 * BLOCKED_FOR;

shm::shared_lines! {
    /// A word of the job that ranks read in every wait.
    pub(crate) struct ShortageLine {
        /// Number of ranks with runs that wait for memory; a futex. It publishes nothing.
        ranks: AtomicU32,
    }
}

impl ShortageLine {
    /// Returns whether a rank is short.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.ranks.load(Ordering::Relaxed) != 0
    }

    /// Counts the rank with this mark, and wakes the ranks that can free memory. A rank that is
    /// counted ends its shortage first.
    pub(crate) fn begin(&self, mark: &AtomicU32) {
        // Counted before it is marked: a rank that dies between the two leaves a count that is too
        // large, and relief without need, not one below 0.
        self.ranks.fetch_add(1, Ordering::Relaxed);
        mark.store(now(), Ordering::Relaxed);
        self.wake();
    }

    /// Ends the shortage of a rank, if it is counted: by the rank, or when it has left.
    pub(crate) fn end(&self, mark: &AtomicU32) {
        // Exactly one of several callers takes the mark, so the count falls once.
        if mark.swap(0, Ordering::Relaxed) != 0 {
            self.ranks.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Waits until a rank is short, at most `limit`.
    pub(crate) fn wait(&self, limit: Duration) {
        futex::wait(&self.ranks, 0, Some(limit));
    }

    /// Ends the waits of all ranks.
    pub(crate) fn wake(&self) {
        futex::wake_all(&self.ranks);
    }
}

/// Returns the time in milliseconds, which wraps around; never 0.
fn now() -> u32 {
    ((monotonic_nanoseconds() / 1_000_000) as u32).max(1)
}

/// Returns whether the rank with this mark is short and blocked.
pub(crate) fn is_blocked(mark: &AtomicU32) -> bool {
    let blocked_at = mark.load(Ordering::Relaxed);
    blocked_at != 0 && now().wrapping_sub(blocked_at) <= BLOCKED_FOR
}

/// Records in its mark whether a short rank is blocked now.
pub(crate) fn record(mark: &AtomicU32, is_blocked: bool) {
    // Relaxed, as everywhere in this module: the mark publishes nothing.
    let blocked_at = mark.load(Ordering::Relaxed);
    let now = now();
    if blocked_at != 0 && (is_blocked || now.wrapping_sub(blocked_at) > ASSUMED_AFTER) {
        // Fails if the shortage has ended meanwhile, which `end` has counted.
        let _ = mark.compare_exchange(blocked_at, now, Ordering::Relaxed, Ordering::Relaxed);
    }
}
