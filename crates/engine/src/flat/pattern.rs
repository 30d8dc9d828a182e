//! Definition of flat collectives: contributions, results, and the ranks that each rank waits for.
//!
//! A [`FlatCollective`] defines what each rank contributes and which part of the contributions it
//! receives, identically on every rank. The placement of its bytes follows from their number alone,
//! so all ranks agree without communication. If only the owner has the length
//! of a contribution, the contribution states its placement itself (see `blocks`).

use crate::signature::Signature;
use crate::state::StateLayout;
use goal::arithmetic::{Arithmetic, DataType};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// Largest total of all contributions, in bytes, that every rank reduces by itself: this takes less
/// time than waiting for one rank's result to travel back. With two ranks, neither can save the
/// other work.
const OWNER_REDUCES: u64 = 8192;

/// Returns the longest contribution among `ranks` ranks that lies in a preallocated cell. A longer
/// one lies in its rank's arena or is split into pieces.
pub fn kept_in_cells(ranks: u32) -> u64 {
    StateLayout::new(ranks).cell_bytes()
}

/// Returns the longest contribution among `ranks` ranks that every rank reduces by itself.
pub fn folded_by_all(ranks: u32) -> u64 {
    if ranks > 2 { OWNER_REDUCES / u64::from(ranks) } else { kept_in_cells(ranks) }
}

/// Part of the contributions that a rank receives. In patterns with a root or with neighbours, a
/// rank waits only for the sources of its contributions, and fetches its result itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// No data.
    Barrier,
    /// The root's contribution, on all ranks except the root.
    Broadcast {
        /// The contributing rank.
        root: u32,
    },
    /// This rank's block of the root's contribution, which has one block for each rank.
    Scatter {
        /// The contributing rank.
        root: u32,
    },
    /// All contributions, in rank order.
    Gather,
    /// All contributions, in rank order, at the root only.
    GatherTo {
        /// The receiving rank.
        root: u32,
    },
    /// This rank's block of every contribution, each of which has one block for each rank.
    Exchange,
    /// All contributions reduced from the left in rank order.
    Reduce,
    /// All contributions reduced from the left in rank order, at the root only.
    ReduceTo {
        /// The receiving rank.
        root: u32,
    },
    /// This rank's block of all contributions reduced.
    ReduceScatter {
        /// Offset of this rank's block.
        at: u64,
        /// Length of this rank's block in bytes.
        bytes: u64,
    },
    /// The contributions up to this rank's own, reduced.
    Scan,
    /// The contributions before this rank's own, reduced; none on rank 0.
    Exscan,
    /// A block from each source. A contribution has a block for each destination, or one for all.
    Neighbors,
}

/// A collective that needs no linking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatCollective {
    /// Part of the contributions that a rank receives.
    pub pattern: Pattern,
    /// Operation and type of a reduction.
    pub arithmetic: Option<(Arithmetic, DataType)>,
    /// Length of a rank's contribution (in a broadcast or a scatter, the root's), equal on all
    /// ranks unless `blocks` is set.
    pub bytes: u64,
    /// This rank's block sizes, if not every rank knows all sizes.
    pub blocks: Option<Arc<VariableBlocks>>,
    /// The caller copies this rank's own block of the result itself.
    pub leaves_own: bool,
    /// Signature of the call, compared between the ranks.
    pub call: Signature,
}

/// End offsets of blocks. A few are stored in place: a heap allocation costs as much as a small
/// collective.
type Ends = SmallVec<[u64; 8]>;

/// Sizes of this rank's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableBlocks {
    /// End of each block of the contribution: one block, or one for each rank.
    pub(crate) sent: Ends,
    /// End of each block of the result: one from each rank, or one block. Empty if this rank
    /// receives nothing.
    pub(crate) received: Ends,
    /// Neighbour collectives: the sources of the result's blocks.
    pub(crate) sources: Option<Arc<[Option<Edge>]>>,
    /// Neighbour collectives: the destinations of the contribution's blocks, unless one block is
    /// for all.
    pub(crate) edge_keys: Option<Arc<[EdgeKey]>>,
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
            edge_keys: None,
        }
    }

    /// Returns blocks for and from neighbours. Without `edge_keys` there is one block for all
    /// neighbours.
    pub fn between_neighbors(
        sent: impl IntoIterator<Item = u64>,
        received: impl IntoIterator<Item = u64>,
        sources: Arc<[Option<Edge>]>,
        edge_keys: Option<Arc<[EdgeKey]>>,
    ) -> Self {
        VariableBlocks { sources: Some(sources), edge_keys, ..VariableBlocks::new(sent, received) }
    }

    /// Returns the ranks of this rank's sources, in a neighbour collective.
    pub(crate) fn source_ranks(&self) -> impl Iterator<Item = u32> + '_ {
        self.sources.iter().flat_map(|sources| sources.iter()).flatten().map(|edge| edge.rank)
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

fn ends(sizes: impl IntoIterator<Item = u64>) -> Ends {
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

/// Location of the contributions of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContributionPlacement {
    /// In the rank's own cell of the slot.
    Inline,
    /// In the slot's larger cells.
    Cell,
    /// In the ranks' arenas; the cells contain the offsets.
    Arena,
    /// Stated by each owner in its cell of the slot.
    Variable,
}

/// Executor of a reduction or copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReducedBy {
    /// By each rank for itself, when it fetches.
    Reader,
    /// In chunks, claimed by the last rank to arrive and by waiting ranks.
    Chunks,
}

/// The ranks that a rank waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RankSet {
    /// All ranks.
    All,
    /// One rank.
    One(u32),
    /// All ranks except one.
    AllBut(u32),
    /// The first ranks, up to this number.
    First(u32),
    /// The sources of its blocks.
    Sources,
}

impl FlatCollective {
    /// Returns a collective with contributions of `bytes` bytes.
    #[inline]
    pub fn new(pattern: Pattern, bytes: u64, call: Signature) -> Self {
        FlatCollective { pattern, arithmetic: None, bytes, blocks: None, leaves_own: false, call }
    }

    /// Returns the length of this rank's contribution, if it contributes.
    #[inline]
    pub(crate) fn contribution_bytes(&self) -> u64 {
        match &self.blocks {
            None => self.bytes,
            Some(blocks) => blocks.contribution(),
        }
    }

    /// Returns the length of the result of `rank` among `ranks`.
    #[inline]
    pub(crate) fn result_bytes(&self, rank: u32, ranks: u32) -> u64 {
        if !self.receives(rank) {
            return 0;
        }
        if let Some(blocks) = &self.blocks {
            return blocks.result();
        }
        match self.pattern {
            Pattern::Barrier => 0,
            Pattern::Gather | Pattern::GatherTo { .. } => {
                self.bytes.saturating_mul(u64::from(ranks))
            }
            Pattern::Scatter { .. } => self.bytes / u64::from(ranks),
            Pattern::ReduceScatter { bytes, .. } => bytes,
            _ => self.bytes,
        }
    }

    /// Returns the range of the rank's own block in its result, if the caller copies it.
    pub(crate) fn own_block(&self, rank: u32, ranks: u32) -> Option<Range<u64>> {
        let from = u64::from(rank);
        match (&self.blocks, self.pattern) {
            _ if !self.leaves_own => None,
            // A root that leaves its own block to the caller receives nothing else.
            (_, Pattern::Scatter { .. }) => None,
            (Some(blocks), _) => Some(block(&blocks.received, rank as usize)),
            (None, Pattern::Exchange) => {
                let part = self.bytes / u64::from(ranks);
                Some(part * from..part * (from + 1))
            }
            _ => Some(self.bytes * from..self.bytes * (from + 1)),
        }
    }

    /// Returns the range of the rank's block for itself in its contribution, if no rank reads it
    /// there.
    pub(crate) fn own_part(&self, rank: u32, ranks: u32) -> Option<Range<u64>> {
        if !self.leaves_own || !matches!(self.pattern, Pattern::Exchange | Pattern::Scatter { .. })
        {
            return None;
        }
        if let Some(blocks) = &self.blocks {
            return Some(block(&blocks.sent, rank as usize));
        }
        let part = self.bytes / u64::from(ranks);
        Some(part * u64::from(rank)..part * (u64::from(rank) + 1))
    }

    #[inline]
    pub(crate) fn placement(&self, inline_bytes: u64, cell_bytes: u64) -> ContributionPlacement {
        if self.blocks.is_some() {
            ContributionPlacement::Variable
        } else if self.bytes <= inline_bytes {
            ContributionPlacement::Inline
        } else if self.bytes <= cell_bytes {
            ContributionPlacement::Cell
        } else {
            ContributionPlacement::Arena
        }
    }

    #[inline]
    pub(crate) fn reduced_by(&self, ranks: u32, placement: ContributionPlacement) -> ReducedBy {
        let claimed = match self.pattern {
            Pattern::Reduce if placement == ContributionPlacement::Arena => true,
            Pattern::Reduce => {
                ranks > 2 && self.bytes.saturating_mul(u64::from(ranks)) > OWNER_REDUCES
            }
            Pattern::Broadcast { .. } | Pattern::Gather | Pattern::Exchange => {
                placement == ContributionPlacement::Arena
            }
            _ => false,
        };
        if claimed { ReducedBy::Chunks } else { ReducedBy::Reader }
    }

    /// Returns whether `rank` contributes.
    #[inline]
    pub(crate) fn contributes(&self, rank: u32) -> bool {
        match self.pattern {
            Pattern::Barrier => false,
            Pattern::Broadcast { root } | Pattern::Scatter { root } => rank == root,
            Pattern::GatherTo { root } => !(self.leaves_own && rank == root),
            _ => self.blocks.is_some() || self.bytes > 0,
        }
    }

    /// Returns whether `rank` receives a result that it does not already have.
    #[inline]
    pub(crate) fn receives(&self, rank: u32) -> bool {
        match self.pattern {
            Pattern::Broadcast { root } => rank != root,
            Pattern::Scatter { root } => !(self.leaves_own && rank == root),
            Pattern::GatherTo { root } | Pattern::ReduceTo { root } => rank == root,
            Pattern::Exscan => rank != 0,
            _ => true,
        }
    }

    /// Returns the ranks that `rank` waits for.
    #[inline]
    pub(crate) fn waits_for(&self, rank: u32, placement: ContributionPlacement) -> RankSet {
        match self.pattern {
            Pattern::Broadcast { .. } if placement == ContributionPlacement::Arena => RankSet::All,
            Pattern::Broadcast { root } | Pattern::Scatter { root } => RankSet::One(root),
            Pattern::GatherTo { root } | Pattern::ReduceTo { root } if rank == root => {
                RankSet::AllBut(root)
            }
            Pattern::GatherTo { .. } | Pattern::ReduceTo { .. } => RankSet::First(0),
            Pattern::Scan => RankSet::First(rank + 1),
            Pattern::Exscan => RankSet::First(rank),
            Pattern::Neighbors => RankSet::Sources,
            _ => RankSet::All,
        }
    }

    /// Returns the ranks that must have arrived before `rank` wakes sleepers.
    #[inline]
    pub(crate) fn wakes_after(&self, rank: u32, placement: ContributionPlacement) -> RankSet {
        match self.pattern {
            Pattern::GatherTo { root } | Pattern::ReduceTo { root } => RankSet::AllBut(root),
            // Only the neighbours know the other ranks they wait for.
            Pattern::Neighbors => RankSet::First(0),
            // The last rank to arrive among the awaited ranks wakes the waiter: all ranks before it
            // have arrived.
            _ => self.waits_for(rank, placement),
        }
    }

    /// Returns whether any rank waits for `rank` of `ranks`. None waits for ranks that only
    /// receive.
    #[inline]
    pub(crate) fn is_awaited(
        &self,
        rank: u32,
        ranks: u32,
        placement: ContributionPlacement,
    ) -> bool {
        match self.pattern {
            Pattern::Broadcast { root } => {
                placement == ContributionPlacement::Arena || rank == root
            }
            Pattern::Scatter { root } => rank == root,
            Pattern::GatherTo { root } | Pattern::ReduceTo { root } => rank != root,
            Pattern::Scan | Pattern::Exscan => rank + 1 < ranks,
            _ => true,
        }
    }
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
