//! Every rank's block one after the other in one piece of memory, and messages cut into segments.

use crate::{CollectiveError, Sizes};
use goal::graph::{Block, Blocks};
use std::num::NonZeroU64;

/// Every rank's block one after the other in one piece of memory.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    memory: Block,
    sizes: Sizes,
}

impl Parts {
    pub(crate) fn new(memory: Block, sizes: &Sizes) -> Self {
        Parts { memory, sizes: sizes.clone() }
    }

    /// All blocks as one.
    pub(crate) fn all(&self) -> Block {
        self.memory
    }

    /// The block of a rank.
    pub(crate) fn at(&self, rank: u32) -> Block {
        self.range(rank, 1)
    }

    /// `count` blocks from `first` on, as one; none of them is beyond the last rank's.
    pub(crate) fn range(&self, first: u32, count: u32) -> Block {
        let start = self.sizes.offset(first);
        self.memory.part(start, self.sizes.offset(first + count) - start)
    }

    /// `count` blocks from `first` on, which continue with rank 0's after the last rank's.
    pub(crate) fn round(&self, first: u32, count: u32) -> Blocks {
        let before_wrap = count.min(self.sizes.ranks() - first);
        merged([self.range(first, before_wrap), self.range(0, count - before_wrap)])
    }
}

/// The blocks as a scatter/gather list in which neighbours in memory are one entry: fewer records
/// for engines to walk.
pub(crate) fn merged(blocks: impl IntoIterator<Item = Block>) -> Blocks {
    let mut list: Vec<Block> = Vec::new();
    for block in blocks.into_iter().filter(|block| block.length > 0) {
        match list.last_mut() {
            Some(last)
                if last.memory == block.memory && last.offset + last.length == block.offset =>
            {
                last.length += block.length;
            }
            _ => list.push(block),
        }
    }
    Blocks(list)
}

/// Division of a message into segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segments {
    bytes: NonZeroU64,
}

impl Segments {
    /// More segments than this make a graph that is larger than what it is for.
    const LIMIT: u64 = 1 << 16;

    /// Messages stay whole.
    pub(crate) const WHOLE: Segments = Segments { bytes: NonZeroU64::MAX };

    /// Segments of this many bytes, rounded down to whole elements of `unit` bytes but not below
    /// one, for a message that is not longer than `message`.
    pub(crate) fn new(bytes: NonZeroU64, unit: u64, message: u64) -> Result<Self, CollectiveError> {
        let whole = bytes.get() / unit * unit;
        let bytes = NonZeroU64::new(whole.max(unit)).unwrap_or(bytes);
        let segments = message.div_ceil(bytes.get());
        if segments > Self::LIMIT {
            return Err(CollectiveError::TooManySegments {
                segments,
                bytes: bytes.get(),
                message,
                enough: message.div_ceil(Self::LIMIT),
            });
        }
        Ok(Segments { bytes })
    }

    /// The segments of a block; an empty block is one empty segment.
    pub(crate) fn of(self, block: Block) -> impl Iterator<Item = Block> {
        let bytes = self.bytes.get();
        (0..block.length.div_ceil(bytes).max(1)).map(move |index| {
            let start = index * bytes;
            block.part(start, (block.length - start).min(bytes))
        })
    }
}
