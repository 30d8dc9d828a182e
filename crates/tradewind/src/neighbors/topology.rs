//! What ranks of several nodes know of each other's edges, and which of their blocks travel
//! together.

use super::Neighbors;
use crate::algorithms::{Levels, NeighborAlgorithm};
use crate::communicator::Communicator;
use crate::error::Result;
use crate::spanning::EXCHANGE_WORDS;
use collectives::CollectiveError;
use collectives::neighbor::{Neighbor, Neighborhood, Topology};
use engine::call::{Call, CallKind};
use std::num::NonZeroU32;
use std::sync::OnceLock;

/// Up to this many bytes a block, what goes from one node to another goes in one message: beyond,
/// what is saved by that is spent on copying. Measured with the kernel and the agent engine on 2
/// and 4 nodes of 2 and 4 ranks, on a torus.
const TWO_LEVEL_BLOCK: u64 = 512;

/// No rank: a neighbour beyond the edge of a grid.
const NOBODY: u32 = u32::MAX;

/// Every rank's edges, once they have been told; or what is wrong with them, which all ranks see
/// alike.
pub(super) type Told = OnceLock<Result<Topology, CollectiveError>>;

/// Between what blocks are put together.
#[derive(Clone, Copy, Debug)]
pub(super) enum Nodes {
    /// Nodes, as the ranks lie.
    Nodes,
    /// So many consecutive ranks, as the caller says.
    Consecutive(NonZeroU32),
}

impl Nodes {
    /// A number that differs where this does, and is none of the numbers of topologies.
    pub(super) fn digest(self) -> u64 {
        let number = match self {
            Nodes::Nodes => 0,
            Nodes::Consecutive(ranks) => ranks.get(),
        };
        1 << 63 | u64::from(number) << 24
    }

    /// What tells schedules apart.
    pub(super) fn levels(self) -> Levels {
        match self {
            Nodes::Nodes => Levels::One,
            Nodes::Consecutive(ranks) => Levels::Two(ranks),
        }
    }
}

impl Neighbors {
    /// Whether blocks of so many bytes are put together: where that is asked for, and where it is
    /// left open and ranks share nodes. All ranks come to the same answer.
    pub(super) fn together(&self, bytes: u64) -> Option<Nodes> {
        let communicator = &self.communicator;
        let chosen = communicator.chosen();
        if chosen.neighbor == Some(NeighborAlgorithm::Direct) {
            return chosen.ranks_per_node.map(Nodes::Consecutive);
        }
        let shared = communicator.span().is_some() && communicator.nodes() < communicator.size();
        (shared && bytes <= TWO_LEVEL_BLOCK).then_some(Nodes::Nodes)
    }

    /// The node of each rank.
    pub(super) fn nodes_of_ranks(&self, nodes: Nodes) -> Vec<u32> {
        let communicator = &self.communicator;
        match (nodes, communicator.span()) {
            (Nodes::Nodes, Some(span)) => span.nodes_of_ranks(),
            (Nodes::Nodes, None) => vec![0; communicator.size() as usize],
            (Nodes::Consecutive(per_node), _) => {
                (0..communicator.size()).map(|rank| rank / per_node).collect()
            }
        }
    }

    /// All ranks' edges. The first call waits for all ranks.
    pub(super) fn topology(&self, call: Call) -> Result<&Topology> {
        let told = match self.told.get() {
            Some(told) => told,
            None => {
                let lists = self.communicator.exchange_lists(&words(&self.neighborhood), call)?;
                let ranks = self.communicator.size();
                let each = (0..).zip(&lists).map(|(rank, list)| neighborhood(rank, ranks, list));
                let all = each.collect::<Result<Vec<_>, _>>().and_then(|all| Topology::new(&all));
                self.told.get_or_init(|| all)
            }
        };
        Ok(told.as_ref().map_err(Clone::clone)?)
    }
}

/// A rank's lists in words: how many destinations there are, and then they and the sources.
fn words(own: &Neighborhood) -> Vec<u64> {
    let word = |neighbor: &Neighbor| {
        u64::from(neighbor.rank.unwrap_or(NOBODY)) << 32 | u64::from(neighbor.tag)
    };
    let count = own.destinations().len() as u64;
    [count].into_iter().chain(own.destinations().iter().chain(own.sources()).map(word)).collect()
}

fn neighborhood(rank: u32, ranks: u32, words: &[u64]) -> Result<Neighborhood, CollectiveError> {
    let neighbor = |word: &u64| {
        let (rank, tag) = ((word >> 32) as u32, *word as u32);
        Neighbor { rank: (rank != NOBODY).then_some(rank), tag }
    };
    let (count, lists) =
        words.split_first().map_or((0, words), |(count, lists)| (*count as usize, lists));
    let (destinations, sources) = lists.split_at(count.min(lists.len()));
    Neighborhood::of(
        rank,
        ranks,
        sources.iter().map(neighbor).collect(),
        destinations.iter().map(neighbor).collect(),
    )
}

impl Communicator {
    /// Every rank gives its words and gets those of all, in rank order. Waits for all ranks; words
    /// travel in rounds of a few.
    fn exchange_lists(&self, words: &[u64], call: Call) -> Result<Vec<Vec<u64>>> {
        let call = Call { kind: CallKind::Link, ..call };
        let lengths = self.tell_all(words.len() as u64, call)?;
        let mut lists = vec![Vec::new(); lengths.len()];
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let mut given = words.chunks(EXCHANGE_WORDS);
        while (lists[0].len() as u64) < longest {
            let mut round = [0; EXCHANGE_WORDS];
            let part = given.next().unwrap_or(&[]);
            round[..part.len()].copy_from_slice(part);
            let told = self.exchange_words(round, call)?;
            lists.iter_mut().zip(told).for_each(|(list, words)| list.extend(words));
        }
        lists.iter_mut().zip(lengths).for_each(|(list, length)| list.truncate(length as usize));
        Ok(lists)
    }
}
