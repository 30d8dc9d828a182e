//! What happens when all ranks of a communicator meet: a collective that needs no linking.
//!
//! A [`FlatCollective`] says what each rank contributes and which part of the contributions it wants,
//! alike on every rank. How its bytes placement follows from their number alone, so that every rank
//! comes to the same answer without asking; contributions whose lengths only their owners know say
//! themselves where they lie (see `contribution`).

use crate::signature::Signature;
use crate::state::StateLayout;
use goal::arithmetic::{Arithmetic, DataType};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// Up to this many bytes of all contributions together every rank reduces by itself: that costs
/// less than waiting for one rank's result to placement back. Of two ranks neither saves the other
/// anything.
const OWNER_REDUCES: u64 = 8192;

/// Up to how many bytes a contribution of a join among so many ranks lies in a cell kept for it. A
/// longer one lies in its rank's arena, or is cut into pieces.
pub fn kept_in_cells(ranks: u32) -> u64 {
    StateLayout::new(ranks).cell_bytes()
}

/// Up to how many bytes every rank folds the contributions of a join among so many ranks by itself.
pub fn folded_by_all(ranks: u32) -> u64 {
    if ranks > 2 { OWNER_REDUCES / u64::from(ranks) } else { kept_in_cells(ranks) }
}

/// What a rank gets of the contributions. In all that are not for everybody a rank waits for those
/// alone whose contributions it wants, and fetches its result itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Nothing.
    Barrier,
    /// The root's contribution, on all ranks but the root.
    Broadcast {
        /// Who contributes.
        root: u32,
    },
    /// Its block of the root's contribution, which has one for each rank.
    Scatter {
        /// Who contributes.
        root: u32,
    },
    /// All contributions, in rank order.
    Gather,
    /// All contributions, in rank order, at the root; the others get nothing.
    GatherTo {
        /// Who gets them.
        root: u32,
    },
    /// Its block of every contribution, each of which has one for each rank.
    Exchange,
    /// All contributions combined from the left in rank order.
    Reduce,
    /// All contributions combined from the left in rank order, at the root; the others get nothing.
    ReduceTo {
        /// Who gets the result.
        root: u32,
    },
    /// Its block of all contributions combined.
    ReduceScatter {
        /// Where the rank's block begins.
        at: u64,
        /// How many bytes it has.
        bytes: u64,
    },
    /// The contributions up to its own combined.
    Scan,
    /// The contributions before its own combined; rank 0 gets nothing.
    Exscan,
    /// A block from each of its sources, which has a block for each of its destinations, or one for
    /// all.
    Neighbors,
}

/// A collective that needs no linking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatCollective {
    /// What a rank gets.
    pub pattern: Pattern,
    /// The operation and type of a reduction.
    pub arithmetic: Option<(Arithmetic, DataType)>,
    /// Bytes a rank contributes (in a broadcast or a scatter, the root), the same on all ranks
    /// unless `blocks` says more.
    pub bytes: u64,
    /// Where blocks are of different sizes that not every rank knows: this rank's.
    pub blocks: Option<Arc<VariableBlocks>>,
    /// This rank's own block of the result is put there by the caller.
    pub leaves_own: bool,
    /// What the ranks called, for telling them apart.
    pub call: Signature,
}

/// Where blocks end. Few are kept in place: a call that makes lists of its own costs as much as a
/// small collective.
type Ends = SmallVec<[u64; 8]>;

/// The sizes of this rank's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableBlocks {
    /// Where each block of the contribution ends: one block, or one for each rank.
    pub(crate) sent: Ends,
    /// Where each block of the result ends: one from each rank, or one block. Empty: this rank gets
    /// nothing.
    pub(crate) received: Ends,
    /// For neighbours: whom the blocks of the result come from.
    pub(crate) sources: Option<Arc<[Option<Edge>]>>,
    /// For neighbours: whom the blocks of the contribution are for, if not all are for all.
    pub(crate) edge_keys: Option<Arc<[EdgeKey]>>,
}

/// An edge between neighbours, seen from the end that is not named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The rank at the other end.
    pub rank: u32,
    /// Parallel edges are told apart by it.
    pub tag: u32,
    /// Which of the edges with this rank and this tag it is, in the order of the lists.
    pub number: u32,
}

/// What the block for a rank is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeKey(pub(crate) u64);

impl EdgeKey {
    /// Of a block that nobody looks for, beyond the edge of a grid.
    pub const UNUSED: EdgeKey = EdgeKey(u64::MAX);

    /// Whom the block is for.
    pub(crate) fn rank(self) -> Option<u32> {
        (self != EdgeKey::UNUSED).then_some((self.0 >> 32) as u32)
    }

    /// The tag.
    pub(crate) fn tag(self) -> u64 {
        self.0 & u64::from(u32::MAX)
    }

    /// Of the blocks for this rank with this tag.
    pub fn new(rank: u32, tag: u32) -> Self {
        EdgeKey(u64::from(rank) << 32 | u64::from(tag))
    }
}

impl VariableBlocks {
    /// VariableBlocks of so many bytes, one after the other.
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

    /// VariableBlocks for and from neighbours. Without `edge_keys` there is one block for all of them.
    pub fn between_neighbors(
        sent: impl IntoIterator<Item = u64>,
        received: impl IntoIterator<Item = u64>,
        sources: Arc<[Option<Edge>]>,
        edge_keys: Option<Arc<[EdgeKey]>>,
    ) -> Self {
        VariableBlocks { sources: Some(sources), edge_keys, ..VariableBlocks::new(sent, received) }
    }

    /// The ranks that this rank gets blocks from, if it has neighbours.
    pub(crate) fn source_ranks(&self) -> impl Iterator<Item = u32> + '_ {
        self.sources.iter().flat_map(|sources| sources.iter()).flatten().map(|edge| edge.rank)
    }

    /// Bytes of the contribution.
    pub(crate) fn contribution(&self) -> u64 {
        self.sent.last().copied().unwrap_or(0)
    }

    /// Bytes of the result.
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

/// The block of this number among blocks that end there.
pub(crate) fn block(ends: &[u64], number: usize) -> Range<u64> {
    let start = number.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    start..ends.get(number).copied().unwrap_or(start)
}

/// Where a collective's contributions lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContributionPlacement {
    /// In the rank's own line of the slot.
    Inline,
    /// In the slot's cells.
    Cell,
    /// In the ranks' arenas; the cells say where.
    Arena,
    /// Each where its owner says, in its line of the slot.
    Variable,
}

/// Who computes a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReducedBy {
    /// Each rank its own, when it takes it.
    Reader,
    /// Whoever finds a chunk unclaimed: the last rank to arrive and those that wait.
    Chunks,
}

/// For whom a rank waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RankSet {
    /// For all.
    All,
    /// For one.
    One(u32),
    /// For all but one.
    AllBut(u32),
    /// For the first so many.
    First(u32),
    /// For those that it gets blocks from.
    Sources,
}

impl FlatCollective {
    /// A collective with contributions of `bytes` bytes.
    #[inline]
    pub fn new(pattern: Pattern, bytes: u64, call: Signature) -> Self {
        FlatCollective { pattern, arithmetic: None, bytes, blocks: None, leaves_own: false, call }
    }

    /// Bytes that this rank contributes, if it contributes.
    #[inline]
    pub(crate) fn contribution_bytes(&self) -> u64 {
        match &self.blocks {
            None => self.bytes,
            Some(blocks) => blocks.contribution(),
        }
    }

    /// Bytes of the result of `rank` among `ranks`.
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

    /// Where the rank's own block lies in its result, if the caller puts it there.
    pub(crate) fn own_block(&self, rank: u32, ranks: u32) -> Option<Range<u64>> {
        let from = u64::from(rank);
        match (&self.blocks, self.pattern) {
            _ if !self.leaves_own => None,
            // Who has a block of its own to leave gets nothing else.
            (_, Pattern::Scatter { .. }) => None,
            (Some(blocks), _) => Some(block(&blocks.received, rank as usize)),
            (None, Pattern::Exchange) => {
                let part = self.bytes / u64::from(ranks);
                Some(part * from..part * (from + 1))
            }
            _ => Some(self.bytes * from..self.bytes * (from + 1)),
        }
    }

    /// Where the block that this rank has for itself lies in its contribution, if nobody takes it
    /// from there.
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

    /// Whether `rank` puts bytes on the table.
    #[inline]
    pub(crate) fn contributes(&self, rank: u32) -> bool {
        match self.pattern {
            Pattern::Barrier => false,
            Pattern::Broadcast { root } | Pattern::Scatter { root } => rank == root,
            Pattern::GatherTo { root } => !(self.leaves_own && rank == root),
            _ => self.blocks.is_some() || self.bytes > 0,
        }
    }

    /// Whether `rank` gets a result that it has not already.
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

    /// For whom `rank` waits.
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

    /// Who must have come before it is worth waking anybody.
    #[inline]
    pub(crate) fn wakes_after(&self, rank: u32, placement: ContributionPlacement) -> RankSet {
        match self.pattern {
            Pattern::GatherTo { root } | Pattern::ReduceTo { root } => RankSet::AllBut(root),
            // Only its neighbours know for whom else they wait.
            Pattern::Neighbors => RankSet::First(0),
            // Of those that a rank waits for the last to come wakes it: all that are before that
            // one have come.
            _ => self.waits_for(rank, placement),
        }
    }

    /// Whether anybody waits for `rank` of `ranks`: nobody does for those that only listen.
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
