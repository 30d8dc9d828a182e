//! Neighbour allgather: the same block along every outgoing edge.

use super::Neighborhood;
use crate::blocks::Parts;
use crate::{CollectiveError, Sizes};
use goal::graph::{Access, Graph};

/// Sends the same block of `bytes` bytes to every destination and receives one block from each source. The output
/// holds the blocks in the order of the sources.
///
/// Hoefler, Träff: "Sparse Collective Operations for MPI" (2009). All edges at once; none waits for another.
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
pub fn neighbor_allgather(neighborhood: &Neighborhood, bytes: u64) -> Result<Graph, CollectiveError> {
    let mut graph = neighborhood.graph();
    let input = graph.buffer(Access::Input, bytes);
    let sent = vec![input; neighborhood.destinations().len()];
    // A graph has fewer than 2^32 vertices, so a longer list fails to compile whatever its length reads as here.
    let sources = u32::try_from(neighborhood.sources().len()).unwrap_or(u32::MAX);
    let sizes = Sizes::equal(sources, bytes)?;
    let output = Parts::new(graph.buffer(Access::Output, sizes.total()), &sizes);
    let received: Vec<_> = (0..sources).map(|position| output.at(position)).collect();
    neighborhood.draw(&mut graph, &sent, &received)?;
    Ok(graph)
}
