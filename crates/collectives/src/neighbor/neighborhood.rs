//! A rank's edges in a directed graph, and the operations for them.

use super::grid::Grid;
use crate::CollectiveError;
use crate::member::Member;
use goal::graph::{Block, Graph};

/// One entry in a rank's list of sources or destinations; one block of the buffer belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Neighbor {
    /// The rank at the other end; `None` beyond the edge of a grid, where the block exists but is
    /// neither sent nor written.
    pub rank: Option<u32>,
    /// Parallel edges are paired within the same tag only.
    pub tag: u32,
}

/// A rank's edges: its sources and its destinations, in the order of the blocks in its
/// buffers.
///
/// ```
/// use collectives::neighbor::Neighborhood;
///
/// // Rank 1 of 4 receives from 0 and twice from 3, and sends to 2.
/// let neighborhood = Neighborhood::new(1, 4, &[0, 3, 3], &[2])?;
/// assert_eq!(neighborhood.sources().len(), 3);
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Neighborhood {
    rank: u32,
    ranks: u32,
    sources: Vec<Neighbor>,
    destinations: Vec<Neighbor>,
    /// Positions of the two ends of each edge from the rank to itself: destination, source.
    loops: Vec<(usize, usize)>,
}

impl Neighborhood {
    /// Rank `rank` of `ranks` receives from these sources and sends to these destinations.
    ///
    /// A rank that occurs several times has several edges: the k-th edge from a to b among a's
    /// destinations is the k-th edge from a among b's sources.
    ///
    /// # Errors
    /// [`CollectiveError::RankOutOfRange`], [`CollectiveError::NeighborOutOfRange`],
    /// [`CollectiveError::SelfLoopsDiffer`].
    pub fn new(
        rank: u32,
        ranks: u32,
        sources: &[u32],
        destinations: &[u32],
    ) -> Result<Self, CollectiveError> {
        const TAG: u32 = 0;
        let list = |ranks: &[u32]| {
            ranks.iter().map(|rank| Neighbor { rank: Some(*rank), tag: TAG }).collect()
        };
        Self::of(rank, ranks, list(sources), list(destinations))
    }

    /// The [neighbours](Grid::neighbors) of a rank in a grid, as sources and as destinations.
    ///
    /// A block sent in the negative direction of a dimension arrives at its neighbour as
    /// coming from the positive direction, and the reverse. This also holds where both neighbours
    /// are the same rank, in a periodic dimension of one or two ranks (MPI standard, version 4.1,
    /// section 8.6), so a halo exchange needs no special case.
    ///
    /// # Errors
    /// [`CollectiveError::RankOutOfRange`].
    ///
    /// ```
    /// use collectives::neighbor::{Grid, Neighborhood};
    ///
    /// // The upper left corner of a grid of 2 × 3 ranks, periodic in the second dimension.
    /// let corner = Neighborhood::cartesian(&Grid::new(&[2, 3], &[false, true])?, 0)?;
    /// let ranks: Vec<_> = corner.sources().iter().map(|source| source.rank).collect();
    /// assert_eq!(ranks, [None, Some(3), Some(2), Some(1)]);
    /// # Ok::<(), collectives::CollectiveError>(())
    /// ```
    pub fn cartesian(grid: &Grid, rank: u32) -> Result<Self, CollectiveError> {
        let neighbors = grid.neighbors(rank)?;
        // The tag is the direction of the message: what comes from the negative side was sent in
        // the positive direction.
        let list = |opposite: u32| {
            let tags = (0..).map(|position: u32| position ^ opposite);
            neighbors.iter().zip(tags).map(|(rank, tag)| Neighbor { rank: *rank, tag }).collect()
        };
        Self::of(rank, grid.ranks(), list(1), list(0))
    }

    /// Rank `rank` of `ranks` has these sources and destinations, as they were given by another
    /// rank's [`sources`](Self::sources) and [`destinations`](Self::destinations).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of(
        rank: u32,
        ranks: u32,
        sources: Vec<Neighbor>,
        destinations: Vec<Neighbor>,
    ) -> Result<Self, CollectiveError> {
        Member::new(rank, ranks)?;
        exist("source", &sources, ranks)?;
        exist("destination", &destinations, ranks)?;
        let loops = loops(rank, &sources, &destinations)?;
        Ok(Neighborhood { rank, ranks, sources, destinations, loops })
    }

    /// The rank of these edges.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Sources of the rank.
    pub fn sources(&self) -> &[Neighbor] {
        &self.sources
    }

    /// Destinations of the rank.
    pub fn destinations(&self) -> &[Neighbor] {
        &self.destinations
    }

    /// The empty graph of this rank.
    pub(super) fn graph(&self) -> Graph {
        Graph::new(self.rank, self.ranks)
    }

    /// Adds all edges: one block for each destination and one for each source, both in the order
    /// of the lists. Vertex order is list order, which pairs the k-th parallel edge here with the
    /// k-th over there.
    pub(super) fn build(
        &self,
        graph: &mut Graph,
        sent: &[Block],
        received: &[Block],
    ) -> Result<(), CollectiveError> {
        for (destination, source) in &self.loops {
            let from = sent[*destination];
            let to = received[*source];
            if from.length != to.length {
                return Err(CollectiveError::SelfLoopSizesDiffer {
                    rank: self.rank,
                    destination: *destination,
                    sent: from.length,
                    source_position: *source,
                    expected: to.length,
                });
            }
            graph.copy(from, to);
        }
        for (tag, source, block) in self.remote(&self.sources, received) {
            graph.receive(block, source, tag);
        }
        for (tag, destination, block) in self.remote(&self.destinations, sent) {
            graph.send(block, destination, tag);
        }
        Ok(())
    }

    /// Tag, rank and block of every neighbour that is another rank.
    fn remote<'a>(
        &'a self,
        neighbors: &'a [Neighbor],
        blocks: &'a [Block],
    ) -> impl Iterator<Item = (u32, u32, Block)> + 'a {
        neighbors.iter().zip(blocks).filter_map(|(neighbor, block)| {
            let rank = neighbor.rank.filter(|rank| *rank != self.rank)?;
            Some((neighbor.tag, rank, *block))
        })
    }
}

fn exist(list: &'static str, neighbors: &[Neighbor], ranks: u32) -> Result<(), CollectiveError> {
    for (position, neighbor) in neighbors.iter().enumerate() {
        if let Some(neighbor) = neighbor.rank.filter(|rank| *rank >= ranks) {
            return Err(CollectiveError::NeighborOutOfRange { list, position, neighbor, ranks });
        }
    }
    Ok(())
}

/// Pairs the ends of edges from a rank to itself, in list order within each tag: the same rule as
/// between ranks.
fn loops(
    rank: u32,
    sources: &[Neighbor],
    destinations: &[Neighbor],
) -> Result<Vec<(usize, usize)>, CollectiveError> {
    let ends = |neighbors: &[Neighbor]| {
        let mut ends: Vec<(u32, usize)> = (neighbors.iter().enumerate())
            .filter(|(_, neighbor)| neighbor.rank == Some(rank))
            .map(|(position, neighbor)| (neighbor.tag, position))
            .collect();
        ends.sort_unstable();
        ends
    };
    let sources = ends(sources);
    let destinations = ends(destinations);
    if sources.iter().map(|end| end.0).ne(destinations.iter().map(|end| end.0)) {
        let destinations = destinations.len();
        let sources = sources.len();
        return Err(CollectiveError::SelfLoopsDiffer { rank, destinations, sources });
    }
    Ok(destinations
        .iter()
        .zip(&sources)
        .map(|(destination, source)| (destination.1, source.1))
        .collect())
}
