//! From a graph to a schedule.

use crate::arithmetic::{Arithmetic, DataType};
use crate::check;
use crate::graph::{
    Access, Block, Blocks, BufferDeclaration, Graph, JoinMode, Memory, Operation, Until, Vertex,
    VertexEntry,
};
use crate::schedule::{
    BlockRecord, BufferRecord, Header, JoinKind, Kind, MAGIC, OperationRecord, SCRATCHPAD,
    Schedule, ScheduleError, ScheduleView, VERSION, flags, offset_of,
};
use bytemuck::Zeroable;
use std::collections::HashMap;

/// Why a graph cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The graph breaks a rule; every breach is listed.
    #[error("{}", check::list(.0))]
    Graph(Vec<check::Problem>),
    /// A block has a length and no place.
    #[error("{vertex}: its bytes have no place; give them a buffer or scratchpad before compiling")]
    Unplaced {
        /// The vertex, described.
        vertex: String,
    },
    /// More records than 32-bit offsets can address.
    #[error(
        "the graph has {count} {what}, more than the {limit} a schedule can hold: cut it into several"
    )]
    TooLarge {
        /// Records of what.
        what: &'static str,
        /// The number.
        count: usize,
        /// The largest number.
        limit: usize,
    },
    /// The compiler wrote something its own loader refuses; a defect of the compiler.
    #[error("internal error of the compiler, please report it: {0}")]
    Internal(#[from] ScheduleError),
}

/// The largest number of operations with records at 32-bit offsets.
const OPERATION_LIMIT: usize = (u32::MAX as usize - 64) / 64;

/// Compiles a rank's graph, after checking it.
///
/// # Errors
/// Everything [`check::graph`] finds, blocks without a place, and graphs too large for the layout.
pub fn compile(graph: &Graph) -> Result<Schedule, CompileError> {
    check::graph(graph).map_err(CompileError::Graph)?;
    limit("operations", graph.vertices().len(), OPERATION_LIMIT)?;
    limit("edges", graph.edges().len(), u32::MAX as usize)?;
    let adjacency = Adjacency::of(graph);
    let order = adjacency.traversal(graph.vertices().len());
    let mut position = vec![0u32; order.len()];
    for (index, vertex) in order.iter().enumerate() {
        position[*vertex] = index as u32;
    }
    let ordinals = ordinals(graph.vertices());
    let (mut operations, mut blocks, mut edges) =
        (Vec::with_capacity(order.len()), Vec::new(), Vec::new());
    for vertex in &order {
        let entry = &graph.vertices()[*vertex];
        let mut record = record(entry, &mut blocks).ok_or_else(|| CompileError::Unplaced {
            vertex: graph.describe(Vertex(*vertex as u32)),
        })?;
        record.dependencies = adjacency.incoming[*vertex];
        record.vertex = *vertex as u32;
        record.ordinal = ordinals[*vertex];
        record.first_edge = edges.len() as u32;
        record.edge_count = adjacency.complete[*vertex].len() as u32;
        record.start_edge_count = adjacency.started[*vertex].len() as u32;
        if record.edge_count == 0 {
            record.flags |= flags::SINK;
        }
        let targets = adjacency.complete[*vertex].iter().chain(&adjacency.started[*vertex]);
        edges.extend(targets.filter_map(|target| offset_of(position[*target])));
        operations.push(record);
    }
    limit("blocks", blocks.len(), u32::MAX as usize)?;
    let buffers: Vec<BufferRecord> = graph.buffers().iter().map(buffer_record).collect();
    let header = header(graph, &operations, buffers.len(), blocks.len(), edges.len());
    Ok(Schedule::assemble(header, &operations, &buffers, &blocks, &edges)?)
}

fn limit(what: &'static str, count: usize, limit: usize) -> Result<(), CompileError> {
    if count > limit { Err(CompileError::TooLarge { what, count, limit }) } else { Ok(()) }
}

fn header(
    graph: &Graph,
    operations: &[OperationRecord],
    buffers: usize,
    blocks: usize,
    edges: usize,
) -> Header {
    let count = |predicate: fn(&OperationRecord) -> bool| {
        operations.iter().filter(|record| predicate(record)).count() as u32
    };
    Header {
        magic: MAGIC,
        version: VERSION,
        rank: graph.rank(),
        ranks: graph.ranks(),
        operation_count: operations.len() as u32,
        independent_count: count(|record| record.dependencies == 0),
        buffer_count: buffers as u32,
        block_count: blocks as u32,
        edge_count: edges as u32,
        sink_count: count(OperationRecord::is_sink),
        scratchpad_bytes: graph.scratchpad_bytes(),
        ..Header::zeroed()
    }
}

fn buffer_record(buffer: &BufferDeclaration) -> BufferRecord {
    BufferRecord { access: buffer.access as u32, reserved: 0, length: buffer.length }
}

/// The edges by the vertex they lead from.
struct Adjacency {
    complete: Vec<Vec<usize>>,
    started: Vec<Vec<usize>>,
    incoming: Vec<u32>,
}

impl Adjacency {
    fn of(graph: &Graph) -> Self {
        let count = graph.vertices().len();
        let mut adjacency = Adjacency {
            complete: vec![Vec::new(); count],
            started: vec![Vec::new(); count],
            incoming: vec![0; count],
        };
        for edge in graph.edges() {
            let list = match edge.until {
                Until::Complete => &mut adjacency.complete,
                Until::Started => &mut adjacency.started,
            };
            list[edge.before.index()].push(edge.after.index());
            adjacency.incoming[edge.after.index()] += 1;
        }
        adjacency
    }

    /// Independent vertices first, then each vertex as soon as all it waits for has been listed
    /// (Schneider et al. 2011, section 2.1: "traversal order"), so that every edge leads forward.
    fn traversal(&self, count: usize) -> Vec<usize> {
        let mut missing = self.incoming.clone();
        let mut order: Vec<usize> = (0..count).filter(|vertex| missing[*vertex] == 0).collect();
        let mut next = 0;
        while let Some(vertex) = order.get(next).copied() {
            next += 1;
            for target in self.complete[vertex].iter().chain(&self.started[vertex]) {
                missing[*target] -= 1;
                if missing[*target] == 0 {
                    order.push(*target);
                }
            }
        }
        order
    }
}

/// The k of the matching rule for every send and naming receive, and the number of the flat
/// collective for every join.
fn ordinals(vertices: &[VertexEntry]) -> Vec<u32> {
    let mut seen: HashMap<(Kind, u32, u32), u32> = HashMap::new();
    vertices
        .iter()
        .map(|entry| {
            let key = match &entry.operation {
                Operation::Send { peer, tag, .. } => (Kind::Send, *peer, *tag),
                Operation::Receive { source: Some(source), tag: Some(tag), .. } => {
                    (Kind::Receive, *source, *tag)
                }
                Operation::Join { .. } => (Kind::Join, 0, 0),
                _ => return 0,
            };
            let count = seen.entry(key).or_insert(0);
            *count += 1;
            *count - 1
        })
        .collect()
}

/// The record of a vertex without its edges; `None` when a block has no place.
fn record(entry: &VertexEntry, blocks: &mut Vec<BlockRecord>) -> Option<OperationRecord> {
    let mut record = OperationRecord {
        cpu: entry.cpu,
        nic: entry.nic,
        first_block: blocks.len() as u32,
        ..OperationRecord::zeroed()
    };
    let mut push = |list: &[Block]| -> Option<(u32, u64)> {
        let before = blocks.len();
        for block in list.iter().filter(|block| block.length > 0) {
            blocks.push(block_record(block)?);
        }
        let bytes = list.iter().map(|block| block.length).sum();
        Some(((blocks.len() - before) as u32, bytes))
    };
    match &entry.operation {
        Operation::Send { data, peer, tag } => {
            record.kind = Kind::Send as u8;
            (record.peer, record.tag) = (*peer, *tag);
            (record.destination_count, record.bytes) = push(&data.0)?;
        }
        Operation::Receive { data, source, tag } => {
            record.kind = Kind::Receive as u8;
            (record.peer, record.tag) = (source.unwrap_or(0), tag.unwrap_or(0));
            record.flags |= if source.is_none() { flags::ANY_SOURCE } else { 0 };
            record.flags |= if tag.is_none() { flags::ANY_TAG } else { 0 };
            (record.destination_count, record.bytes) = push(&data.0)?;
        }
        Operation::Local { operation, data_type, left, right, destination } => {
            record.kind = Kind::Local as u8;
            (record.arithmetic, record.data_type) = (*operation as u8, *data_type as u8);
            (record.destination_count, record.bytes) = push(&destination.0)?;
            record.left_count = push(&left.0)?.0;
            record.right_count = push(&right.0)?.0;
        }
        Operation::Copy { source, destination } => {
            record.kind = Kind::Copy as u8;
            (record.destination_count, record.bytes) = push(&destination.0)?;
            record.left_count = push(&source.0)?.0;
        }
        Operation::Timestamp { destination } => {
            record.kind = Kind::Timestamp as u8;
            (record.destination_count, record.bytes) = push(std::slice::from_ref(destination))?;
        }
        Operation::Calc { nanoseconds } => {
            record.kind = Kind::Calc as u8;
            record.bytes = *nanoseconds;
        }
        Operation::Join { mode, contribution, result } => {
            record.kind = Kind::Join as u8;
            join_mode(*mode, &mut record);
            record.destination_count = push(&result.0)?.0;
            (record.left_count, record.bytes) = push(&contribution.0)?;
        }
    }
    Some(record)
}

fn join_mode(mode: JoinMode, record: &mut OperationRecord) {
    let kind = match mode {
        JoinMode::Barrier => JoinKind::Barrier,
        JoinMode::Reduce { operation, data_type } => {
            (record.arithmetic, record.data_type) = (operation as u8, data_type as u8);
            JoinKind::Reduce
        }
        JoinMode::Gather => JoinKind::Gather,
        JoinMode::Exchange => JoinKind::Exchange,
        JoinMode::Broadcast { root } => {
            record.peer = root;
            JoinKind::Broadcast
        }
    };
    record.join_mode = kind as u8;
}

fn block_record(block: &Block) -> Option<BlockRecord> {
    let memory = match block.memory {
        Memory::Buffer(number) => number,
        Memory::Scratchpad => SCRATCHPAD,
        Memory::Unplaced => return None,
    };
    Some(BlockRecord { memory, reserved: 0, offset: block.offset, length: block.length })
}

/// The graph that a schedule was compiled from, as far as the schedule holds it: vertices in vertex
/// order, edges, buffers, scratchpad; no labels, no lines, no empty blocks.
///
/// ```
/// use goal::graph::{Access, Graph};
/// let mut graph = Graph::new(0, 1);
/// let from = graph.buffer(Access::Input, 8);
/// let to = graph.buffer(Access::Output, 8);
/// graph.copy(from, to);
/// let schedule = goal::compile::compile(&graph)?;
/// assert_eq!(goal::compile::decompile(&schedule), graph);
/// # Ok::<(), goal::compile::CompileError>(())
/// ```
pub fn decompile(schedule: &Schedule) -> Graph {
    let view = schedule.view();
    let mut graph = Graph::new(view.header().rank, view.header().ranks);
    for buffer in view.buffers() {
        let access = [Access::Input, Access::Output, Access::InOut][buffer.access as usize % 3];
        graph.buffer(access, buffer.length);
    }
    graph.set_scratchpad_bytes(view.header().scratchpad_bytes);
    let mut order: Vec<&OperationRecord> = view.operations().iter().collect();
    order.sort_by_key(|record| record.vertex);
    for record in &order {
        let vertex = graph.add(operation(&view, record));
        if let Some(entry) = graph.vertex_mut(vertex) {
            (entry.cpu, entry.nic) = (record.cpu, record.nic);
        }
    }
    let vertex = |operation: u32| Vertex(view.operations()[operation as usize].vertex);
    for record in &order {
        for after in view.successors(record) {
            graph.requires(vertex(after), Vertex(record.vertex));
        }
        for after in view.start_successors(record) {
            graph.irequires(vertex(after), Vertex(record.vertex));
        }
    }
    graph
}

/// Returns the operation of a record, as in the graph.
fn operation(view: &ScheduleView<'_>, record: &OperationRecord) -> Operation {
    let blocks = |list: &[BlockRecord]| Blocks(list.iter().map(block).collect());
    let destination = blocks(view.destination(record));
    let left = blocks(view.left(record));
    let (operation, data_type) = record.arithmetic().unwrap_or((Arithmetic::Add, DataType::U8));
    match record.kind() {
        Kind::Send => Operation::Send { data: destination, peer: record.peer, tag: record.tag },
        Kind::Receive => {
            Operation::Receive { data: destination, source: record.peer(), tag: record.tag() }
        }
        Kind::Calc => Operation::Calc { nanoseconds: record.bytes },
        Kind::Local => Operation::Local {
            operation,
            data_type,
            left,
            right: blocks(view.right(record)),
            destination,
        },
        Kind::Copy => Operation::Copy { source: left, destination },
        Kind::Timestamp => Operation::Timestamp {
            destination: destination.0.first().copied().unwrap_or(Block::unplaced(8)),
        },
        Kind::Join => {
            let mode = match JoinKind::from_u8(record.join_mode) {
                Some(JoinKind::Reduce) => JoinMode::Reduce { operation, data_type },
                Some(JoinKind::Gather) => JoinMode::Gather,
                Some(JoinKind::Exchange) => JoinMode::Exchange,
                Some(JoinKind::Broadcast) => JoinMode::Broadcast { root: record.peer },
                Some(JoinKind::Barrier) | None => JoinMode::Barrier,
            };
            Operation::Join { mode, contribution: left, result: destination }
        }
    }
}

fn block(record: &BlockRecord) -> Block {
    let memory = if record.memory == SCRATCHPAD {
        Memory::Scratchpad
    } else {
        Memory::Buffer(record.memory)
    };
    Block { memory, offset: record.offset, length: record.length }
}
