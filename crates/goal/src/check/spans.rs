//! Ranges of bytes and whether they overlap.

use crate::graph::{Block, Memory};
use crate::schedule::{BlockRecord, SCRATCHPAD};

/// A range of bytes, never empty, in a memory that has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    /// The number of a user buffer, or [`SCRATCHPAD`].
    pub(crate) memory: u32,
    /// First byte.
    pub(crate) start: u64,
    /// One past the last byte.
    pub(crate) end: u64,
}

impl Span {
    /// The bytes of a block, if it has any and a place.
    pub(crate) fn of_block(block: &Block) -> Option<Span> {
        let memory = match block.memory {
            Memory::Buffer(number) => number,
            Memory::Scratchpad => SCRATCHPAD,
            Memory::Unplaced => return None,
        };
        Span::new(memory, block.offset, block.length)
    }

    /// The bytes of a record, if it has any.
    pub(crate) fn of_record(block: &BlockRecord) -> Option<Span> {
        Span::new(block.memory, block.offset, block.length)
    }

    fn new(memory: u32, start: u64, length: u64) -> Option<Span> {
        (length > 0).then(|| Span { memory, start, end: start.saturating_add(length) })
    }

    /// Returns the bytes in both ranges.
    pub(crate) fn common(self, other: Span) -> Option<Span> {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        (self.memory == other.memory && start < end).then_some(Span {
            memory: self.memory,
            start,
            end,
        })
    }
}

/// Returns `true` if two ranges of the list share a byte.
pub(crate) fn overlap_within(spans: impl Iterator<Item = Span>) -> bool {
    let mut spans: Vec<Span> = spans.collect();
    spans.sort_unstable();
    spans.windows(2).any(|pair| pair[0].common(pair[1]).is_some())
}

/// Returns `true` if a range of one list shares a byte with a range of the other.
pub(crate) fn overlap_between(
    left: impl Iterator<Item = Span>,
    right: impl Iterator<Item = Span>,
) -> bool {
    let mut spans: Vec<(Span, usize)> =
        left.map(|span| (span, 0)).chain(right.map(|span| (span, 1))).collect();
    spans.sort_unstable();
    let mut furthest: [Option<Span>; 2] = [None, None];
    for (span, side) in spans {
        if furthest[1 - side].is_some_and(|other| other.common(span).is_some()) {
            return true;
        }
        let mine = &mut furthest[side];
        if mine.is_none_or(|known| known.memory != span.memory || known.end < span.end) {
            *mine = Some(span);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(list: &[(u32, u64, u64)]) -> impl Iterator<Item = Span> {
        list.iter().map(|&(memory, start, end)| Span { memory, start, end })
    }

    #[test]
    fn neighbours_do_not_overlap() {
        assert!(!overlap_within(spans(&[(0, 4, 8), (0, 0, 4), (1, 0, 8)])));
        assert!(!overlap_between(spans(&[(0, 0, 4)]), spans(&[(0, 4, 8), (1, 0, 4)])));
    }

    #[test]
    fn one_shared_byte_is_found() {
        assert!(overlap_within(spans(&[(0, 4, 8), (0, 0, 5)])));
        assert!(overlap_between(spans(&[(0, 0, 4)]), spans(&[(0, 3, 8)])));
    }

    #[test]
    fn a_long_span_is_remembered_past_shorter_ones() {
        assert!(overlap_between(spans(&[(0, 0, 100), (0, 1, 2)]), spans(&[(0, 50, 51)])));
    }

    #[test]
    fn empty_and_unplaced_blocks_have_no_span() {
        assert_eq!(Span::of_block(&Block::unplaced(9)), None);
        assert_eq!(
            Span::of_block(&Block { memory: Memory::Scratchpad, offset: 3, length: 0 }),
            None
        );
    }
}
