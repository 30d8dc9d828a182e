//! The edges of all ranks, put together.

use super::{Neighbor, Neighborhood};
use crate::CollectiveError;
use std::collections::HashMap;

/// The edges of all ranks, which ranks need that pass on blocks for others.
///
/// ```
/// use collectives::neighbor::{Neighborhood, Topology};
///
/// let one = Neighborhood::new(0, 2, &[], &[1, 1])?;
/// let other = Neighborhood::new(1, 2, &[0, 0], &[])?;
/// let topology = Topology::new(&[one.clone(), other])?;
/// assert_eq!(topology.ranks(), 2);
/// // Rank 0 lists rank 1 twice, but rank 1 lists no rank.
/// assert!(Topology::new(&[one, Neighborhood::new(1, 2, &[], &[])?]).is_err());
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    ranks: u32,
    /// By the rank they lead to, then by that they come from.
    edges: Vec<Edge>,
    /// The lengths of each rank's lists: sources, destinations.
    neighbors: Vec<(usize, usize)>,
}

/// An edge, with its place in the lists of both ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    pub(crate) to: u32,
    pub(crate) from: u32,
    /// Its position among the sources of the rank that it leads to.
    pub(crate) source: usize,
    /// Its position among the destinations of the rank that it comes from.
    pub(crate) destination: usize,
}

/// Edges that one rank lists with another, by tag: their positions.
type Ends = HashMap<(u32, u32, u32), Vec<usize>>;

impl Topology {
    /// From the neighbourhoods of all ranks, in their order.
    ///
    /// # Errors
    /// [`CollectiveError::EdgesDiffer`] when what one rank lists is not what the other does;
    /// [`CollectiveError::SizesOfOtherRanks`] when they are not those of all ranks.
    pub fn new(neighborhoods: &[Neighborhood]) -> Result<Self, CollectiveError> {
        let ranks = neighborhoods.len() as u32;
        for (place, own) in (0..).zip(neighborhoods) {
            if own.ranks() != ranks || own.rank() != place {
                return Err(CollectiveError::SizesOfOtherRanks {
                    sizes: neighborhoods.len(),
                    ranks: own.ranks(),
                });
            }
        }
        let mut starts = Ends::new();
        let mut ends = Ends::new();
        for own in neighborhoods {
            for (position, Neighbor { rank, tag }) in own.destinations().iter().enumerate() {
                rank.iter().for_each(|to| {
                    starts.entry((own.rank(), *to, *tag)).or_default().push(position)
                });
            }
            for (position, Neighbor { rank, tag }) in own.sources().iter().enumerate() {
                rank.iter().for_each(|from| {
                    ends.entry((*from, own.rank(), *tag)).or_default().push(position)
                });
            }
        }
        let count = |list: &Ends, key| list.get(key).map_or(0, Vec::len);
        // The first in their order, so that all ranks complain of the same.
        let differs = starts
            .keys()
            .chain(ends.keys())
            .filter(|key| count(&starts, key) != count(&ends, key))
            .min();
        if let Some(key @ (from, to, _)) = differs {
            let destinations = count(&starts, key);
            let sources = count(&ends, key);
            return Err(CollectiveError::EdgesDiffer {
                from: *from,
                to: *to,
                destinations,
                sources,
            });
        }
        let mut edges = Vec::new();
        for (key @ (from, to, _), positions) in &starts {
            let pairs = positions.iter().zip(ends.get(key).into_iter().flatten());
            edges.extend(pairs.map(|(destination, source)| Edge {
                from: *from,
                to: *to,
                destination: *destination,
                source: *source,
            }));
        }
        edges.sort_unstable();
        let neighbors = neighborhoods
            .iter()
            .map(|own| (own.sources().len(), own.destinations().len()))
            .collect();
        Ok(Topology { ranks, edges, neighbors })
    }

    /// The number of ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// All edges, by the rank they lead to.
    pub(crate) fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Number of sources and destinations that a rank lists, those beyond the edge of a grid among
    /// them.
    pub(crate) fn neighbors_of(&self, rank: u32) -> (usize, usize) {
        self.neighbors[rank as usize]
    }
}
