//! Part of each rank in a flat collective: its contribution, its result, and the ranks that it waits
//! for. All of it follows from the [`Pattern`].

use crate::flat::pattern::{FlatCollective, OWNER_REDUCES, Pattern, part_bytes};
use crate::flat::variable_blocks::block;
use std::ops::Range;

/// Executor of a reduction.
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
    /// Executor of the reduction. Results that are copies are fetched by their readers.
    pub(crate) reduced_by: ReducedBy,
    /// Every byte of a contribution goes to one rank only.
    pub(crate) is_pairwise: bool,
}

impl FlatCollective {
    /// Returns the part of `rank` among `ranks`. The only interpretation of [`Pattern`]: every other
    /// property follows from it.
    ///
    /// Always inlined, so a caller that uses one field of a known pattern computes nothing else.
    /// For the same reason nothing here can panic.
    #[inline(always)]
    pub(crate) fn role(&self, rank: u32, ranks: u32) -> Role {
        let bytes = self.bytes;
        let is_root = |root: u32| rank == root;
        let block_of = |first: u32, index: u32| ResultRule::Blocks { first, sources: 1, index };
        let blocks_of_all = |index: u32| ResultRule::Blocks { first: 0, sources: ranks, index };
        let fold = |ranks: u32, at: u64| ResultRule::Fold { ranks, at };
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
                awaited: is_root(root),
                result: if is_root(root) { ResultRule::Nothing } else { block_of(root, 0) },
                ..waiting_for(RankSet::One(root))
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
                is_pairwise: true,
                ..all
            },
            Pattern::Reduce => {
                // With two ranks every line moves between the cores once; one rank's result would
                // need another transfer.
                let is_long = ranks > 2 && bytes.saturating_mul(u64::from(ranks)) > OWNER_REDUCES;
                let reduced_by = if is_long { ReducedBy::Chunks } else { ReducedBy::Reader };
                Role { result: fold(ranks, 0), reduced_by, ..all }
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
                // No result contains the contribution of the last rank, which would be staged in
                // vain.
                contributes: all.contributes && rank.wrapping_add(1) < ranks,
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
        let role = self.role(to, ranks);
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
                    let role = self.role(to, ranks);
                    let ResultRule::Blocks { first, sources, index } = role.result else {
                        return None;
                    };
                    let number = if role.is_divided { index as usize } else { 0 };
                    (first..first + sources).contains(&rank).then(|| block(&blocks.sent, number))
                }
            },
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::{CallKind, Signature};
    use proptest::prelude::*;

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
            let role = |rank| collective.role(rank, ranks);
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

        /// A rank is awaited exactly if another rank waits for it.
        #[test]
        fn ranks_wait_for_the_awaited_only((collective, ranks) in collective()) {
            let role = |rank| collective.role(rank, ranks);
            for awaited in 0..ranks {
                let waits = |rank| members(role(rank).waits_for, ranks).contains(&awaited);
                let any = (0..ranks).any(|rank| rank != awaited && waits(rank));
                prop_assert_eq!(role(awaited).awaited, any, "rank {}", awaited);
            }
        }

        /// The last awaited rank to arrive wakes its waiters.
        #[test]
        fn the_last_awaited_rank_wakes((collective, ranks) in collective()) {
            let role = |rank| collective.role(rank, ranks);
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

        /// A rank of a scan contributes exactly if some result contains its contribution.
        #[test]
        fn ranks_of_scans_contribute_to_results(ranks in 2u32..9, is_exclusive: bool) {
            let pattern = if is_exclusive { Pattern::Exscan } else { Pattern::Scan };
            let call = Signature::new(CallKind::Barrier, 8, 0);
            let collective = FlatCollective::new(pattern, 8, call);
            for from in 0..ranks {
                let is_needed = (0..ranks).any(|to| collective.part(from, to, ranks).is_some());
                prop_assert_eq!(collective.role(from, ranks).contributes, is_needed);
            }
        }

        /// The length of a result is the sum of its blocks, or that of the reduced part.
        #[test]
        fn results_have_the_length_of_their_parts((collective, ranks) in collective()) {
            for rank in 0..ranks {
                let role = collective.role(rank, ranks);
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
