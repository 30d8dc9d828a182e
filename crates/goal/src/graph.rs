//! One rank's dependency graph: vertices, edges, the memory they use.

use crate::arithmetic::{Arithmetic, DataType};

/// A vertex of one graph: its index in the order in which vertices were added ("vertex order").
///
/// Vertex order matters beyond naming: it pairs messages. Within a run the k-th send to (peer, tag)
/// in vertex order meets the k-th receive from (peer, tag) in vertex order, whatever order they
/// execute in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vertex(pub u32);

impl Vertex {
    /// The position in vertex order, from 0.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Memory of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Memory {
    /// The user buffer of this number, bound when a run starts.
    Buffer(u32),
    /// The schedule's own temporary memory, which exists for the length of a run (Schneider et al.
    /// 2011, section 2.2).
    Scratchpad,
    /// Bytes of which only the number is known, as in a file. Such a graph can be checked and
    /// converted, not compiled.
    Unplaced,
}

/// A contiguous range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// The memory it lies in.
    pub memory: Memory,
    /// First byte, from the start of that memory.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

impl Block {
    /// A block of `length` bytes without a place.
    pub fn unplaced(length: u64) -> Self {
        Block { memory: Memory::Unplaced, offset: 0, length }
    }

    /// `length` bytes of this block, from `offset` within it.
    ///
    /// The part may extend beyond the block; the checker compares every block with the memory that
    /// contains it.
    pub fn part(self, offset: u64, length: u64) -> Self {
        Block { memory: self.memory, offset: self.offset.saturating_add(offset), length }
    }
}

/// A scatter/gather list: blocks that form one sequence of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Blocks(pub Vec<Block>);

impl Blocks {
    /// No block at all: zero bytes.
    pub fn none() -> Self {
        Blocks(Vec::new())
    }

    /// The number of bytes, or `None` when they exceed 64 bits.
    pub fn bytes(&self) -> Option<u64> {
        self.0.iter().try_fold(0u64, |sum, block| sum.checked_add(block.length))
    }
}

impl From<Block> for Blocks {
    fn from(block: Block) -> Self {
        Blocks(vec![block])
    }
}

impl From<Vec<Block>> for Blocks {
    fn from(blocks: Vec<Block>) -> Self {
        Blocks(blocks)
    }
}

impl<const N: usize> From<[Block; N]> for Blocks {
    fn from(blocks: [Block; N]) -> Self {
        Blocks(blocks.to_vec())
    }
}

/// Access of a run to a user buffer.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Read only: its bytes are taken when the run starts.
    Input = 0,
    /// Written only: what the run wrote is there when it has completed; bytes no operation writes
    /// keep their value.
    Output = 1,
    /// Both.
    InOut = 2,
}

/// A user buffer that a graph refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferDeclaration {
    /// Access to it.
    pub access: Access,
    /// Its length in bytes.
    pub length: u64,
}

/// Combination of the ranks' contributions in a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JoinMode {
    /// No bytes: the ranks only meet.
    Barrier,
    /// Every result is contribution 0 ∘ contribution 1 ∘ …, folded from the left in rank order.
    Reduce {
        /// The operation ∘.
        operation: Arithmetic,
        /// The type of the elements.
        data_type: DataType,
    },
    /// Every result is all contributions one after the other in rank order.
    Gather,
    /// A contribution holds one equal part for each rank; rank r's result is part r of every
    /// contribution in rank order.
    Exchange,
    /// Every other rank's result is the root's contribution; ranks wait for the root only.
    Broadcast {
        /// The rank that contributes.
        root: u32,
    },
}

/// Operation of a vertex.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Sends the bytes to a rank. Complete when the bytes may be overwritten.
    Send {
        /// The bytes.
        data: Blocks,
        /// The destination.
        peer: u32,
        /// Told apart from other messages to the same rank by this.
        tag: u32,
    },
    /// Receives bytes. Complete when they are there.
    Receive {
        /// Destination of the bytes.
        data: Blocks,
        /// The rank they come from; `None` is any rank, in arrival order.
        source: Option<u32>,
        /// The tag they carry; `None` is any tag, in arrival order.
        tag: Option<u32>,
    },
    /// destination = left ∘ right, element by element. The destination may be exactly the left or
    /// the right list.
    Local {
        /// The operation ∘.
        operation: Arithmetic,
        /// The type of the elements; every block holds whole elements.
        data_type: DataType,
        /// Left operands.
        left: Blocks,
        /// Right operands.
        right: Blocks,
        /// Results.
        destination: Blocks,
    },
    /// Copies bytes within the rank. Source and destination do not overlap.
    Copy {
        /// From here.
        source: Blocks,
        /// To here.
        destination: Blocks,
    },
    /// Writes the monotonic clock in nanoseconds, a little-endian u64, when it executes.
    Timestamp {
        /// Eight bytes.
        destination: Block,
    },
    /// Stands for a computation of this length.
    Calc {
        /// Length in nanoseconds.
        nanoseconds: u64,
    },
    /// Part of a flat collective of all ranks of the communicator: the k-th joins of all ranks, in
    /// vertex order, form one.
    Join {
        /// The combination of contributions.
        mode: JoinMode,
        /// This rank's bytes.
        contribution: Blocks,
        /// Destination of this rank's result; empty if it takes none.
        result: Blocks,
    },
}

/// A vertex with its annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VertexEntry {
    /// The operation.
    pub operation: Operation,
    /// Operations of a rank with the same number do not overlap in time.
    pub cpu: u8,
    /// The network interface; recorded, not interpreted.
    pub nic: u8,
    /// Its name, if it has one.
    pub label: Option<String>,
    /// The line it came from, from 1, if it came from a file.
    pub line: Option<u32>,
}

/// `after` waits for `before`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The vertex that waits.
    pub after: Vertex,
    /// The vertex it waits for.
    pub before: Vertex,
    /// The edges to operations it waits for.
    pub until: Until,
}

/// Event that an edge waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Until {
    /// The other has completed ("requires").
    Complete,
    /// The other has started ("irequires"); a receive has started when it is posted.
    Started,
}

/// The dependency graph of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    rank: u32,
    ranks: u32,
    vertices: Vec<VertexEntry>,
    edges: Vec<Edge>,
    buffers: Vec<BufferDeclaration>,
    scratchpad: u64,
}

impl Graph {
    /// The empty graph of rank `rank` among `ranks`.
    pub fn new(rank: u32, ranks: u32) -> Self {
        Graph {
            rank,
            ranks,
            vertices: Vec::new(),
            edges: Vec::new(),
            buffers: Vec::new(),
            scratchpad: 0,
        }
    }

    /// Returns the rank of this graph.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The vertices in vertex order.
    pub fn vertices(&self) -> &[VertexEntry] {
        &self.vertices
    }

    /// The edges in the order they were added.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The user buffers; a run binds one memory range to each, in this order.
    pub fn buffers(&self) -> &[BufferDeclaration] {
        &self.buffers
    }

    /// Bytes of scratchpad a run needs.
    pub fn scratchpad_bytes(&self) -> u64 {
        self.scratchpad
    }

    /// Declares the next user buffer. Returns the block that covers it.
    pub fn buffer(&mut self, access: Access, length: u64) -> Block {
        let number = self.buffers.len() as u32;
        self.buffers.push(BufferDeclaration { access, length });
        Block { memory: Memory::Buffer(number), offset: 0, length }
    }

    /// Takes `length` more bytes of scratchpad, starting at a multiple of 64.
    pub fn scratchpad(&mut self, length: u64) -> Block {
        let offset = self.scratchpad.div_ceil(64).saturating_mul(64);
        self.scratchpad = offset.saturating_add(length);
        Block { memory: Memory::Scratchpad, offset, length }
    }

    /// Sets how many bytes of scratchpad a run needs, for blocks placed by hand.
    pub fn set_scratchpad_bytes(&mut self, bytes: u64) {
        self.scratchpad = bytes;
    }

    /// Adds a vertex.
    pub fn add(&mut self, operation: Operation) -> Vertex {
        let vertex = Vertex(self.vertices.len() as u32);
        self.vertices.push(VertexEntry { operation, cpu: 0, nic: 0, label: None, line: None });
        vertex
    }

    /// Adds a send of `data` to rank `peer`.
    pub fn send(&mut self, data: impl Into<Blocks>, peer: u32, tag: u32) -> Vertex {
        self.add(Operation::Send { data: data.into(), peer, tag })
    }

    /// Adds a receive into `data`; `None` for source or tag takes any.
    pub fn receive(
        &mut self,
        data: impl Into<Blocks>,
        source: impl Into<Option<u32>>,
        tag: impl Into<Option<u32>>,
    ) -> Vertex {
        self.add(Operation::Receive { data: data.into(), source: source.into(), tag: tag.into() })
    }

    /// Adds destination = left ∘ right.
    pub fn local(
        &mut self,
        operation: Arithmetic,
        data_type: DataType,
        left: impl Into<Blocks>,
        right: impl Into<Blocks>,
        destination: impl Into<Blocks>,
    ) -> Vertex {
        let left = left.into();
        let right = right.into();
        let destination = destination.into();
        self.add(Operation::Local { operation, data_type, left, right, destination })
    }

    /// Adds a copy within the rank.
    pub fn copy(&mut self, source: impl Into<Blocks>, destination: impl Into<Blocks>) -> Vertex {
        self.add(Operation::Copy { source: source.into(), destination: destination.into() })
    }

    /// Adds a timestamp, written to the eight bytes of `destination`.
    pub fn timestamp(&mut self, destination: Block) -> Vertex {
        self.add(Operation::Timestamp { destination })
    }

    /// Adds a computation that takes this long.
    pub fn calc(&mut self, nanoseconds: u64) -> Vertex {
        self.add(Operation::Calc { nanoseconds })
    }

    /// Adds a join of all ranks.
    pub fn join(
        &mut self,
        mode: JoinMode,
        contribution: impl Into<Blocks>,
        result: impl Into<Blocks>,
    ) -> Vertex {
        self.add(Operation::Join { mode, contribution: contribution.into(), result: result.into() })
    }

    /// `after` starts when `before` has completed.
    pub fn requires(&mut self, after: Vertex, before: Vertex) {
        self.edges.push(Edge { after, before, until: Until::Complete });
    }

    /// `after` starts when `before` has started.
    pub fn irequires(&mut self, after: Vertex, before: Vertex) {
        self.edges.push(Edge { after, before, until: Until::Started });
    }

    /// Returns the entry of a vertex for changes: cpu, nic, label, line, blocks.
    pub fn vertex_mut(&mut self, vertex: Vertex) -> Option<&mut VertexEntry> {
        self.vertices.get_mut(vertex.index())
    }

    /// Name of a vertex in messages: its label and line where it has them, its number otherwise.
    pub fn describe(&self, vertex: Vertex) -> String {
        let Some(entry) = self.vertices.get(vertex.index()) else {
            return format!("rank {}, vertex {} (which does not exist)", self.rank, vertex.0);
        };
        let mut text = format!("rank {}", self.rank);
        if let Some(line) = entry.line {
            text.push_str(&format!(", line {line}"));
        }
        match &entry.label {
            Some(label) => text.push_str(&format!(", {label}: ")),
            None => text.push_str(&format!(", vertex {}: ", vertex.0)),
        }
        text.push_str(&entry.operation.describe());
        text
    }
}

impl Operation {
    /// A short description in the manner of the text format.
    pub fn describe(&self) -> String {
        fn bytes(blocks: &Blocks) -> String {
            blocks.bytes().map_or_else(|| "too many bytes".into(), |bytes| format!("{bytes}b"))
        }
        fn any(value: &Option<u32>) -> String {
            value.map_or_else(|| "-1".into(), |value| value.to_string())
        }
        match self {
            Operation::Send { data, peer, tag } => {
                format!("send {} to {peer} tag {tag}", bytes(data))
            }
            Operation::Receive { data, source, tag } => {
                format!("recv {} from {} tag {}", bytes(data), any(source), any(tag))
            }
            Operation::Local { operation, data_type, destination, .. } => {
                format!("{} of {data_type} on {}", operation.name(), bytes(destination))
            }
            Operation::Copy { destination, .. } => format!("copy {}", bytes(destination)),
            Operation::Timestamp { .. } => "timestamp".into(),
            Operation::Calc { nanoseconds } => format!("calc {nanoseconds}"),
            Operation::Join { contribution, .. } => format!("join with {}", bytes(contribution)),
        }
    }
}
