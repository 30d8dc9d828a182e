//! The topology that the ranks of several nodes share, and the combination of their blocks into one
//! message a node.

use crate::communicator::Communicator;
use crate::error::Result;
use crate::internode::unattended;
use collectives::neighbor::{Neighbor, Neighborhood, Topology};
use collectives::{Algorithm, CollectiveError};
use engine::signature::{CallKind, Signature};
use std::num::NonZeroU32;
use std::sync::OnceLock;

/// Longest block, in bytes, that is combined with others into one message from node to node. For
/// longer blocks the copies cost more than the messages. Measured with the kernel and the agent
/// backend on 2 and 4 nodes of 2 and 4 ranks, on a torus.
const TWO_LEVEL_BLOCK: u64 = 512;

/// Code of a neighbour beyond the edge of a grid.
const NO_RANK: u32 = u32::MAX;

/// The neighbours of all ranks, as this rank knows them.
#[derive(Debug, Default)]
pub(super) struct SharedTopology {
    /// By rank; the error in the lists is the same on all ranks. `None` if no collective of the
    /// communicator needs them.
    neighborhoods: Option<Result<Vec<Neighborhood>, CollectiveError>>,
    edges: OnceLock<Result<Topology, CollectiveError>>,
}

impl SharedTopology {
    pub(super) fn new(neighborhoods: Result<Vec<Neighborhood>, CollectiveError>) -> Self {
        SharedTopology { neighborhoods: Some(neighborhoods), edges: OnceLock::new() }
    }

    /// Returns the neighbours of a rank.
    pub(super) fn neighborhood(&self, rank: u32) -> Result<&Neighborhood> {
        let all = self.neighborhoods()?;
        Ok(all
            .get(rank as usize)
            .ok_or(CollectiveError::RankOutOfRange { rank, ranks: all.len() as u32 })?)
    }

    /// Returns the edges of all ranks.
    pub(super) fn edges(&self) -> Result<&Topology> {
        let all = self.neighborhoods()?;
        Ok(self.edges.get_or_init(|| Topology::new(all)).as_ref().map_err(Clone::clone)?)
    }

    fn neighborhoods(&self) -> Result<&[Neighborhood]> {
        match &self.neighborhoods {
            Some(all) => Ok(all.as_ref().map_err(Clone::clone)?),
            None => Ok(&[]),
        }
    }
}

/// Groups of ranks that combine their blocks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Nodes {
    /// The nodes that the ranks are on.
    Nodes,
    /// Groups of this many consecutive ranks, set by the caller.
    Consecutive(NonZeroU32),
}

impl Nodes {
    /// Distinct for different groupings, and from the numbers of topologies.
    pub(super) fn digest(self) -> u64 {
        let number = match self {
            Nodes::Nodes => 0,
            Nodes::Consecutive(ranks) => ranks.get(),
        };
        1 << 63 | u64::from(number) << 24
    }

    /// The part of the key of a cached schedule.
    pub(super) fn ranks_per_node(self) -> Option<NonZeroU32> {
        match self {
            Nodes::Nodes => None,
            Nodes::Consecutive(ranks) => Some(ranks),
        }
    }
}

/// Returns the grouping by which blocks of this size are combined, if they are: where the caller
/// sets one, and by default where ranks share nodes. The same on all ranks.
pub(super) fn grouping(communicator: &Communicator, bytes: u64) -> Option<Nodes> {
    let chosen = communicator.chosen();
    if chosen.neighbor == Some(Algorithm::Direct) {
        return chosen.ranks_per_node.map(Nodes::Consecutive);
    }
    let shared = communicator.internode().is_some() && communicator.nodes() < communicator.size();
    (shared && bytes <= TWO_LEVEL_BLOCK).then_some(Nodes::Nodes)
}

/// Returns the node of each rank.
pub(super) fn nodes_of_ranks(communicator: &Communicator, nodes: Nodes) -> Vec<u32> {
    match (nodes, communicator.internode()) {
        (Nodes::Nodes, Some(internode)) => internode.nodes_of_ranks(),
        (Nodes::Nodes, None) => vec![0; communicator.size() as usize],
        (Nodes::Consecutive(per_node), _) => {
            (0..communicator.size()).map(|rank| rank / per_node).collect()
        }
    }
}

/// Returns whether a collective of this communicator may need the edges of all ranks: to link a
/// graph on one node, to choose its engine between nodes, or to combine blocks.
pub(super) fn needs_all_edges(communicator: &Communicator) -> Result<bool> {
    if communicator.choose_neighbor()? == Algorithm::Join {
        return Ok(false);
    }
    let chooses_engine =
        communicator.internode().is_none_or(|one| unattended::needs_all_graphs(one));
    Ok(chooses_engine || grouping(communicator, 0).is_some())
}

/// Returns the neighbours of all ranks, by rank. Waits for all ranks, so a rank whose own lists are
/// wrong calls it without them.
pub(super) fn gather_neighborhoods(
    communicator: &Communicator,
    own: Option<&Neighborhood>,
) -> Result<Result<Vec<Neighborhood>, CollectiveError>> {
    let call = Signature::new(CallKind::Link, 0, 0);
    let lists = communicator.allgather_lists(&own.map(words).unwrap_or_default(), call)?;
    let ranks = communicator.size();
    Ok((0..).zip(&lists).map(|(rank, list)| neighborhood(rank, ranks, list)).collect())
}

/// A rank's lists as words: the number of destinations, the destinations, the sources.
fn words(own: &Neighborhood) -> Vec<u64> {
    let word = |neighbor: &Neighbor| {
        u64::from(neighbor.rank.unwrap_or(NO_RANK)) << 32 | u64::from(neighbor.tag)
    };
    let count = own.destinations().len() as u64;
    [count].into_iter().chain(own.destinations().iter().chain(own.sources()).map(word)).collect()
}

fn neighborhood(rank: u32, ranks: u32, words: &[u64]) -> Result<Neighborhood, CollectiveError> {
    let neighbor = |word: &u64| {
        let rank = (word >> 32) as u32;
        Neighbor { rank: (rank != NO_RANK).then_some(rank), tag: *word as u32 }
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
