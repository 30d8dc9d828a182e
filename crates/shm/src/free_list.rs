//! Which parts of a range of numbers are free: best fit, neighbours joined. It knows nothing of
//! memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Everything is a multiple of this many bytes, so that two allocations never share a cache line.
pub(crate) const GRANULE: u64 = 64;

/// The free pieces of a range, once by place and once by size.
#[derive(Debug)]
pub(crate) struct FreeList {
    /// start → length; pieces never touch each other, because neighbours are joined.
    by_place: BTreeMap<u64, u64>,
    /// (length, start) of the same pieces.
    by_size: BTreeSet<(u64, u64)>,
}

impl FreeList {
    /// All of `range` is free.
    pub(crate) fn new(range: Range<u64>) -> Self {
        let mut list = FreeList { by_place: BTreeMap::new(), by_size: BTreeSet::new() };
        if range.start < range.end {
            list.insert(range.start, range.end - range.start);
        }
        list
    }

    /// Where `length` bytes aligned to `alignment` fit best: the smallest piece that holds them,
    /// the lowest of equals.
    pub(crate) fn find(&self, length: u64, alignment: u64) -> Option<u64> {
        self.by_size.range((length, 0)..).find_map(|&(piece_length, piece)| {
            let start = piece.checked_next_multiple_of(alignment)?;
            let padding = start - piece;
            (padding.checked_add(length)? <= piece_length).then_some(start)
        })
    }

    /// Takes `length` bytes at `start` out of the list. They must be free: what [`FreeList::find`]
    /// gave.
    pub(crate) fn take(&mut self, start: u64, length: u64) {
        let Some((&piece, &piece_length)) = self.by_place.range(..=start).next_back() else {
            return debug_assert!(false, "taking what is not free");
        };
        let (end, piece_end) = (start + length, piece + piece_length);
        debug_assert!(end <= piece_end, "taking more than is free");
        self.remove(piece, piece_length);
        if piece < start {
            self.insert(piece, start - piece);
        }
        if end < piece_end {
            self.insert(end, piece_end - end);
        }
    }

    /// Puts `length` bytes at `start` back and joins them with free neighbours.
    pub(crate) fn give_back(&mut self, start: u64, length: u64) {
        let (mut start, mut end) = (start, start + length);
        let before =
            self.by_place.range(..start).next_back().map(|(&piece, &length)| (piece, length));
        if let Some((piece, length)) = before.filter(|&(piece, length)| piece + length == start) {
            self.remove(piece, length);
            start = piece;
        }
        if let Some(&length) = self.by_place.get(&end) {
            self.remove(end, length);
            end += length;
        }
        self.insert(start, end - start);
    }

    /// The longest free piece, in bytes.
    pub(crate) fn largest(&self) -> u64 {
        self.by_size.last().map_or(0, |&(length, _)| length)
    }

    fn insert(&mut self, start: u64, length: u64) {
        self.by_place.insert(start, length);
        self.by_size.insert((length, start));
    }

    fn remove(&mut self, start: u64, length: u64) {
        self.by_place.remove(&start);
        self.by_size.remove(&(length, start));
    }
}
