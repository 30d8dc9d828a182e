//! Entries through which ranks agree on the block of a linked schedule without waiting.
//!
//! Every rank links the same schedules, so the ranks need to agree only on the place of the memory.
//! The first rank that links allocates a block and publishes it in the entry of the link's sequence
//! number; the others find it there. An entry is used again by a link [`ENTRIES`] numbers later,
//! once every rank is past the older link.

use crate::sync::{AtomicU64, Ordering};

/// Number of entries of a communicator.
pub(crate) const ENTRIES: u64 = 64;

/// Blocks begin at multiples of this.
const ALIGNMENT: u64 = 64;

/// Number of low bits of an entry that hold the block's offset, divided by the alignment.
const OFFSET_BITS: u32 = 40;

/// The block of a link, as one rank finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// A rank has published the block at this offset.
    Published(u64),
    /// No rank has published it. The entry has this content and may be replaced.
    Free(u64),
    /// The entry holds an older link, and a rank may not have read it yet.
    Busy,
}

/// A rank's progress through the links of a communicator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkProgress<'a> {
    /// Number of collectives that the rank has started.
    pub(crate) started: &'a AtomicU64,
    /// One more than the number of the oldest link that the rank has started without having found
    /// its block; 0 if there is none.
    pub(crate) oldest_pending: &'a AtomicU64,
}

impl LinkProgress<'_> {
    /// Records, before the collective of this number starts, that its block is not known yet.
    pub(crate) fn record_pending(&self, oldest: u64) {
        // Relaxed: the Release of the started count, which follows, publishes the word.
        self.oldest_pending.store(oldest + 1, Ordering::Relaxed);
    }

    /// Records that the rank has found the block of a link; `oldest` is the oldest one that is left.
    pub(crate) fn record_found(&self, oldest: Option<u64>) {
        // Release: pairs with the Acquire in `is_past`. The rank has read the entry before.
        self.oldest_pending.store(oldest.map_or(0, |oldest| oldest + 1), Ordering::Release);
    }

    /// Returns whether the rank will not read the entry of link `sequence` any more.
    pub(crate) fn is_past(&self, sequence: u64) -> bool {
        // Acquire, in this order: the count pairs with the Release of the rank's start. A rank that
        // has started the link is therefore seen with the word of `record_pending` or a later one.
        let has_started = self.started.load(Ordering::Acquire) > sequence;
        let pending = self.oldest_pending.load(Ordering::Acquire);
        has_started && (pending == 0 || pending - 1 > sequence)
    }
}

/// Returns the content of an entry with the block of link `sequence` at `offset`, which is not 0.
fn content(sequence: u64, offset: u64) -> u64 {
    // The shift removes all but 24 bits of the lap.
    ((sequence / ENTRIES) << OFFSET_BITS) | (offset / ALIGNMENT)
}

/// Looks up the block of link `sequence`. `is_of` returns whether the block at an offset belongs to
/// this link, and `is_past` whether every rank is past an older one.
pub(crate) fn look_up(
    entry: &AtomicU64,
    sequence: u64,
    is_of: impl Fn(u64) -> bool,
    is_past: impl Fn(u64) -> bool,
) -> Lookup {
    // Acquire: pairs with the Release in `publish`, so the block's header is visible.
    let seen = entry.load(Ordering::Acquire);
    if seen == 0 {
        return Lookup::Free(seen);
    }
    let offset = (seen & ((1 << OFFSET_BITS) - 1)) * ALIGNMENT;
    let laps = (content(sequence, 0) >> OFFSET_BITS).wrapping_sub(seen >> OFFSET_BITS)
        & ((1 << (u64::BITS - OFFSET_BITS)) - 1);
    // The lap alone repeats after 2³⁰ collectives; the block's header has the full number. A block
    // that was freed and is being prepared again for this link is not taken for published: its
    // entry still has the lap of the older link.
    if laps == 0 {
        return if is_of(offset) { Lookup::Published(offset) } else { Lookup::Free(seen) };
    }
    // The entry cannot hold a later link: a rank publishes that only if this rank is past this one.
    if is_past(sequence.wrapping_sub(laps * ENTRIES)) { Lookup::Free(seen) } else { Lookup::Busy }
}

/// Publishes the block of link `sequence` at `offset` in an entry that [`look_up`] found free.
/// Returns `false` if another rank has published one.
pub(crate) fn publish(entry: &AtomicU64, seen: u64, sequence: u64, offset: u64) -> bool {
    // Release: pairs with the Acquire in `look_up`. Failure publishes and reads nothing: the caller
    // looks up again.
    entry
        .compare_exchange(seen, content(sequence, offset), Ordering::Release, Ordering::Relaxed)
        .is_ok()
}
