//! Giving the blocks of a graph their places, so that it can be compiled.

use super::messages::Messages;
use super::pattern::STEP;
use goal::graph::{Access, Block, Graph, Operation, Until, Vertex};

/// Schedule and buffers of a rank.
#[derive(Debug)]
pub(super) struct PlacedGraph {
    /// Buffer 0 is the pattern, which is sent from; buffer 1 has a place for everything that is
    /// received.
    pub(super) graph: Graph,
    pub(super) pattern_bytes: u64,
    pub(super) received_bytes: u64,
    /// The places, in vertex order.
    pub(super) receives: Vec<Receive>,
}

/// A receive and its place in buffer 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receive {
    pub(super) vertex: Vertex,
    pub(super) source: Option<u32>,
    pub(super) tag: Option<u32>,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl PlacedGraph {
    /// The same graph with places.
    pub(super) fn new(graph: &Graph, messages: &Messages) -> Self {
        let receives = receives(graph);
        let (pattern_bytes, received_bytes) =
            (pattern_bytes(graph, messages.windows), received_bytes(graph));
        let mut placed = Graph::new(graph.rank(), graph.ranks());
        let pattern = placed.buffer(Access::Input, pattern_bytes);
        let received = placed.buffer(Access::Output, received_bytes);
        let mut places = receives.iter();
        for (vertex, entry) in (0..).map(Vertex).zip(graph.vertices()) {
            let operation = match (&entry.operation, messages.sends.get(&vertex)) {
                (Operation::Send { data, peer, tag }, Some(window)) => {
                    let block = pattern.part(window * STEP, data.bytes().unwrap_or(0));
                    Operation::Send { data: block.into(), peer: *peer, tag: *tag }
                }
                (Operation::Receive { source, tag, .. }, _) => {
                    let place = places.next().map_or(Block::unplaced(0), |place| {
                        received.part(place.offset, place.bytes)
                    });
                    Operation::Receive { data: place.into(), source: *source, tag: *tag }
                }
                (operation, _) => operation.clone(),
            };
            let copy = placed.add(operation);
            if let Some(copy) = placed.vertex_mut(copy) {
                (copy.cpu, copy.nic) = (entry.cpu, entry.nic);
                (copy.label, copy.line) = (entry.label.clone(), entry.line);
            }
        }
        for edge in graph.edges() {
            match edge.until {
                Until::Complete => placed.requires(edge.after, edge.before),
                Until::Started => placed.irequires(edge.after, edge.before),
            }
        }
        PlacedGraph { graph: placed, pattern_bytes, received_bytes, receives }
    }
}

/// Bytes of pattern that a rank sends from.
fn pattern_bytes(graph: &Graph, windows: u64) -> u64 {
    let longest = graph.vertices().iter().filter_map(|entry| match &entry.operation {
        Operation::Send { data, .. } => data.bytes(),
        _ => None,
    });
    longest.max().map_or(0, |longest| longest.saturating_add(windows * STEP))
}

/// Bytes of the places for everything that a rank receives.
fn received_bytes(graph: &Graph) -> u64 {
    receives(graph).last().map_or(0, |last| last.offset.saturating_add(last.bytes))
}

/// Each receive has a place of its own, on cache lines of its own.
fn receives(graph: &Graph) -> Vec<Receive> {
    let mut end = 0u64;
    let mut receives = Vec::new();
    for (vertex, entry) in (0..).map(Vertex).zip(graph.vertices()) {
        if let Operation::Receive { data, source, tag } = &entry.operation {
            let offset = end;
            let bytes = data.bytes().unwrap_or(u64::MAX);
            end = end.saturating_add(bytes).checked_next_multiple_of(64).unwrap_or(u64::MAX);
            receives.push(Receive { vertex, source: *source, tag: *tag, offset, bytes });
        }
    }
    receives
}
