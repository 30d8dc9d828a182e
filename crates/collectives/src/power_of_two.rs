//! Reduction of any number of ranks to a power of two.

/// Reduction of the ranks to a power of two: of the first 2 × `pairs` ranks one of each pair folds
/// into the other, the even one into the odd one unless the even one must stay. The others and
/// those that stay are the core; its positions keep the order of ranks.
///
/// Thakur, Rabenseifner, Gropp: "Optimization of Collective Communication Operations in MPICH",
/// International Journal of High Performance Computing Applications 19(1), 2005: the way of
/// recursive doubling with other numbers of ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PowerOfTwo {
    /// The largest power of two that is not above the number of ranks.
    core: u32,
    pairs: u32,
    /// A rank that is in the core.
    stays: Option<u32>,
}

/// Part of a rank.
pub(crate) enum Role {
    /// Hands its contribution to another rank and gets the result back.
    Folded { into: u32 },
    /// Takes part in the rounds at this position, for the folded rank, too, if there is one.
    Core { position: u32, folded: Option<u32> },
}

impl PowerOfTwo {
    /// For at least one rank.
    pub(crate) fn new(ranks: u32) -> Self {
        let core = 1 << ranks.ilog2();
        PowerOfTwo { core, pairs: ranks - core, stays: None }
    }

    /// As [`new`](Self::new), with this rank in the core.
    pub(crate) fn around(rank: u32, ranks: u32) -> Self {
        PowerOfTwo { stays: Some(rank), ..PowerOfTwo::new(ranks) }
    }

    /// The number of positions, a power of two.
    pub(crate) fn core(self) -> u32 {
        self.core
    }

    pub(crate) fn role(self, rank: u32) -> Role {
        let position = self.position(rank);
        let stays = self.rank(position);
        match rank {
            _ if rank != stays => Role::Folded { into: stays },
            _ if position < self.pairs => Role::Core { position, folded: Some(rank ^ 1) },
            _ => Role::Core { position, folded: None },
        }
    }

    /// The position of a rank, or of the one it folds into.
    pub(crate) fn position(self, rank: u32) -> u32 {
        if rank / 2 < self.pairs { rank / 2 } else { rank - self.pairs }
    }

    /// The rank at a position of the core.
    pub(crate) fn rank(self, position: u32) -> u32 {
        match self.stays {
            _ if position >= self.pairs => position + self.pairs,
            Some(stays) if stays / 2 == position => stays,
            _ => 2 * position + 1,
        }
    }

    /// The ranks for which `count` positions from `first` on stand: the first of them and their
    /// number.
    pub(crate) fn run(self, first: u32, count: u32) -> (u32, u32) {
        let start = |position: u32| position + position.min(self.pairs);
        (start(first), start(first + count) - start(first))
    }
}
