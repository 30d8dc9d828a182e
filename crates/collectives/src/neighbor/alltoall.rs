//! Neighbour all-to-all: a block of its own along every edge.

use super::Neighborhood;
use crate::CollectiveError;
use goal::graph::{Access, Block, Graph};

/// Sends one block of `bytes` bytes to each destination and receives one from each source. The
/// input holds the blocks in the order of the destinations, the output in the order of the sources.
///
/// Hoefler, Träff: "Sparse Collective Operations for MPI" (2009). All edges at once; none waits for
/// another.
///
/// # Errors
/// [`CollectiveError::TooManyBytes`].
///
/// ```
/// use collectives::neighbor::{Neighborhood, neighbor_alltoall};
///
/// let ring = Neighborhood::new(0, 4, &[3, 1], &[3, 1])?;
/// let graph = neighbor_alltoall(&ring, 1024)?;
/// assert_eq!(graph.buffers()[1].length, 2 * 1024);
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn neighbor_alltoall(
    neighborhood: &Neighborhood,
    bytes: u64,
) -> Result<Graph, CollectiveError> {
    let sent = vec![bytes; neighborhood.destinations().len()];
    let received = vec![bytes; neighborhood.sources().len()];
    neighbor_alltoallv(neighborhood, &sent, &received)
}

/// As [`neighbor_alltoall`], with a size in bytes for each destination and each source. Blocks
/// follow each other without gaps; a neighbour beyond the edge of a grid has its block, too.
///
/// # Errors
/// [`CollectiveError::SizesDoNotFit`], [`CollectiveError::SelfLoopSizesDiffer`],
/// [`CollectiveError::TooManyBytes`].
///
/// ```
/// use collectives::neighbor::{Grid, Neighborhood, neighbor_alltoallv};
///
/// // The halo of a tile with rows of 80 bytes and columns of 40 bytes.
/// let tile = Neighborhood::cartesian(&Grid::new(&[2, 2], &[true, true])?, 0)?;
/// let halo = [80, 80, 40, 40];
/// let graph = neighbor_alltoallv(&tile, &halo, &halo)?;
/// assert_eq!(graph.buffers()[0].length, 240);
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn neighbor_alltoallv(
    neighborhood: &Neighborhood,
    sent: &[u64],
    received: &[u64],
) -> Result<Graph, CollectiveError> {
    let mut graph = neighborhood.graph();
    let sent =
        blocks(&mut graph, Access::Input, "destination", neighborhood.destinations().len(), sent)?;
    let received =
        blocks(&mut graph, Access::Output, "source", neighborhood.sources().len(), received)?;
    neighborhood.build(&mut graph, &sent, &received)?;
    Ok(graph)
}

/// Declares a buffer that holds one block for each neighbour.
pub(super) fn blocks(
    graph: &mut Graph,
    access: Access,
    list: &'static str,
    neighbors: usize,
    sizes: &[u64],
) -> Result<Vec<Block>, CollectiveError> {
    if sizes.len() != neighbors {
        return Err(CollectiveError::SizesDoNotFit { list, sizes: sizes.len(), neighbors });
    }
    let total = sizes.iter().try_fold(0u64, |sum, size| sum.checked_add(*size));
    let total = total.ok_or_else(|| CollectiveError::TooManyBytes {
        what: if access == Access::Input { "the input" } else { "the output" },
        count: sizes.len() as u64,
        bytes: sizes.iter().copied().max().unwrap_or(0),
    })?;
    let buffer = graph.buffer(access, total);
    let offsets = sizes.iter().scan(0, |next, size| {
        let offset = *next;
        *next += size;
        Some(offset)
    });
    Ok(offsets.zip(sizes).map(|(offset, size)| buffer.part(offset, *size)).collect())
}
