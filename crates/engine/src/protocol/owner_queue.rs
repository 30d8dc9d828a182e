//! What others leave for a rank to do itself: a list that anyone appends to and its owner alone
//! reads.
//!
//! An entry carries its place, so that the owner can tell a written entry from one whose writer was
//! interrupted between taking the place and writing; it stops there and nobody waits. The writer
//! rings the owner's wakeup afterwards.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Appends `code`. `entries` has room for all that one use of the list can bring.
pub(crate) fn push(tail: &AtomicU32, entries: &[AtomicU64], code: u32) {
    // Relaxed: the place is only a number; what it stands for is published by the entry.
    let place = tail.fetch_add(1, Ordering::Relaxed);
    let entry = u64::from(place.wrapping_add(1)) << 32 | u64::from(code);
    // Release: pairs with the Acquire in `take`.
    entries[place as usize % entries.len()].store(entry, Ordering::Release);
}

/// Takes the oldest entry, if it is written. Only the owner calls this, one thread at a time.
pub(crate) fn take(head: &AtomicU32, entries: &[AtomicU64]) -> Option<u32> {
    let place = head.load(Ordering::Relaxed);
    // Acquire: pairs with the Release in `leave`.
    let entry = entries.get(place as usize % entries.len().max(1))?.load(Ordering::Acquire);
    if (entry >> 32) as u32 != place.wrapping_add(1) {
        return None;
    }
    head.store(place.wrapping_add(1), Ordering::Relaxed);
    Some(entry as u32)
}
