//! List of new rings: any process pushes, the owner takes all.
//!
//! The list is linked through a word of each ring. A push is one compare-exchange, so a process that
//! is killed has pushed its ring or not.

use crate::sync::{AtomicU64, Ordering};

/// End of the list, and the empty list. No ring lies at the start of a segment.
pub(crate) const END: u64 = 0;

/// Pushes the ring at offset `ring`, with the link `next`. No other process has the offset yet.
pub(crate) fn push(head: &AtomicU64, next: &AtomicU64, ring: u64) {
    let mut first = head.load(Ordering::Relaxed);
    loop {
        // Relaxed: the exchange publishes it.
        next.store(first, Ordering::Relaxed);
        // Release: pairs with the Acquire in `take_all`: the ring and its link are complete. Later
        // pushes are read-modify-writes of the same word, so they continue the release sequence.
        match head.compare_exchange(first, ring, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(found) => first = found,
        }
    }
}

/// Takes the whole list and returns its first ring, or [`END`]. The link of each ring leads to the
/// next one.
pub(crate) fn take_all(head: &AtomicU64) -> u64 {
    // Relaxed: a hint, so that an empty list costs no exchange.
    if head.load(Ordering::Relaxed) == END {
        return END;
    }
    // Acquire: pairs with the Release in `push`. Clearing all bits returns and empties in one step.
    head.fetch_and(END, Ordering::Acquire)
}
