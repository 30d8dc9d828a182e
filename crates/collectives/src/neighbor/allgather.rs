//! Neighbour allgather: the same block along every outgoing edge.

use super::Neighborhood;
use super::alltoall::blocks;
use crate::CollectiveError;
use goal::graph::{Access, Graph};

/// Sends the same block of `bytes` bytes to every destination and receives one block from each
/// source. The output holds the blocks in the order of the sources.
///
/// Hoefler, Träff: "Sparse Collective Operations for MPI" (2009). All edges at once; none waits for
/// another.
///
/// # Errors
/// [`CollectiveError::TooManyBytes`].
///
/// ```
/// use collectives::neighbor::{Neighborhood, neighbor_allgather};
///
/// let ring = Neighborhood::new(0, 4, &[3, 1], &[3, 1])?;
/// let graph = neighbor_allgather(&ring, 1024)?;
/// assert_eq!(graph.buffers()[0].length, 1024);
/// assert_eq!(graph.buffers()[1].length, 2 * 1024);
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn neighbor_allgather(
    neighborhood: &Neighborhood,
    bytes: u64,
) -> Result<Graph, CollectiveError> {
    neighbor_allgatherv(neighborhood, bytes, &vec![bytes; neighborhood.sources().len()])
}

/// As [`neighbor_allgather`], with a size in bytes for each source. What comes from each follows
/// without gaps; a neighbour beyond the edge of a grid has its block, too.
///
/// # Errors
/// [`CollectiveError::SizesDoNotFit`], [`CollectiveError::SelfLoopSizesDiffer`],
/// [`CollectiveError::TooManyBytes`].
pub fn neighbor_allgatherv(
    neighborhood: &Neighborhood,
    sent: u64,
    received: &[u64],
) -> Result<Graph, CollectiveError> {
    let mut graph = neighborhood.graph();
    let input = graph.buffer(Access::Input, sent);
    let sent = vec![input; neighborhood.destinations().len()];
    let received =
        blocks(&mut graph, Access::Output, "source", neighborhood.sources().len(), received)?;
    neighborhood.build(&mut graph, &sent, &received)?;
    Ok(graph)
}
