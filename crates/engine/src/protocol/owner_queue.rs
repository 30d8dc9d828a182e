//! Queue of tasks that only their owner may execute: any process appends, the owner reads.
//!
//! An entry carries its position, so the owner can distinguish a written entry from a reserved one:
//! a writer may be interrupted between reserving the position and writing. The owner stops there and
//! does not wait; the writer notifies the owner after the write.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Appends `code`. `entries` has space for all entries of one use of the queue.
pub(crate) fn push(tail: &AtomicU32, entries: &[AtomicU64], code: u32) {
    // Relaxed: the position is only a number; the entry itself is published by the store below.
    let position = tail.fetch_add(1, Ordering::Relaxed);
    // The position plus one: a zeroed entry is then never valid. Entries of earlier uses have
    // smaller positions, so they are not valid either.
    let entry = u64::from(position.wrapping_add(1)) << 32 | u64::from(code);
    // Release: pairs with the Acquire in `take`. The operation's inputs were written before.
    entries[position as usize % entries.len()].store(entry, Ordering::Release);
}

/// Takes the oldest entry if it has been written. Only one thread of the owner may call this at a
/// time.
pub(crate) fn take(head: &AtomicU32, entries: &[AtomicU64]) -> Option<u32> {
    // Relaxed: only the owner accesses `head`; its threads are ordered by a lock.
    let position = head.load(Ordering::Relaxed);
    // Acquire: pairs with the Release in `push`.
    let entry = entries.get(position as usize % entries.len().max(1))?.load(Ordering::Acquire);
    // A writer that died before its store blocks the entries behind it. The run then never
    // completes, and the waiters' liveness check reports the death.
    if (entry >> 32) as u32 != position.wrapping_add(1) {
        return None;
    }
    head.store(position.wrapping_add(1), Ordering::Relaxed);
    Some(entry as u32)
}
