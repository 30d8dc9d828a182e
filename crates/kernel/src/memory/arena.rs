//! Allocation of a rank's arena.

use crate::memory::layout::ARENA_BYTES;
use std::collections::BTreeMap;

/// Alignment of allocations: a cache line.
pub(crate) const ALIGNMENT: u32 = 64;

/// Free ranges, by offset. No two of them are adjacent. Offset 0 is never allocated: it means
/// "none" to the program.
///
/// The list is private to the rank. A list inside the arena would be shared with the program, which
/// trusts nothing there.
#[derive(Debug)]
pub(crate) struct Arena {
    free: BTreeMap<u32, u32>,
}

impl Arena {
    pub(crate) fn new() -> Self {
        Arena { free: BTreeMap::from([(ALIGNMENT, ARENA_BYTES as u32 - ALIGNMENT)]) }
    }

    /// Allocates the first range that is large enough.
    pub(crate) fn allocate(&mut self, bytes: u32) -> Option<u32> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let (start, length) = self
            .free
            .iter()
            .map(|(start, length)| (*start, *length))
            .find(|(_, length)| *length >= bytes)?;
        // Starts and lengths are multiples of the alignment, so the rest is aligned as well.
        self.free.remove(&start);
        if length > bytes {
            self.free.insert(start + bytes, length - bytes);
        }
        Some(start)
    }

    /// Allocates at the end of the last range that is large enough; `None` if the allocation would
    /// begin before `behind`.
    pub(crate) fn allocate_last(&mut self, bytes: u32, behind: u32) -> Option<u32> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let ranges = self.free.iter().map(|(start, length)| (*start, *length));
        let (start, length) = ranges.rev().find(|(_, length)| *length >= bytes)?;
        let offset = start + length - bytes;
        // Ranges before this one are lower still, so no other one can satisfy the limit.
        if offset < behind {
            return None;
        }
        self.free.remove(&start);
        if length > bytes {
            self.free.insert(start, length - bytes);
        }
        Some(offset)
    }

    /// Frees an allocation of the same number of bytes.
    pub(crate) fn free(&mut self, start: u32, bytes: u32) {
        // Merges with both neighbours: the list never contains adjacent ranges, so one step in each
        // direction suffices, and a later allocation sees the largest possible range.
        let mut start = start;
        let mut length = bytes.max(1).next_multiple_of(ALIGNMENT);
        if let Some((before, before_length)) =
            self.free.range(..start).next_back().map(|(offset, length)| (*offset, *length))
            && before + before_length == start
        {
            self.free.remove(&before);
            (start, length) = (before, before_length + length);
        }
        if let Some(after) = self.free.remove(&(start + length)) {
            length += after;
        }
        self.free.insert(start, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Allocations are disjoint and within the arena, and all memory returns.
        #[test]
        fn allocations_are_disjoint(sizes in prop::collection::vec((1u32..200_000, any::<bool>()), 1..100)) {
            let mut arena = Arena::new();
            let mut taken: Vec<(u32, u32)> = Vec::new();
            for (bytes, keep) in sizes {
                let offset = if bytes % 2 == 0 { arena.allocate(bytes) } else { arena.allocate_last(bytes, 1 << 20) };
                if let Some(offset) = offset {
                    prop_assert!(bytes % 2 == 0 || offset >= 1 << 20);
                    prop_assert!(offset >= ALIGNMENT && offset % ALIGNMENT == 0 && (offset + bytes) as usize <= ARENA_BYTES);
                    prop_assert!(taken.iter().all(|(other, length)| offset + bytes <= *other || other + length <= offset));
                    taken.push((offset, bytes));
                }
                if !keep && !taken.is_empty() {
                    let (offset, bytes) = taken.swap_remove(bytes as usize % taken.len());
                    arena.free(offset, bytes);
                }
            }
            for (offset, bytes) in taken {
                arena.free(offset, bytes);
            }
            prop_assert_eq!(arena.free, Arena::new().free);
        }
    }
}
