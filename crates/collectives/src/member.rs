//! One rank among all ranks, checked once, with rank arithmetic that cannot overflow.

use crate::CollectiveError;
use goal::graph::Graph;

/// A rank that exists: `rank < ranks`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    rank: u32,
    ranks: u32,
}

impl Member {
    pub(crate) fn new(rank: u32, ranks: u32) -> Result<Self, CollectiveError> {
        if rank < ranks {
            Ok(Member { rank, ranks })
        } else {
            Err(CollectiveError::RankOutOfRange { rank, ranks })
        }
    }

    /// The rank at a position that exists.
    pub(crate) fn at(rank: u32, ranks: u32) -> Self {
        debug_assert!(rank < ranks);
        Member { rank, ranks }
    }

    /// The empty graph of this rank.
    pub(crate) fn graph(self) -> Graph {
        Graph::new(self.rank, self.ranks)
    }

    pub(crate) fn rank(self) -> u32 {
        self.rank
    }

    pub(crate) fn ranks(self) -> u32 {
        self.ranks
    }

    /// The rank this many places further round the ring of ranks.
    pub(crate) fn after(self, distance: u32) -> u32 {
        self.beyond(self.rank, distance)
    }

    /// The rank this many places back round the ring; the distance is at most the number of ranks.
    pub(crate) fn before(self, distance: u32) -> u32 {
        self.after(self.ranks - distance)
    }

    /// The rank this many places further round the ring than another.
    pub(crate) fn beyond(self, rank: u32, distance: u32) -> u32 {
        ((u64::from(rank) + u64::from(distance)) % u64::from(self.ranks)) as u32
    }

    /// Distance of this rank after the root.
    pub(crate) fn behind(self, root: u32) -> Result<u32, CollectiveError> {
        if root >= self.ranks {
            return Err(CollectiveError::RootOutOfRange { root, ranks: self.ranks });
        }
        Ok(self.before(root))
    }

    /// 1, 2, 4, … as long as they are below the number of ranks: one distance for each round of a
    /// logarithmic algorithm.
    pub(crate) fn doublings(self) -> impl DoubleEndedIterator<Item = u32> {
        doublings(self.ranks)
    }
}

/// 1, 2, 4, … below the limit.
pub(crate) fn doublings(limit: u32) -> impl DoubleEndedIterator<Item = u32> {
    let rounds =
        limit.checked_sub(1).and_then(u32::checked_ilog2).map_or(0, |exponent| exponent + 1);
    (0..rounds).map(|exponent| 1 << exponent)
}
