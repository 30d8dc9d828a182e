//! The GOAL text format, as LogGOPSim and ATLAHS read and write it.
//!
//! ```text
//! num_ranks N
//! rank 0 {
//!   [label:] send SIZEb to PEER [tag T] [cpu C] [nic N]
//!   [label:] recv SIZEb from PEER|-1 [tag T|-1] [cpu C] [nic N]
//!   [label:] calc NANOSECONDS [cpu C]
//!   a requires b        // a starts when b has completed
//!   a irequires b       // a starts when b has started
//! }
//! ```
//!
//! Then rank 1 and all others in order. A statement ends with its line. Attributes stand in this
//! order and are 0 where they are left out; -1 means any. A label is a letter followed by letters,
//! digits and `_`, belongs to its rank and is defined before it is used. Comments, `//` to the end
//! of the line and `/* */`, may stand where a statement may start. Sizes have no places: blocks
//! that are read are [`Memory::Unplaced`](crate::graph::Memory::Unplaced).

mod error;
mod lexer;
mod reader;
mod writer;

pub use error::{Position, TextError};

use crate::graph::Graph;
use crate::portable::NotPortable;

/// Reads the graphs of all ranks. [`check`](mod@crate::check) checks whether
/// peers exist and every send has a receive.
///
/// # Errors
/// The first thing that does not follow the format, with its line and column.
///
/// ```
/// let text = "num_ranks 2\nrank 0 {\nsend 8b to 1 tag 7\n}\nrank 1 {\nrecv 8b from 0 tag 7\n}\n";
/// let graphs = goal::text::read(text)?;
/// assert_eq!(graphs.len(), 2);
///
/// let text = "num_ranks 1\nrank 0 {\nsend 8 to 0\n}\n";
/// let error = goal::text::read(text).expect_err("the unit is missing");
/// assert_eq!(error.to_string(), "line 3, column 8: found `to`, expected `b` after the number of bytes");
/// # Ok::<(), goal::text::TextError>(())
/// ```
pub fn read(source: &str) -> Result<Vec<Graph>, TextError> {
    reader::read(source)
}

/// Reads as [`read`] does, from bytes that should be UTF-8.
///
/// # Errors
/// Also that they are not, with the place.
pub fn read_bytes(source: &[u8]) -> Result<Vec<Graph>, TextError> {
    match std::str::from_utf8(source) {
        Ok(source) => read(source),
        Err(error) => {
            let valid = error.valid_up_to();
            let text = std::str::from_utf8(&source[..valid]).unwrap_or_default();
            Err(TextError::NotUtf8 { at: Position::end_of(text), byte: source[valid] })
        }
    }
}

/// Writes the graphs of all ranks, in order. Reading the text returns the same graphs, up to line
/// numbers, labels for vertices that had none and are named by edges, and the places of blocks,
/// which the format omits.
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
/// let text = goal::text::write(&[graph])?;
/// assert_eq!(text, "num_ranks 1\n\nrank 0 {\nv0: calc 500\nv1: send 8b to 0\nv1 requires v0\n}\n");
/// # Ok::<(), goal::portable::NotPortable>(())
/// ```
pub fn write(graphs: &[Graph]) -> Result<String, NotPortable> {
    writer::write(graphs)
}
