//! Definition of flat collectives: contributions, results, and the ranks that each rank waits for.
//!
//! A [`FlatCollective`] defines what each rank contributes and which part of the contributions it
//! receives, identically on every rank. The placement of its bytes follows from their number alone,
//! so all ranks agree without communication. If only the owner has the length of a contribution, the
//! contribution states its placement itself (see `blocks`).

use crate::flat::variable_blocks::{VariableBlocks, block};
use crate::signature::Signature;
use crate::state::StateLayout;
use goal::arithmetic::{Arithmetic, DataType};
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

/// A set of ranks.
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
    /// The sources of the rank's blocks.
    Sources,
}

/// Rule by which a result follows from the contributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultRule {
    /// The rank receives nothing.
    Nothing,
    /// A block of the contribution of each source, one behind the other.
    Blocks {
        /// The first source.
        first: u32,
        /// Number of sources.
        sources: u32,
        /// The block, among those that a contribution is [divided](Role::division) into.
        index: u32,
    },
    /// The contributions of the first `ranks` ranks, reduced from the left in rank order.
    Fold {
        /// Number of contributions.
        ranks: u32,
        /// First byte of the reduced part.
        at: u64,
    },
    /// A block of each source of the neighbour lists.
    Edges,
}

/// The part of one rank in a flat collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    /// The rank has a contribution.
    pub(crate) contributes: bool,
    /// Another rank waits for this one. None waits for ranks that only receive.
    pub(crate) awaited: bool,
    /// The ranks that the rank waits for.
    pub(crate) waits_for: RankSet,
    /// The ranks that must have arrived before the rank wakes sleepers.
    pub(crate) wakes_after: RankSet,
    /// The ranks with signatures that the rank compares with its own.
    pub(crate) compared: RankSet,
    /// The result.
    pub(crate) result: ResultRule,
    /// Length of the result in bytes, if the lengths of all contributions are equal.
    result_bytes: u64,
    /// Number of blocks that a contribution is divided into.
    pub(crate) division: u32,
    /// A contribution has a block for each rank, its own included.
    is_divided: bool,
    /// Executor of the reduction or the copies.
    pub(crate) reduced_by: ReducedBy,
    /// Root of a broadcast in chunks. If the root has staged its contribution, the broadcast is
    /// complete at the root's arrival.
    pub(crate) chunked_root: Option<u32>,
    /// Every byte of a contribution goes to one rank only.
    pub(crate) is_pairwise: bool,
}

impl FlatCollective {
    /// Returns a collective with contributions of `bytes` bytes.
    #[inline]
    pub fn new(pattern: Pattern, bytes: u64, call: Signature) -> Self {
        FlatCollective { pattern, arithmetic: None, bytes, blocks: None, leaves_own: false, call }
    }

    /// Returns the part of `rank` among `ranks`. The only interpretation of [`Pattern`]: every other
    /// property follows from it.
    ///
    /// Always inlined, so a caller that uses one field of a known pattern computes nothing else.
    /// For the same reason nothing here can panic.
    #[inline(always)]
    pub(crate) fn role(&self, rank: u32, ranks: u32, placement: ContributionPlacement) -> Role {
        let bytes = self.bytes;
        let in_arena = placement == ContributionPlacement::Arena;
        let is_root = |root: u32| rank == root;
        let block_of = |first: u32, index: u32| ResultRule::Blocks { first, sources: 1, index };
        let blocks_of_all = |index: u32| ResultRule::Blocks { first: 0, sources: ranks, index };
        let fold = |ranks: u32, at: u64| ResultRule::Fold { ranks, at };
        let chunks_if = |large: bool| if large { ReducedBy::Chunks } else { ReducedBy::Reader };
        let all = Role {
            contributes: self.blocks.is_some() || bytes > 0,
            awaited: true,
            waits_for: RankSet::All,
            wakes_after: RankSet::All,
            compared: RankSet::All,
            result: ResultRule::Nothing,
            result_bytes: bytes,
            division: 1,
            is_divided: false,
            reduced_by: ReducedBy::Reader,
            chunked_root: None,
            is_pairwise: false,
        };
        // The last rank to arrive among the awaited ranks wakes the waiter: all ranks before it
        // have arrived.
        let waiting_for =
            |set: RankSet| Role { waits_for: set, wakes_after: set, compared: set, ..all };
        // The root waits for all other ranks, and no rank for the root: the last of the others to
        // arrive wakes it.
        let at_root = |root: u32| Role {
            wakes_after: RankSet::AllBut(root),
            awaited: !is_root(root),
            ..waiting_for(if is_root(root) { RankSet::AllBut(root) } else { RankSet::First(0) })
        };
        match self.pattern {
            Pattern::Barrier => Role { contributes: false, result_bytes: 0, ..all },
            Pattern::Broadcast { root } => Role {
                contributes: is_root(root),
                // Chunks are copied into the memory of the receivers, which state it when they
                // arrive.
                awaited: in_arena || is_root(root),
                // If the root has staged a large broadcast, only the root's arrival is known.
                compared: RankSet::One(root),
                result: if is_root(root) { ResultRule::Nothing } else { block_of(root, 0) },
                reduced_by: chunks_if(in_arena),
                chunked_root: in_arena.then_some(root),
                ..waiting_for(if in_arena { RankSet::All } else { RankSet::One(root) })
            },
            Pattern::Scatter { root } => Role {
                contributes: is_root(root),
                awaited: is_root(root),
                // A root that leaves its own block to the caller receives nothing else.
                result: if self.leaves_own && is_root(root) {
                    ResultRule::Nothing
                } else {
                    block_of(root, rank)
                },
                result_bytes: part_bytes(bytes, ranks),
                division: ranks,
                is_divided: true,
                is_pairwise: true,
                ..waiting_for(RankSet::One(root))
            },
            Pattern::Gather => Role {
                result: blocks_of_all(0),
                result_bytes: bytes.saturating_mul(u64::from(ranks)),
                reduced_by: chunks_if(in_arena),
                ..all
            },
            Pattern::GatherTo { root } => Role {
                contributes: !(self.leaves_own && is_root(root)),
                result: if is_root(root) { blocks_of_all(0) } else { ResultRule::Nothing },
                result_bytes: bytes.saturating_mul(u64::from(ranks)),
                is_pairwise: true,
                ..at_root(root)
            },
            Pattern::Exchange => Role {
                result: blocks_of_all(rank),
                division: ranks,
                is_divided: true,
                reduced_by: chunks_if(in_arena),
                is_pairwise: true,
                ..all
            },
            Pattern::Reduce => {
                let total = bytes.saturating_mul(u64::from(ranks));
                let large = in_arena || (ranks > 2 && total > OWNER_REDUCES);
                Role { result: fold(ranks, 0), reduced_by: chunks_if(large), ..all }
            }
            Pattern::ReduceTo { root } => Role {
                result: if is_root(root) { fold(ranks, 0) } else { ResultRule::Nothing },
                ..at_root(root)
            },
            Pattern::ReduceScatter { at, bytes } => {
                Role { result: fold(ranks, at), result_bytes: bytes, ..all }
            }
            Pattern::Scan => Role {
                awaited: rank.wrapping_add(1) < ranks,
                result: fold(rank.wrapping_add(1), 0),
                ..waiting_for(RankSet::First(rank.wrapping_add(1)))
            },
            Pattern::Exscan => Role {
                awaited: rank.wrapping_add(1) < ranks,
                result: if rank == 0 { ResultRule::Nothing } else { fold(rank, 0) },
                ..waiting_for(RankSet::First(rank))
            },
            Pattern::Neighbors => Role {
                result: ResultRule::Edges,
                // Only the neighbours have the list of the ranks that they wait for.
                wakes_after: RankSet::First(0),
                ..waiting_for(RankSet::Sources)
            },
        }
    }

    /// Returns the bytes of the contribution of `from` that `to` receives, if it receives any. The
    /// contributions have equal lengths. Of a reduce-scatter, a rank has the place of its own block
    /// only: `to` is this rank.
    pub(crate) fn part(&self, from: u32, to: u32, ranks: u32) -> Option<Range<u64>> {
        let role = self.role(to, ranks, ContributionPlacement::Arena);
        match role.result {
            ResultRule::Blocks { first, sources, index } => {
                let part = part_bytes(self.bytes, role.division);
                let start = part * u64::from(index);
                (first..first + sources).contains(&from).then_some(start..start + part)
            }
            ResultRule::Fold { ranks, at } => (from < ranks).then_some(at..at + role.result_bytes),
            ResultRule::Nothing | ResultRule::Edges => None,
        }
    }

    /// Returns the bytes of this rank's contribution that `to` receives, if it receives any.
    pub(crate) fn part_for(&self, to: u32, rank: u32, ranks: u32) -> Option<Range<u64>> {
        match self.pattern {
            // Each rank has the place of its own block only. Of two ranks, the rest is the other's.
            Pattern::ReduceScatter { at, bytes } if rank == 0 => Some(at + bytes..self.bytes),
            Pattern::ReduceScatter { at, .. } => Some(0..at),
            _ => match &self.blocks {
                None => self.part(rank, to, ranks),
                Some(blocks) => {
                    let role = self.role(to, ranks, ContributionPlacement::Variable);
                    let ResultRule::Blocks { first, sources, index } = role.result else {
                        return None;
                    };
                    let number = if role.is_divided { index as usize } else { 0 };
                    (first..first + sources).contains(&rank).then(|| block(&blocks.sent, number))
                }
            },
        }
    }

    /// Returns whether a rank has the sizes of its own blocks only, so the ranks cannot agree on
    /// whether the collective is long. Blocks between neighbours have equal lengths or keys.
    #[inline]
    pub(crate) fn has_unknown_sizes(&self) -> bool {
        self.blocks.as_ref().is_some_and(|blocks| blocks.sources.is_none())
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

    /// Returns the length of the result of a rank with this role.
    #[inline]
    pub(crate) fn result_bytes(&self, role: &Role) -> u64 {
        match (role.result, &self.blocks) {
            (ResultRule::Nothing, _) => 0,
            (_, None) => role.result_bytes,
            (_, Some(blocks)) => blocks.result(),
        }
    }

    /// Returns the range of the rank's own block in its result, if the caller copies it.
    pub(crate) fn own_block(&self, rank: u32, role: &Role) -> Option<Range<u64>> {
        let ResultRule::Blocks { first, sources, .. } = role.result else { return None };
        if !self.leaves_own || !(first..first + sources).contains(&rank) {
            return None;
        }
        if let Some(blocks) = &self.blocks {
            return Some(block(&blocks.received, rank as usize));
        }
        let part = part_bytes(self.bytes, role.division);
        let start = part * u64::from(rank - first);
        Some(start..start + part)
    }

    /// Returns the range of the rank's block for itself in its contribution, if no rank reads it
    /// there.
    pub(crate) fn own_part(&self, rank: u32, role: &Role) -> Option<Range<u64>> {
        if !self.leaves_own || !role.is_divided {
            return None;
        }
        if let Some(blocks) = &self.blocks {
            return Some(block(&blocks.sent, rank as usize));
        }
        let part = part_bytes(self.bytes, role.division);
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
}

/// Returns the length of a block of a contribution that is divided into `division` blocks.
#[inline(always)]
pub(crate) fn part_bytes(bytes: u64, division: u32) -> u64 {
    // A division takes longer than the branch, and most contributions are whole.
    if division <= 1 { bytes } else { bytes / u64::from(division) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::CallKind;
    use proptest::prelude::*;

    const PLACEMENTS: [ContributionPlacement; 3] =
        [ContributionPlacement::Inline, ContributionPlacement::Cell, ContributionPlacement::Arena];

    fn members(set: RankSet, ranks: u32) -> Vec<u32> {
        (0..ranks)
            .filter(|rank| match set {
                RankSet::All => true,
                RankSet::One(one) => *rank == one,
                RankSet::AllBut(one) => *rank != one,
                RankSet::First(count) => *rank < count,
                RankSet::Sources => false,
            })
            .collect()
    }

    fn collective() -> impl Strategy<Value = (FlatCollective, u32)> {
        (2u32..9).prop_flat_map(|ranks| {
            let root = 0..ranks;
            let pattern = prop_oneof![
                Just(Pattern::Barrier),
                root.clone().prop_map(|root| Pattern::Broadcast { root }),
                root.clone().prop_map(|root| Pattern::Scatter { root }),
                Just(Pattern::Gather),
                root.clone().prop_map(|root| Pattern::GatherTo { root }),
                Just(Pattern::Exchange),
                Just(Pattern::Reduce),
                root.prop_map(|root| Pattern::ReduceTo { root }),
                Just(Pattern::ReduceScatter { at: 8, bytes: 16 }),
                Just(Pattern::Scan),
                Just(Pattern::Exscan),
            ];
            (pattern, 1u64..10_000, any::<bool>()).prop_map(move |(pattern, part, leaves_own)| {
                let bytes = part * u64::from(ranks);
                let call = Signature::new(CallKind::Barrier, bytes, 0);
                let bytes = if pattern == Pattern::Barrier { 0 } else { bytes };
                (FlatCollective { leaves_own, ..FlatCollective::new(pattern, bytes, call) }, ranks)
            })
        })
    }

    proptest! {
        /// A rank that another rank's result needs contributes and is waited for.
        #[test]
        fn needed_ranks_contribute_and_are_awaited((collective, ranks) in collective()) {
            for placement in PLACEMENTS {
                let role = |rank| collective.role(rank, ranks, placement);
                for to in 0..ranks {
                    for from in (0..ranks).filter(|from| *from != to) {
                        if collective.part(from, to, ranks).is_some() {
                            prop_assert!(role(from).contributes);
                            prop_assert!(role(from).awaited);
                            prop_assert!(members(role(to).waits_for, ranks).contains(&from));
                            prop_assert!(members(role(to).compared, ranks).contains(&from));
                        }
                    }
                }
            }
        }

        /// A rank is awaited exactly if another rank waits for it.
        #[test]
        fn ranks_wait_for_the_awaited_only((collective, ranks) in collective()) {
            for placement in PLACEMENTS {
                let role = |rank| collective.role(rank, ranks, placement);
                for awaited in 0..ranks {
                    let waits = |rank| members(role(rank).waits_for, ranks).contains(&awaited);
                    let any = (0..ranks).any(|rank| rank != awaited && waits(rank));
                    prop_assert_eq!(role(awaited).awaited, any, "rank {}", awaited);
                }
            }
        }

        /// The last awaited rank to arrive wakes its waiters.
        #[test]
        fn the_last_awaited_rank_wakes((collective, ranks) in collective()) {
            for placement in PLACEMENTS {
                let role = |rank| collective.role(rank, ranks, placement);
                for waiter in 0..ranks {
                    let awaited = members(role(waiter).waits_for, ranks);
                    for last in awaited.iter().filter(|last| **last != waiter) {
                        let needed = members(role(*last).wakes_after, ranks);
                        prop_assert!(
                            needed.iter().all(|rank| rank == last || awaited.contains(rank)),
                            "rank {} waits for {:?}, rank {} wakes after {:?}",
                            waiter, awaited, last, needed
                        );
                    }
                }
            }
        }

        /// The length of a result is the sum of its blocks, or that of the reduced part.
        #[test]
        fn results_have_the_length_of_their_parts((collective, ranks) in collective()) {
            for rank in 0..ranks {
                let role = collective.role(rank, ranks, ContributionPlacement::Arena);
                let parts = (0..ranks).filter_map(|from| collective.part(from, rank, ranks));
                let lengths = parts.map(|part| part.end - part.start);
                let expected: u64 = match role.result {
                    ResultRule::Fold { .. } => lengths.max().unwrap_or(0),
                    _ => lengths.sum(),
                };
                prop_assert_eq!(collective.result_bytes(&role), expected);
            }
        }
    }
}
