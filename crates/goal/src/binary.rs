//! The GOAL binary format, version 1, as LogGOPSim and ATLAHS read and write it.
//!
//! Little endian, nothing padded. Offsets count from byte 8, behind the magic number.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | u64 magic, 4223 |
//! | 4, 1, 1 | u32 number of ranks, u8 highest cpu of all operations, u8 highest nic |
//! | 16 for each rank | u64 start and u64 end of the rank's section; sections follow each other without gaps |
//!
//! A rank's section:
//!
//! | bytes | content |
//! |---|---|
//! | 4, 4 | u32 number of nodes, u32 number of roots (nodes without dependencies) |
//! | 4 for each root | u32 index of the node, ascending |
//! | 39 for each node | in vertex order, see below |
//! | 4 for each edge | u32 index of the node that waits; node by node those that wait for its completion, then those that wait for its start, each in the order in which the edges were added |
//!
//! A node:
//!
//! | byte | field |
//! |---|---|
//! | 0 | u32 number of edges that lead here, of both kinds |
//! | 4 | u8 1 send, 2 receive, 3 calc |
//! | 5 | u32 peer, `0xffff_ffff` for any; 0 for calc |
//! | 9 | u64 bytes, or nanoseconds |
//! | 17 | u32 tag, `0xffff_ffff` for any; 0 for calc |
//! | 21, 22 | u8 cpu, u8 nic |
//! | 23, 27 | u32 number of edges until completion, u32 index of the first among the section's edges |
//! | 31, 35 | the same for edges until start |
//!
//! Other programs write nodes of other sizes under the same magic number. Arithmetic distinguishes
//! them: a section is as long as its roots, its nodes and as many edges as its nodes count.

mod error;
mod layout;
mod reader;
mod writer;

pub use error::BinaryError;

use crate::graph::Graph;

/// Reads the graphs of all ranks. [`check`](mod@crate::check) examines their meaning: that peers
/// exist, and that every send has a receive. Takes memory in proportion to the file, whatever its
/// headers contain.
///
/// # Errors
/// The first thing that does not follow the format.
pub fn read(bytes: &[u8]) -> Result<Vec<Graph>, BinaryError> {
    reader::read(bytes)
}

/// Writes the graphs of all ranks, in order. Labels, line numbers and the places of blocks are left
/// out.
///
/// # Errors
/// Returns an error with the vertex that the format cannot represent.
///
/// ```
/// use goal::graph::{Block, Graph};
///
/// let mut graph = Graph::new(0, 1);
/// let calc = graph.calc(500);
/// let send = graph.send(Block::unplaced(8), 0, 0);
/// graph.requires(send, calc);
/// let bytes = goal::binary::write(&[graph.clone()])?;
/// assert_eq!(bytes.len(), 8 + 6 + 16 + (4 + 4) + 4 + 2 * 39 + 4);
/// assert_eq!(goal::binary::read(&bytes)?, [graph]);
/// # Ok::<(), goal::binary::BinaryError>(())
/// ```
pub fn write(graphs: &[Graph]) -> Result<Vec<u8>, BinaryError> {
    Ok(writer::write(graphs)?)
}
