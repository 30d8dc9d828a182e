//! Ranks that are short of memory, as the ranks of a node see each other.

use shm::futex;
use shm::sync::{AtomicU32, Ordering};
use std::time::Duration;

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
        mark.store(1, Ordering::Relaxed);
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

/// Returns whether the rank with this mark is counted as short.
pub(crate) fn is_marked(mark: &AtomicU32) -> bool {
    mark.load(Ordering::Relaxed) != 0
}
