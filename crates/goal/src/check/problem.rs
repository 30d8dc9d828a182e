//! Every rule a graph can break, with its message.

use crate::arithmetic::{Arithmetic, DataType};
use crate::graph::{Block, Graph, JoinMode, Memory, Vertex};
use std::fmt;

/// An operation of some rank's graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VertexLocation {
    /// The rank.
    pub rank: u32,
    /// The vertex in that rank's graph.
    pub vertex: Vertex,
    /// Rank, line, label and operation in words, as [`Graph::describe`] returns them.
    pub description: String,
}

impl VertexLocation {
    pub(super) fn new(graph: &Graph, vertex: Vertex) -> Self {
        VertexLocation { rank: graph.rank(), vertex, description: graph.describe(vertex) }
    }
}

impl fmt::Display for VertexLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.description)
    }
}

/// Which of an operation's block lists is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum List {
    /// The bytes of a send or receive.
    Data,
    /// The left operands of a local operation.
    Left,
    /// The right operands of a local operation.
    Right,
    /// The source of a copy.
    Source,
    /// Destination of a local operation, copy or timestamp.
    Destination,
    /// A rank's contribution to a join.
    Contribution,
    /// A rank's result of a join.
    JoinResult,
}

impl fmt::Display for List {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            List::Data => "data",
            List::Left => "left operands",
            List::Right => "right operands",
            List::Source => "source",
            List::Destination => "destination",
            List::Contribution => "contribution",
            List::JoinResult => "result",
        })
    }
}

/// A range of bytes in words.
pub(super) struct Range<'a>(pub(super) &'a Block);

impl fmt::Display for Range<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Block { memory, offset, length } = *self.0;
        write!(formatter, "{length} bytes from byte {offset} of ")?;
        match memory {
            Memory::Buffer(number) => write!(formatter, "buffer {number}"),
            Memory::Scratchpad => formatter.write_str("the scratchpad"),
            Memory::Unplaced => formatter.write_str("no memory"),
        }
    }
}

/// Operations that wait for each other, in words; a long round is cut.
struct WaitCycle<'a>(&'a [VertexLocation]);

impl fmt::Display for WaitCycle<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 12;
        for place in self.0.iter().take(SHOWN) {
            write!(formatter, "[{place}], then ")?;
        }
        if let Some(left_out @ 1..) = self.0.len().checked_sub(SHOWN) {
            write!(formatter, "{left_out} more, then ")?;
        }
        formatter.write_str("the first again")
    }
}

/// One breach of a rule: its location and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A graph belongs to a rank that does not exist.
    #[error("rank {rank} is not one of the {ranks} ranks: ranks are numbered from 0")]
    Rank {
        /// The graph's rank.
        rank: u32,
        /// The number of ranks that it declares.
        ranks: u32,
    },
    /// An edge names a vertex that does not exist.
    #[error(
        "rank {rank}: edge {edge} lets vertex {} wait for vertex {}, but there are only {vertices} vertices: \
         make edges from what the graph's own functions return",
        .after.0, .before.0
    )]
    MissingVertex {
        /// The graph's rank.
        rank: u32,
        /// Position among the graph's edges.
        edge: usize,
        /// The vertex that waits.
        after: Vertex,
        /// The vertex it waits for.
        before: Vertex,
        /// The number of vertices.
        vertices: usize,
    },
    /// Operations of one rank wait for each other.
    #[error("these operations wait for each other, so none can start: {}: remove one of the edges", WaitCycle(.cycle))]
    Cycle {
        /// Each waits for the one before it, the first for the last.
        cycle: Vec<VertexLocation>,
    },
    /// A message goes to, or comes from, a rank that does not exist.
    #[error("{at}: there is no rank {peer}; the {ranks} ranks are numbered from 0")]
    Peer {
        /// The send or receive.
        at: VertexLocation,
        /// The rank it names.
        peer: u32,
        /// The number of ranks.
        ranks: u32,
    },
    /// A block lies in a buffer that was never declared.
    #[error(
        "{at}: its {list} uses buffer {buffer}, but {buffers} buffers are declared: declare it with Graph::buffer"
    )]
    MissingBuffer {
        /// The operation.
        at: VertexLocation,
        /// The list that names it.
        list: List,
        /// The buffer's number.
        buffer: u32,
        /// The number.
        buffers: usize,
    },
    /// A block extends beyond its memory.
    #[error("{at}: its {list} has {}, which ends at byte {limit}: shorten the block or lengthen the memory", Range(.block))]
    OutOfRange {
        /// The operation.
        at: VertexLocation,
        /// The list that holds the block.
        list: List,
        /// The block.
        block: Block,
        /// Length of its memory in bytes.
        limit: u64,
    },
    /// The bytes of a list cannot be counted in 64 bits.
    #[error("{at}: its {list} has more bytes than 64 bits can count: shorten it")]
    TooManyBytes {
        /// The operation.
        at: VertexLocation,
        /// The list.
        list: List,
    },
    /// Lists that must be equally long are not.
    #[error(
        "{at}: its {list} has {found} bytes and its destination {expected}: make them equally long"
    )]
    LengthsDiffer {
        /// The local operation or copy.
        at: VertexLocation,
        /// The list that is compared with the destination.
        list: List,
        /// Its length in bytes.
        found: u64,
        /// The destination's length in bytes.
        expected: u64,
    },
    /// A block ends within an element.
    #[error("{at}: its {list} has {}, which is not a whole number of {data_type}: use multiples of {} bytes", Range(.block), .data_type.bytes())]
    BrokenElement {
        /// The local operation or reducing join.
        at: VertexLocation,
        /// The list that holds the block.
        list: List,
        /// The block.
        block: Block,
        /// The type of the elements.
        data_type: DataType,
    },
    /// The arithmetic is not defined on the type.
    #[error("{at}: {operation} is not defined on {data_type}: use one of {}", Arithmetic::names_for(*.data_type))]
    NotApplicable {
        /// The local operation or reducing join.
        at: VertexLocation,
        /// The arithmetic.
        operation: Arithmetic,
        /// The type of the elements.
        data_type: DataType,
    },
    /// A timestamp is not eight bytes long.
    #[error("{at}: a timestamp is 8 bytes long, its destination has {found}: give it 8")]
    TimestampLength {
        /// The timestamp.
        at: VertexLocation,
        /// Length of its destination in bytes.
        found: u64,
    },
    /// An operation writes to a buffer that the run only reads.
    #[error(
        "{at}: its {list} writes to buffer {buffer}, which is declared as input: declare it with Access::InOut"
    )]
    WriteToInput {
        /// The operation.
        at: VertexLocation,
        /// The list.
        list: List,
        /// The buffer's number.
        buffer: u32,
    },
    /// An operation writes some bytes twice.
    #[error(
        "{at}: blocks of its {list} overlap, so which bytes remain is not defined: keep them apart"
    )]
    OverlapWithin {
        /// The operation.
        at: VertexLocation,
        /// The list.
        list: List,
    },
    /// An operation reads bytes that it also writes.
    #[error("{at}: its {written} overlaps its {read}: {}", remedy(*.read))]
    OverlapBetween {
        /// The operation.
        at: VertexLocation,
        /// The list it reads.
        read: List,
        /// The list it writes.
        written: List,
    },
    /// A barrier carries bytes.
    #[error(
        "{at}: a barrier carries no bytes, this one has {contribution} to give and {result} to get: remove them"
    )]
    BarrierBytes {
        /// The join.
        at: VertexLocation,
        /// Bytes contributed.
        contribution: u64,
        /// Bytes of result.
        result: u64,
    },
    /// The length of a join's result differs from the one its mode requires.
    #[error(
        "{at}: its result has {found} bytes where {expected} come out: give it {expected}, or none to ignore them"
    )]
    JoinResult {
        /// The join.
        at: VertexLocation,
        /// Bytes of result.
        found: u64,
        /// Bytes that come out.
        expected: u64,
    },
    /// An exchange does not divide into one part for each rank.
    #[error(
        "{at}: {contribution} bytes do not divide into {ranks} equal parts, one for each rank: use a multiple"
    )]
    ExchangeParts {
        /// The join.
        at: VertexLocation,
        /// Bytes contributed.
        contribution: u64,
        /// The number of ranks.
        ranks: u32,
    },
    /// The root of a broadcast does not exist.
    #[error(
        "{at}: there is no rank {root} that could be the root; the {ranks} ranks are numbered from 0"
    )]
    Root {
        /// The join.
        at: VertexLocation,
        /// The root it names.
        root: u32,
        /// The number of ranks.
        ranks: u32,
    },
    /// A rank other than the root contributes to a broadcast.
    #[error(
        "{at}: only the root, rank {root}, contributes to a broadcast, this rank contributes {contribution} bytes: contribute none"
    )]
    NotTheRoot {
        /// The join.
        at: VertexLocation,
        /// The root.
        root: u32,
        /// Bytes contributed.
        contribution: u64,
    },
    /// Two operations that may run at the same time use the same bytes, and one writes them.
    #[error(
        "[{first}] and [{second}] may run at the same time, and both use {} ({}): \
         let one require the other (irequires does not wait for completion)",
        Range(.block), if *.both_write { "both write" } else { "one writes" }
    )]
    Unordered {
        /// One of them.
        first: VertexLocation,
        /// The other.
        second: VertexLocation,
        /// Bytes they share.
        block: Block,
        /// `true` if both write them.
        both_write: bool,
    },
    /// More problems than are worth listing.
    #[error("{left_out} more problems were found and are not listed: correct these first")]
    More {
        /// The number.
        left_out: usize,
    },
    /// More of [`Unordered`](Self::Unordered) than are worth listing.
    #[error(
        "rank {rank}: {left_out} or more further pairs of operations use the same bytes without an order"
    )]
    MoreUnordered {
        /// The graph's rank.
        rank: u32,
        /// The number left out, at least.
        left_out: usize,
    },
    /// The graphs are not those of ranks 0, 1, … in order.
    #[error(
        "the graph at position {position} of {graphs} says it is rank {rank} of {ranks}: \
         give the graphs of all ranks in order"
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
    /// Nothing receives a message.
    #[error("[{send}] has no receive: rank {peer} lacks one from rank {} with this tag: add it or remove the send", .send.rank)]
    SendWithoutReceive {
        /// The send.
        send: VertexLocation,
        /// The rank that should receive.
        peer: u32,
    },
    /// Nothing sends what a receive waits for.
    #[error("[{receive}] has no send: {} lacks one to rank {} with this tag: add it or remove the receive",
        .source_rank.map_or_else(|| "every rank".into(), |rank| format!("rank {rank}")), .receive.rank)]
    ReceiveWithoutSend {
        /// The receive.
        receive: VertexLocation,
        /// The rank that should send; `None` is any.
        source_rank: Option<u32>,
    },
    /// A message is longer or shorter than its receive.
    #[error(
        "[{send}] sends {sent} bytes to [{receive}], which expects {expected}: make them equal"
    )]
    SizesDiffer {
        /// The send.
        send: VertexLocation,
        /// The receive that it pairs with.
        receive: VertexLocation,
        /// Bytes sent.
        sent: u64,
        /// Bytes expected.
        expected: u64,
    },
    /// Ranks do not meet equally often.
    #[error(
        "rank {rank} has {count} joins, rank 0 has {expected}: every rank takes part in every join"
    )]
    JoinCounts {
        /// The rank.
        rank: u32,
        /// Its number of joins.
        count: usize,
        /// Rank 0's number of joins.
        expected: usize,
    },
    /// Ranks meet for different purposes.
    #[error(
        "join {number} is {found:?} at [{at}] and {expected:?} at [{first}]: use one mode on all ranks"
    )]
    JoinModes {
        /// Number of the join, from 0.
        number: usize,
        /// The join on this rank.
        at: VertexLocation,
        /// Its mode.
        found: JoinMode,
        /// The join on rank 0.
        first: VertexLocation,
        /// Rank 0's mode.
        expected: JoinMode,
    },
    /// Ranks meet with different amounts.
    #[error(
        "join {number} has {found} bytes at [{at}] and {expected} at [{first}]: use one length on all ranks"
    )]
    JoinSizes {
        /// Number of the join, from 0.
        number: usize,
        /// The join on this rank.
        at: VertexLocation,
        /// Its bytes: contributed; for a broadcast, of result.
        found: u64,
        /// The join on the rank it is compared with: rank 0, or the root of a broadcast.
        first: VertexLocation,
        /// The bytes contributed there.
        expected: u64,
    },
    /// Operations of several ranks wait for each other.
    #[error(
        "these operations wait for each other for ever{}: {}: let one of them start earlier, \
         for instance a receive before the send that waits for it{}",
        on_account_of(*.eager_limit, *.least),
        WaitCycle(.cycle),
        .least.map_or_else(String::new, |least| format!(", or set the eager limit to {least} bytes or more"))
    )]
    Deadlock {
        /// Messages above this length wait for their receive.
        eager_limit: u64,
        /// The least eager limit with which nothing waits for ever; `None` if some operations do with
        /// every limit.
        least: Option<u64>,
        /// Each waits for the one before it, the first for the last. With every limit, where there is
        /// such a cycle.
        cycle: Vec<VertexLocation>,
    },
}

/// The part of the eager limit in a deadlock, in words.
fn on_account_of(eager_limit: u64, least: Option<u64>) -> String {
    match least {
        Some(_) => format!(" when messages above {eager_limit} bytes wait for their receive"),
        None => ", with every eager limit".to_owned(),
    }
}

fn remedy(read: List) -> &'static str {
    match read {
        List::Source => "copy within the rank in two steps, through other memory",
        _ => "make the two lists exactly the same blocks, or keep them apart",
    }
}
