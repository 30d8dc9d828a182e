//! Free ranges of an interval of numbers: best fit, with adjacent ranges merged.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Allocation unit in bytes: two allocations never share a cache line.
pub(crate) const GRANULE: u64 = 64;

/// Free ranges, indexed by start and by length.
#[derive(Debug)]
pub(crate) struct FreeList {
    /// start → length. Ranges never touch each other, because adjacent ones are merged.
    by_start: BTreeMap<u64, u64>,
    /// (length, start) of the same ranges.
    by_length: BTreeSet<(u64, u64)>,
}

impl FreeList {
    /// Creates a list in which all of `range` is free.
    pub(crate) fn new(range: Range<u64>) -> Self {
        let mut list = FreeList { by_start: BTreeMap::new(), by_length: BTreeSet::new() };
        if range.start < range.end {
            list.insert(range.start, range.end - range.start);
        }
        list
    }

    /// Returns the best start for `length` bytes aligned to `alignment`: in the smallest range that
    /// holds them, the lowest of equals.
    pub(crate) fn find(&self, length: u64, alignment: u64) -> Option<u64> {
        // From the smallest range that is long enough. It may lack space behind its first aligned
        // start, so the search goes on.
        self.by_length.range((length, 0)..).find_map(|&(free_length, free)| {
            let start = free.checked_next_multiple_of(alignment)?;
            let padding = start - free;
            (padding.checked_add(length)? <= free_length).then_some(start)
        })
    }

    /// Removes `length` bytes at `start`, which [`FreeList::find`] returned, from the list.
    pub(crate) fn take(&mut self, start: u64, length: u64) {
        let Some((&free, &free_length)) = self.by_start.range(..=start).next_back() else {
            return debug_assert!(false, "the range is not free");
        };
        let end = start + length;
        let free_end = free + free_length;
        debug_assert!(end <= free_end, "part of the range is not free");
        // Both indices change together: `remove` and `insert` are the only functions that write
        // them.
        self.remove(free, free_length);
        if free < start {
            self.insert(free, start - free);
        }
        if end < free_end {
            self.insert(end, free_end - end);
        }
    }

    /// Inserts `length` bytes at `start` and merges them with adjacent free ranges.
    pub(crate) fn insert_merged(&mut self, start: u64, length: u64) {
        let mut start = start;
        let mut end = start + length;
        // No two free ranges touch, so one neighbour on each side is all there can be.
        let before =
            self.by_start.range(..start).next_back().map(|(&free, &length)| (free, length));
        if let Some((free, length)) = before.filter(|&(free, length)| free + length == start) {
            self.remove(free, length);
            start = free;
        }
        if let Some(&length) = self.by_start.get(&end) {
            self.remove(end, length);
            end += length;
        }
        self.insert(start, end - start);
    }

    /// Returns the length of the largest free range, in bytes.
    pub(crate) fn largest(&self) -> u64 {
        self.by_length.last().map_or(0, |&(length, _)| length)
    }

    fn insert(&mut self, start: u64, length: u64) {
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
    }

    fn remove(&mut self, start: u64, length: u64) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
    }
}
