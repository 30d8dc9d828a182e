//! Definition of flat collectives.
//!
//! A [`FlatCollective`] defines what each rank contributes and which part of the contributions it
//! receives, identically on every rank. The placement of its bytes follows from their number alone,
//! so all ranks agree without communication. If only the owner has the length of a contribution, the
//! contribution states its placement itself (see `blocks`).

use crate::flat::variable_blocks::VariableBlocks;
use crate::signature::Signature;
use crate::state::StateLayout;
use goal::arithmetic::{Arithmetic, DataType};
use std::sync::Arc;

/// Largest total of all contributions, in bytes, that every rank reduces by itself: this takes less
/// time than waiting for the transfer of one rank's result. With two ranks, neither can save the
/// other work.
pub(crate) const OWNER_REDUCES: u64 = 8192;

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

impl FlatCollective {
    /// Returns a collective with contributions of `bytes` bytes.
    #[inline]
    pub fn new(pattern: Pattern, bytes: u64, call: Signature) -> Self {
        FlatCollective { pattern, arithmetic: None, bytes, blocks: None, leaves_own: false, call }
    }

    /// Returns whether a rank has the sizes of its own blocks only, so the ranks cannot agree on
    /// whether the collective is long. Blocks between neighbours have equal lengths or keys.
    #[inline]
    pub(crate) fn has_unknown_sizes(&self) -> bool {
        self.blocks.as_ref().is_some_and(|blocks| blocks.sources.is_none())
    }

    /// Returns whether a rank receives from the ranks before it only.
    #[inline(always)]
    pub(crate) fn is_scan(&self) -> bool {
        matches!(self.pattern, Pattern::Scan | Pattern::Exscan)
    }

    /// Returns whether the call has an input and an output buffer; a barrier has none.
    #[inline]
    pub(crate) fn has_buffers(&self) -> bool {
        self.pattern != Pattern::Barrier
    }

    /// Returns the length of this rank's contribution, if it contributes.
    #[inline]
    pub(crate) fn contribution_bytes(&self) -> u64 {
        match &self.blocks {
            None => self.bytes,
            Some(blocks) => blocks.contribution(),
        }
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
}

/// Returns the length of a block of a contribution that is divided into `division` blocks.
#[inline(always)]
pub(crate) fn part_bytes(bytes: u64, division: u32) -> u64 {
    // A division takes longer than the branch, and most contributions are whole.
    if division <= 1 { bytes } else { bytes / u64::from(division) }
}
