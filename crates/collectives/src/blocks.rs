//! Equal blocks one after the other in one piece of memory.

use crate::CollectiveError;
use goal::graph::{Access, Block, Blocks, Graph};

/// Equal blocks one after the other in one piece of memory, told apart by their index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    memory: Block,
    bytes: u64,
}

impl Row {
    /// Declares a user buffer of `count` blocks of `bytes` bytes.
    pub(crate) fn buffer(graph: &mut Graph, access: Access, count: u32, bytes: u64) -> Result<Self, CollectiveError> {
        let what = if access == Access::Input { "the input" } else { "the output" };
        Ok(Row { memory: graph.buffer(access, product(what, count, bytes)?), bytes })
    }

    /// Takes scratchpad for `count` blocks of `bytes` bytes.
    pub(crate) fn scratchpad(graph: &mut Graph, count: u32, bytes: u64) -> Result<Self, CollectiveError> {
        const WHAT: &str = "the scratchpad";
        let memory = graph.scratchpad(product(WHAT, count, bytes)?);
        // The graph counts its scratchpad saturating: at the limit, blocks would share bytes.
        if graph.scratchpad_bytes() == u64::MAX {
            return Err(CollectiveError::TooManyBytes { what: WHAT, count: u64::from(count), bytes });
        }
        Ok(Row { memory, bytes })
    }

    /// All blocks as one.
    pub(crate) fn all(self) -> Block {
        self.memory
    }

    /// The block at an index.
    pub(crate) fn at(self, index: u32) -> Block {
        self.range(index, 1)
    }

    /// `count` blocks from `first` on, as one.
    pub(crate) fn range(self, first: u32, count: u32) -> Block {
        self.memory.part(u64::from(first) * self.bytes, u64::from(count) * self.bytes)
    }
}

fn product(what: &'static str, count: u32, bytes: u64) -> Result<u64, CollectiveError> {
    let count = u64::from(count);
    count.checked_mul(bytes).ok_or(CollectiveError::TooManyBytes { what, count, bytes })
}

/// The blocks as a scatter/gather list in which neighbours in memory are one entry: fewer records for engines to walk.
pub(crate) fn merged(blocks: impl IntoIterator<Item = Block>) -> Blocks {
    let mut list: Vec<Block> = Vec::new();
    for block in blocks {
        match list.last_mut() {
            Some(last) if last.memory == block.memory && last.offset + last.length == block.offset => {
                last.length += block.length;
            }
            _ => list.push(block),
        }
    }
    Blocks(list)
}
