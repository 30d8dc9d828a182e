//! Sparse neighbour collectives over any directed graph of ranks.

mod paths;
mod topology;

use crate::communicator::Communicator;
use crate::error::{Result, argument};
use crate::forms::forms;
use collectives::neighbor::{Grid, Neighbor, Neighborhood};
use engine::signature::CallKind;

use topology::{SharedTopology, gather_neighborhoods, needs_all_edges};

pub use paths::Neighbors;

impl Communicator {
    /// Makes a communicator with neighbours: `sources` send to this rank, which sends to
    /// `destinations`. Duplicates and this rank itself are allowed; the k-th edge from a to b in
    /// a's list matches the k-th edge from a in b's list.
    ///
    /// All ranks call it, in the same order as their other collectives. It waits for them where the
    /// collectives need the edges of all ranks: with algorithms other than `join`, and to combine
    /// blocks between nodes. The collectives detect lists that do not match: all mismatches where a
    /// schedule is linked, else a missing block.
    ///
    /// On several nodes with several ranks each, short blocks of equal size from one node to
    /// another share a message, and a block of an allgather crosses once for all ranks of a node.
    /// Blocks of different sizes are sent separately, because only their two ends have the sizes.
    ///
    /// # Errors
    /// Fails if a neighbour is not a rank of the communicator.
    pub fn neighbors(&self, sources: &[u32], destinations: &[u32]) -> Result<Neighbors> {
        let [sources, destinations] = [sources, destinations]
            .map(|list| list.iter().copied().map(Some).collect::<Vec<Option<u32>>>());
        self.neighbors_with_gaps(&sources, &destinations)
    }

    /// As [`neighbors`](Self::neighbors), with entries that stand for no rank, as
    /// [`cartesian`](Self::cartesian) has them beyond the edge of a grid: what is sent there is lost,
    /// and the block of such a source keeps its values.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// // A chain: the first rank has no rank before it, the last one none behind it.
    /// tradewind::local(3, |world| {
    ///     let (rank, last) = (world.rank(), world.size() - 1);
    ///     let before = rank.checked_sub(1);
    ///     let behind = (rank < last).then_some(rank + 1);
    ///     let chain = world.neighbors_with_gaps(&[before], &[behind])?;
    ///     let mut got = [9];
    ///     chain.neighbor_alltoall(&[rank], &mut got)?;
    ///     assert_eq!(got, [before.unwrap_or(9)]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`neighbors`](Self::neighbors). A rank with wrong lists fails alone, but takes
    /// part in what the others wait for.
    pub fn neighbors_with_gaps(
        &self,
        sources: &[Option<u32>],
        destinations: &[Option<u32>],
    ) -> Result<Neighbors> {
        let list = |ranks: &[Option<u32>]| {
            ranks.iter().map(|rank| Neighbor { rank: *rank, tag: 0 }).collect()
        };
        let lists = (list(sources), list(destinations));
        let own = Neighborhood::of(self.rank(), self.size(), lists.0, lists.1);
        let all = if needs_all_edges(self)? {
            SharedTopology::new(gather_neighborhoods(self, own.as_ref().ok())?)
        } else {
            SharedTopology::default()
        };
        Ok(Neighbors::new(self.clone(), own?, all))
    }

    /// Makes the neighbours of a [grid](crate::Grid) of ranks: dimension by dimension, the previous
    /// and the next rank. Rank 0 is at the origin, and the last dimension varies fastest.
    ///
    /// # Errors
    /// Fails if the product of the dimensions is not the number of ranks, or the two lists have
    /// different lengths.
    pub fn cartesian(&self, dimensions: &[u32], periodic: &[bool]) -> Result<Neighbors> {
        let grid = Grid::new(dimensions, periodic)?;
        if grid.ranks() != self.size() {
            let found = format!("{} ranks", grid.ranks());
            return Err(argument(
                "the product of the dimensions",
                found,
                format!("{} ranks", self.size()),
            ));
        }
        let all = if needs_all_edges(self)? {
            let of_rank = |rank| Neighborhood::cartesian(&grid, rank);
            SharedTopology::new((0..self.size()).map(of_rank).collect())
        } else {
            SharedTopology::default()
        };
        let own = Neighborhood::cartesian(&grid, self.rank())?;
        Ok(Neighbors::new(self.clone(), own, all))
    }
}

impl Neighbors {
    /// The underlying communicator.
    pub fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    /// Ranks that send to this one, in the order of the blocks of an output; `None` beyond the edge
    /// of a grid.
    pub fn sources(&self) -> Vec<Option<u32>> {
        self.neighborhood.sources().iter().map(|neighbor| neighbor.rank).collect()
    }

    /// Ranks that this one sends to, in the order of the blocks of an input; `None` beyond the edge
    /// of a grid.
    pub fn destinations(&self) -> Vec<Option<u32>> {
        self.neighborhood.destinations().iter().map(|neighbor| neighbor.rank).collect()
    }
}

forms! {
    /// # Collectives
    impl Neighbors in Neighbors::communicator;

    /// Sends a block to every destination and receives one from every source. Blocks of neighbours
    /// beyond the edge of a grid keep their values.
    ///
    /// Shapes: the input has one block of n elements for each destination, the output one for each
    /// source, with the same n on all ranks.
    ///
    /// # Errors
    /// Fails if a length does not fit, or a rank is gone or in another collective.
    neighbor_alltoall, ineighbor_alltoall,
    neighbor_alltoall_init("with `count` elements a neighbour", count):
        (input; output: &'o mut [T])
        = plan_equal(CallKind::NeighborAlltoall);

    /// Sends a block to every destination and receives one from every source; each may have another
    /// length.
    ///
    /// Shapes: `sent` has the number of elements for each destination and `received` that from each
    /// source; blocks follow each other without gaps. A neighbour beyond the edge of a grid also
    /// has a block.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// // A ring in which rank r passes on r elements.
    /// tradewind::local(3, |world| {
    ///     let (rank, before) = (world.rank(), (world.rank() + 2) % 3);
    ///     let ring = world.neighbors(&[before], &[(rank + 1) % 3])?;
    ///     let mut got = vec![9; before as usize];
    ///     ring.neighbor_alltoallv(&vec![rank; rank as usize], &[rank as usize], &mut got, &[before as usize])?;
    ///     assert_eq!(got, vec![before; before as usize]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a length does not fit, a block is longer or shorter than its receiver expects, or a
    /// rank is gone or in another collective.
    neighbor_alltoallv, ineighbor_alltoallv(takes_own_sizes),
    neighbor_alltoallv_init("of these numbers of elements"):
        (input, sent: &[usize]; output: &'o mut [T], received: &[usize])
        = plan_alltoallv();

    /// Sends the same input to every destination and receives one block from every source.
    ///
    /// Shapes: the input has n elements, the output n for each source, with the same n on all
    /// ranks.
    ///
    /// # Errors
    /// Fails if a length does not fit, or a rank is gone or in another collective.
    neighbor_allgather, ineighbor_allgather,
    neighbor_allgather_init("of `count` elements", count):
        (input; output: &'o mut [T])
        = plan_equal(CallKind::NeighborAllgather);

    /// Sends the same input to every destination and receives one block from every source; each may
    /// have another length.
    ///
    /// Shapes: `received` has the number of elements from each source.
    ///
    /// # Errors
    /// The errors of [`neighbor_alltoallv`](Self::neighbor_alltoallv).
    neighbor_allgatherv, ineighbor_allgatherv(takes_own_sizes),
    neighbor_allgatherv_init("of `count` elements, and `received` from the sources", count):
        (input; output: &'o mut [T], received: &[usize])
        = plan_allgatherv();
}
