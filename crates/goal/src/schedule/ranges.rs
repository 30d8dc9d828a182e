//! Ranges of bytes and whether they overlap.

use super::records::{BlockRecord, SCRATCHPAD};
use crate::graph::{Block, Memory};

/// A range of bytes, never empty, in a memory that has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ByteRange {
    /// The number of a user buffer, or [`SCRATCHPAD`].
    pub(crate) memory: u32,
    /// First byte.
    pub(crate) start: u64,
    /// One past the last byte.
    pub(crate) end: u64,
}

impl ByteRange {
    /// The bytes of a block, if it has any and a place.
    pub(crate) fn of_block(block: &Block) -> Option<ByteRange> {
        let memory = match block.memory {
            Memory::Buffer(number) => number,
            Memory::Scratchpad => SCRATCHPAD,
            Memory::Unplaced => return None,
        };
        ByteRange::new(memory, block.offset, block.length)
    }

    /// The bytes of a record, if it has any.
    pub(crate) fn of_record(block: &BlockRecord) -> Option<ByteRange> {
        ByteRange::new(block.memory, block.offset, block.length)
    }

    fn new(memory: u32, start: u64, length: u64) -> Option<ByteRange> {
        (length > 0).then(|| ByteRange { memory, start, end: start.saturating_add(length) })
    }

    /// Returns the bytes in both ranges.
    pub(crate) fn common(self, other: ByteRange) -> Option<ByteRange> {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        (self.memory == other.memory && start < end).then_some(ByteRange {
            memory: self.memory,
            start,
            end,
        })
    }
}

/// Returns `true` if two ranges of the list share a byte.
pub(crate) fn overlap_within(ranges: impl Iterator<Item = ByteRange>) -> bool {
    let mut ranges: Vec<ByteRange> = ranges.collect();
    ranges.sort_unstable();
    ranges.windows(2).any(|pair| pair[0].common(pair[1]).is_some())
}

/// Returns `true` if a range of one list shares a byte with a range of the other.
pub(crate) fn overlap_between(
    left: impl Iterator<Item = ByteRange>,
    right: impl Iterator<Item = ByteRange>,
) -> bool {
    let mut ranges: Vec<(ByteRange, usize)> =
        left.map(|range| (range, 0)).chain(right.map(|range| (range, 1))).collect();
    ranges.sort_unstable();
    let mut furthest: [Option<ByteRange>; 2] = [None, None];
    for (range, side) in ranges {
        if furthest[1 - side].is_some_and(|other| other.common(range).is_some()) {
            return true;
        }
        let mine = &mut furthest[side];
        if mine.is_none_or(|known| known.memory != range.memory || known.end < range.end) {
            *mine = Some(range);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(list: &[(u32, u64, u64)]) -> impl Iterator<Item = ByteRange> {
        list.iter().map(|&(memory, start, end)| ByteRange { memory, start, end })
    }

    #[test]
    fn neighbours_do_not_overlap() {
        assert!(!overlap_within(ranges(&[(0, 4, 8), (0, 0, 4), (1, 0, 8)])));
        assert!(!overlap_between(ranges(&[(0, 0, 4)]), ranges(&[(0, 4, 8), (1, 0, 4)])));
    }

    #[test]
    fn one_shared_byte_is_found() {
        assert!(overlap_within(ranges(&[(0, 4, 8), (0, 0, 5)])));
        assert!(overlap_between(ranges(&[(0, 0, 4)]), ranges(&[(0, 3, 8)])));
    }

    #[test]
    fn a_long_range_counts_past_shorter_ones() {
        assert!(overlap_between(ranges(&[(0, 0, 100), (0, 1, 2)]), ranges(&[(0, 50, 51)])));
    }

    #[test]
    fn empty_and_unplaced_blocks_have_no_range() {
        assert_eq!(ByteRange::of_block(&Block::unplaced(9)), None);
        assert_eq!(
            ByteRange::of_block(&Block { memory: Memory::Scratchpad, offset: 3, length: 0 }),
            None
        );
    }
}
