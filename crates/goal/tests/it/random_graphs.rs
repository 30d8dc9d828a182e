//! Random graphs that obey every rule of one rank, by construction.

use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::{Access, Block, Blocks, Graph, JoinMode, Memory, Operation, Vertex};
use proptest::prelude::*;

/// A vertex to be, in numbers that any value makes sense of.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    kind: u8,
    peer: u32,
    tag: u32,
    length: u64,
    pieces: u8,
    cpu: u8,
    nic: u8,
    label: bool,
}

fn plan() -> impl Strategy<Value = Plan> {
    (0u8..12, 0u32..8, 0u32..4, 0u64..40, 1u8..4, 0u8..3, 0u8..3, any::<bool>()).prop_map(
        |(kind, peer, tag, length, pieces, cpu, nic, label)| Plan {
            kind,
            peer,
            tag,
            length,
            pieces,
            cpu,
            nic,
            label,
        },
    )
}

/// The plans of up to `most` vertices and edges between them, as fractions.
type Draft = (u32, u32, Vec<Plan>, Vec<(u32, u32, bool)>, u64);

fn draft(most: usize) -> impl Strategy<Value = Draft> {
    (1u32..8, any::<u32>(), prop::collection::vec(plan(), 0..most), any::<u64>()).prop_flat_map(
        |(ranks, rank, plans, seed)| {
            let edges = prop::collection::vec(
                (any::<u32>(), any::<u32>(), any::<bool>()),
                0..2 * plans.len() + 1,
            );
            (Just(ranks), Just(rank % ranks), Just(plans), edges, Just(seed))
        },
    )
}

/// A pseudorandom sequence, the same for the same seed.
pub(crate) struct Sequence(pub(crate) u64);

impl Sequence {
    /// The next number (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number
    /// generators", 2014).
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// An order of `count` vertices that has nothing to do with their numbers.
pub(crate) fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut sequence = Sequence(seed);
    let mut order: Vec<usize> = (0..count).collect();
    for end in (1..count).rev() {
        order.swap(end, sequence.below(end + 1));
    }
    order
}

/// Puts a schedule's checksum right: FNV-1a over all words but its own, as the layout's description
/// has it.
pub(crate) fn seal(bytes: &mut [u8]) {
    let words = bytes.chunks_exact(8).enumerate().filter(|(index, _)| *index != 7);
    let sum = words.fold(0xcbf2_9ce4_8422_2325u64, |sum, (_, word)| {
        let word = word.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3)
    });
    bytes[56..64].copy_from_slice(&sum.to_le_bytes());
}

fn add_edges(graph: &mut Graph, edges: &[(u32, u32, bool)], seed: u64) {
    let order = shuffled(graph.vertices().len(), seed);
    for (left, right, complete) in edges {
        let Some(places) = order.len().checked_sub(1).filter(|last| *last > 0) else { return };
        let left = *left as usize % places;
        let right = left + 1 + *right as usize % (places - left);
        let before = Vertex(order[left] as u32);
        let after = Vertex(order[right] as u32);
        if *complete { graph.requires(after, before) } else { graph.irequires(after, before) }
    }
}

/// A graph as a file may hold it: sends, receives and computations without places.
pub(crate) fn unplaced_graph(most: usize) -> impl Strategy<Value = Graph> {
    draft(most).prop_map(|(ranks, rank, plans, edges, seed)| {
        let mut graph = Graph::new(rank, ranks);
        for (index, plan) in plans.iter().enumerate() {
            let data = Blocks::from(Block::unplaced(plan.length * plan.length * 977));
            let named = plan.kind & 1 == 0;
            let tag = (plan.kind & 2 == 0).then_some(plan.tag);
            let vertex = match plan.kind % 3 {
                0 => graph.send(data, plan.peer, plan.tag),
                1 => graph.receive(data, named.then_some(plan.peer), tag),
                _ => graph.calc(plan.length * plan.length * 1009),
            };
            let is_calc = plan.kind % 3 == 2;
            let entry = graph.vertex_mut(vertex).expect("was just added");
            entry.cpu = plan.cpu;
            entry.nic = if is_calc { 0 } else { plan.nic };
            // Like the labels that the writer invents for other vertices.
            entry.label = plan
                .label
                .then(|| format!("{}{}", ["v", "v_", "x"][plan.pieces as usize % 3], index + 1));
        }
        add_edges(&mut graph, &edges, seed);
        graph
    })
}

/// The graphs of all ranks of a job, as a file may hold them.
pub(crate) fn unplaced_graphs() -> impl Strategy<Value = Vec<Graph>> {
    prop::collection::vec(unplaced_graph(12), 1..5).prop_map(|graphs| {
        let ranks = graphs.len() as u32;
        graphs.iter().enumerate().map(|(rank, graph)| moved(graph, rank as u32, ranks)).collect()
    })
}

/// The same graph as another rank's.
fn moved(graph: &Graph, rank: u32, ranks: u32) -> Graph {
    let mut copy = Graph::new(rank, ranks);
    for entry in graph.vertices() {
        let vertex = copy.add(entry.operation.clone());
        *copy.vertex_mut(vertex).expect("was just added") = entry.clone();
    }
    for edge in graph.edges() {
        match edge.until {
            goal::graph::Until::Complete => copy.requires(edge.after, edge.before),
            goal::graph::Until::Started => copy.irequires(edge.after, edge.before),
        }
    }
    copy
}

const INPUT: u64 = 4096;

/// A graph of every kind of operation. What is read is an input, what is written is each
/// operation's own.
pub(crate) fn placed_graph(most: usize) -> impl Strategy<Value = Graph> {
    draft(most).prop_map(|(ranks, rank, plans, edges, seed)| {
        let mut graph = Graph::new(rank, ranks);
        let input = graph.buffer(Access::Input, INPUT);
        let output = graph.buffer(Access::Output, 64 * plans.len() as u64);
        for (index, plan) in plans.iter().enumerate() {
            let operation = operation(&mut graph, plan, input, output.part(64 * index as u64, 64));
            let vertex = graph.add(operation);
            let entry = graph.vertex_mut(vertex).expect("was just added");
            (entry.cpu, entry.nic) = (plan.cpu, plan.nic);
        }
        add_edges(&mut graph, &edges, seed);
        graph
    })
}

/// Cuts the first `length` bytes of a block into pieces, some of them empty, in multiples of eight
/// bytes.
fn pieces(block: Block, length: u64, count: u8) -> Blocks {
    let mut list = Vec::new();
    let mut at = 0;
    for piece in 0..u64::from(count) {
        let end =
            if piece + 1 == u64::from(count) { length } else { (length / 8 * (piece + 1) / 4) * 8 };
        list.push(block.part(at, end - at));
        at = end;
    }
    list.into()
}

fn operation(graph: &mut Graph, plan: &Plan, input: Block, output: Block) -> Operation {
    let peer = plan.peer % graph.ranks();
    let tag = plan.tag;
    let mine = if plan.label { graph.scratchpad(64) } else { output };
    let read = pieces(input.part(plan.length, 64), plan.length, plan.pieces);
    let written = pieces(mine, plan.length, 4 - plan.pieces);
    let whole = plan.length / 8 * 8;
    let left = pieces(input.part(0, 64), whole, plan.pieces);
    let right = pieces(input.part(8, 64), whole, plan.cpu + 1);
    let destination = pieces(mine, whole, plan.pieces);
    let operation = Arithmetic::ALL[plan.peer as usize];
    let data_type = DataType::ALL[(plan.tag + u32::from(plan.nic)) as usize];
    match plan.kind {
        0 | 1 => Operation::Send { data: read, peer, tag },
        2 | 3 => Operation::Receive { data: written, source: Some(peer), tag: Some(tag) },
        4 => Operation::Receive {
            data: written,
            source: (plan.cpu == 0).then_some(peer),
            tag: (plan.nic == 0).then_some(tag),
        },
        5 => Operation::Local { operation, data_type, left, right, destination },
        6 => {
            Operation::Local { operation, data_type, left: destination.clone(), right, destination }
        }
        7 => {
            Operation::Local { operation, data_type, left, right: destination.clone(), destination }
        }
        8 => Operation::Copy { source: read, destination: written },
        9 => Operation::Timestamp { destination: mine.part(8, 8) },
        10 => Operation::Calc { nanoseconds: plan.length },
        _ => join(graph, plan, left, destination),
    }
}

fn join(graph: &Graph, plan: &Plan, contribution: Blocks, result: Blocks) -> Operation {
    let ranks = graph.ranks();
    let nothing = Blocks::none;
    let (operation, data_type) =
        (Arithmetic::ALL[plan.peer as usize % 6], DataType::ALL[plan.tag as usize]);
    let (mode, contribution, result) = match plan.nic + 3 * (plan.cpu % 2) {
        0 => (JoinMode::Barrier, nothing(), nothing()),
        1 => (JoinMode::Reduce { operation, data_type }, contribution, result),
        2 => (JoinMode::Gather, contribution, nothing()),
        3 => {
            let block = |memory, offset| Block { memory, offset, length: u64::from(ranks) };
            (JoinMode::Exchange, block(Memory::Buffer(0), 16).into(), nothing())
        }
        _ => {
            let root = plan.peer % ranks;
            (
                JoinMode::Broadcast { root },
                if root == graph.rank() { contribution } else { nothing() },
                result,
            )
        }
    };
    Operation::Join { mode, contribution, result }
}
