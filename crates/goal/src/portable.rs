//! The part of a graph that the file formats can hold: sends, receives and computations, with sizes
//! and no places.

use crate::graph::{Blocks, Graph, Operation, Vertex};

/// The number by which the binary format means "any"; no rank and no tag may have it.
pub(crate) const ANY: u32 = u32::MAX;

/// Why a graph cannot be written to a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPortable {
    /// The formats have sends, receives and computations only.
    #[error(
        "{vertex}: GOAL files hold send, recv and calc only: leave it out, or keep the graph as a schedule"
    )]
    Operation {
        /// The vertex, described.
        vertex: String,
    },
    /// The bytes cannot be counted in 64 bits.
    #[error("{vertex}: its blocks have more bytes than 64 bits can count: shorten them")]
    TooManyBytes {
        /// The vertex, described.
        vertex: String,
    },
    /// A rank or a tag has the number that means "any" in files.
    #[error("{vertex}: in GOAL files {ANY} means any rank or any tag: use a lower number")]
    Reserved {
        /// The vertex, described.
        vertex: String,
    },
    /// The text format has no network interface for a computation.
    #[error("{vertex}: in a text file a calc has no nic: set it to 0, or write the binary format")]
    CalcInterface {
        /// The vertex, described.
        vertex: String,
    },
    /// A label that the text format cannot express.
    #[error("{vertex}: `{label}` cannot be a label in a text file: {why}")]
    Label {
        /// The vertex, described.
        vertex: String,
        /// Its label.
        label: String,
        /// The problem, and the way out.
        why: &'static str,
    },
    /// An edge from or to a vertex that does not exist, or from a vertex to itself.
    #[error("rank {rank}: an edge lets vertex {} wait for vertex {}: run the checker on the graph first", .after.0, .before.0)]
    Edge {
        /// The graph's rank.
        rank: u32,
        /// The vertex that waits.
        after: Vertex,
        /// The vertex it waits for.
        before: Vertex,
    },
    /// The graphs are not those of all ranks in order.
    #[error(
        "a GOAL file holds the graphs of all ranks in order, but the graph at position {position} of {graphs} says it \
         is rank {rank} of {ranks}"
    )]
    Position {
        /// Its position among the graphs.
        position: usize,
        /// The number of graphs.
        graphs: usize,
        /// The rank of the graph.
        rank: u32,
        /// The number of ranks of the graph.
        ranks: u32,
    },
    /// No graph at all.
    #[error("a GOAL file holds at least one rank: give at least one graph")]
    NoRanks,
    /// More than the fields of the binary format can count.
    #[error(
        "rank {rank} has {edges} edges, more than the {} a binary file can number: split the graph",
        u32::MAX
    )]
    TooManyEdges {
        /// The graph's rank.
        rank: u32,
        /// Its number of edges.
        edges: usize,
    },
}

/// An operation as files hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Portable {
    Send { bytes: u64, peer: u32, tag: u32 },
    Receive { bytes: u64, source: Option<u32>, tag: Option<u32> },
    Calc { nanoseconds: u64 },
}

impl Portable {
    /// The operation of a vertex, if files can hold it.
    pub(crate) fn of(graph: &Graph, index: usize) -> Result<Portable, NotPortable> {
        let vertex = || graph.describe(Vertex(index as u32));
        let bytes = |data: &Blocks| {
            data.bytes().ok_or_else(|| NotPortable::TooManyBytes { vertex: vertex() })
        };
        match &graph.vertices()[index].operation {
            Operation::Send { peer: ANY, .. }
            | Operation::Send { tag: ANY, .. }
            | Operation::Receive { source: Some(ANY), .. }
            | Operation::Receive { tag: Some(ANY), .. } => {
                Err(NotPortable::Reserved { vertex: vertex() })
            }
            Operation::Send { data, peer, tag } => {
                Ok(Portable::Send { bytes: bytes(data)?, peer: *peer, tag: *tag })
            }
            Operation::Receive { data, source, tag } => {
                Ok(Portable::Receive { bytes: bytes(data)?, source: *source, tag: *tag })
            }
            Operation::Calc { nanoseconds } => Ok(Portable::Calc { nanoseconds: *nanoseconds }),
            Operation::Local { .. }
            | Operation::Copy { .. }
            | Operation::Timestamp { .. }
            | Operation::Join { .. } => Err(NotPortable::Operation { vertex: vertex() }),
        }
    }
}

/// Refuses anything but the graphs of ranks 0, 1, … in order, and edges that a file cannot express.
pub(crate) fn check(graphs: &[Graph]) -> Result<(), NotPortable> {
    if graphs.is_empty() {
        return Err(NotPortable::NoRanks);
    }
    for (position, graph) in graphs.iter().enumerate() {
        let rank = graph.rank();
        let ranks = graph.ranks();
        if rank as usize != position || ranks as usize != graphs.len() {
            return Err(NotPortable::Position { position, graphs: graphs.len(), rank, ranks });
        }
        let exists = |vertex: Vertex| vertex.index() < graph.vertices().len();
        if let Some(edge) = graph
            .edges()
            .iter()
            .find(|edge| edge.after == edge.before || !exists(edge.after) || !exists(edge.before))
        {
            return Err(NotPortable::Edge { rank, after: edge.after, before: edge.before });
        }
    }
    Ok(())
}
