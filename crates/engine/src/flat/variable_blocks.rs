//! Sizes of blocks that not every rank has.

use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// End offsets of blocks. A few are stored in place: a heap allocation costs as much as a small
/// collective.
type BlockEnds = SmallVec<[u64; 8]>;

/// Bytes of a word of the table that states where the blocks of a contribution end.
pub(crate) const WORD: u64 = 8;

/// Sizes of this rank's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableBlocks {
    /// End of each block of the contribution: one block, or one for each rank.
    pub(crate) sent: BlockEnds,
    /// End of each block of the result: one from each rank, or one block. Empty if this rank
    /// receives nothing.
    pub(crate) received: BlockEnds,
    /// Neighbour collectives: the sources of the result's blocks.
    pub(crate) sources: Option<Arc<[Option<Edge>]>>,
    /// Neighbour collectives: the destinations of the contribution's blocks.
    pub(crate) destinations: Option<Arc<[EdgeKey]>>,
    /// One block is for all destinations.
    pub(crate) is_shared: bool,
}

/// An edge between neighbours, seen from one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The rank at the other end.
    pub rank: u32,
    /// Tag that distinguishes parallel edges.
    pub tag: u32,
    /// Number of the edge among those with this rank and tag, in the order of the lists.
    pub number: u32,
}

/// Key by which a receiver finds the block of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeKey(pub(crate) u64);

impl EdgeKey {
    /// Key of a block without a receiver, beyond the edge of a grid.
    pub const UNUSED: EdgeKey = EdgeKey(u64::MAX);

    /// Returns the destination rank.
    pub(crate) fn rank(self) -> Option<u32> {
        (self != EdgeKey::UNUSED).then_some((self.0 >> 32) as u32)
    }

    /// Returns the tag.
    pub(crate) fn tag(self) -> u64 {
        self.0 & u64::from(u32::MAX)
    }

    /// Returns the key of the blocks for this rank with this tag.
    pub fn new(rank: u32, tag: u32) -> Self {
        EdgeKey(u64::from(rank) << 32 | u64::from(tag))
    }
}

impl VariableBlocks {
    /// Returns consecutive blocks of these sizes.
    pub fn new(
        sent: impl IntoIterator<Item = u64>,
        received: impl IntoIterator<Item = u64>,
    ) -> Self {
        VariableBlocks {
            sent: ends(sent),
            received: ends(received),
            sources: None,
            destinations: None,
            is_shared: false,
        }
    }

    /// Returns blocks for and from neighbours.
    pub fn between_neighbors(
        sent: impl IntoIterator<Item = u64>,
        received: impl IntoIterator<Item = u64>,
        sources: Arc<[Option<Edge>]>,
        destinations: Arc<[EdgeKey]>,
    ) -> Self {
        VariableBlocks {
            sources: Some(sources),
            destinations: Some(destinations),
            ..VariableBlocks::new(sent, received)
        }
    }

    /// Returns one block for all neighbours, and blocks from neighbours.
    pub fn gathered_from_neighbors(
        sent: u64,
        received: impl IntoIterator<Item = u64>,
        sources: Arc<[Option<Edge>]>,
        destinations: Arc<[EdgeKey]>,
    ) -> Self {
        let blocks = VariableBlocks::between_neighbors([sent], received, sources, destinations);
        VariableBlocks { is_shared: true, ..blocks }
    }

    /// Returns the keys of the contribution's blocks, if receivers find them by keys.
    pub(crate) fn edge_keys(&self) -> Option<&Arc<[EdgeKey]>> {
        self.destinations.as_ref().filter(|_| !self.is_shared)
    }

    /// Returns the length of the contribution's table.
    pub(crate) fn table_bytes(&self) -> u64 {
        let words = match self.edge_keys() {
            None => self.sent.len(),
            Some(edge_keys) => 1 + 2 * edge_keys.len(),
        };
        WORD * words as u64
    }

    /// Returns the ranks of this rank's sources, in a neighbour collective.
    pub(crate) fn source_ranks(&self) -> impl Iterator<Item = u32> + '_ {
        self.sources.iter().flat_map(|sources| sources.iter()).flatten().map(|edge| edge.rank)
    }

    /// Returns the range of a block in the contribution.
    pub fn sent_block(&self, number: usize) -> Range<u64> {
        block(&self.sent, number)
    }

    /// Returns the range of a block in the result.
    pub fn received_block(&self, number: usize) -> Range<u64> {
        block(&self.received, number)
    }

    /// Returns the length of the contribution in bytes.
    pub(crate) fn contribution(&self) -> u64 {
        self.sent.last().copied().unwrap_or(0)
    }

    /// Returns the length of the result in bytes.
    pub(crate) fn result(&self) -> u64 {
        self.received.last().copied().unwrap_or(0)
    }
}

fn ends(sizes: impl IntoIterator<Item = u64>) -> BlockEnds {
    let add = |end: &mut u64, size| {
        *end = end.saturating_add(size);
        Some(*end)
    };
    sizes.into_iter().scan(0, add).collect()
}

/// Returns the range of block `number` among blocks with these ends.
pub(crate) fn block(ends: &[u64], number: usize) -> Range<u64> {
    let start = number.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    start..ends.get(number).copied().unwrap_or(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_each_other() {
        let blocks = VariableBlocks::new([3, 0, 5], [u64::MAX, 1]);
        assert_eq!(blocks.sent[..], [3, 3, 8]);
        assert_eq!(blocks.received[..], [u64::MAX, u64::MAX]);
        let of = |number| block(&blocks.sent, number);
        assert_eq!([of(0), of(1), of(2), of(3)], [0..3, 3..3, 3..8, 8..8]);
    }
}
