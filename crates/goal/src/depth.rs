//! Depth of all ranks' graphs: the longest chain of messages and joins that wait for each
//! other.

use crate::graph::{Graph, JoinMode, Operation, Until, Vertex};
use crate::matching::{Endpoint, pair};
use std::collections::HashMap;

/// Depth of all ranks' graphs, as [`measure`] determines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Depth {
    /// For each rank and each of its vertices, in vertex order, the number of messages and joins
    /// that must be over, one after the other, before it is complete.
    pub levels: Vec<Vec<u32>>,
    /// The largest of them.
    pub deepest: u32,
    /// A longest chain: rank and vertex, each waiting for the one before it.
    pub longest: Vec<(u32, Vertex)>,
}

/// Finds how deep the graphs of all ranks, in order of rank, are. Messages that a wildcard may take
/// count for no rank, because only a run determines their receivers.
///
/// `None` when operations wait for each other for ever, or edges lead to vertices that do not
/// exist; see [`check`](mod@crate::check).
///
/// ```
/// use goal::graph::{Block, Graph};
///
/// // Rank 0 sends a request, rank 1 a reply.
/// let mut graphs = [Graph::new(0, 2), Graph::new(1, 2)];
/// graphs[0].send(Block::unplaced(8), 1, 0);
/// graphs[0].receive(Block::unplaced(8), 1, 0);
/// let question = graphs[1].receive(Block::unplaced(8), 0, 0);
/// let answer = graphs[1].send(Block::unplaced(8), 0, 0);
/// graphs[1].requires(answer, question);
/// let depth = goal::depth::measure(&graphs).expect("no rank waits for ever");
/// assert_eq!(depth.levels, [[0, 2], [1, 1]]);
/// assert_eq!(depth.deepest, 2);
/// ```
pub fn measure(graphs: &[Graph]) -> Option<Depth> {
    let network = DepthNetwork::of(graphs)?;
    let (level, previous) = network.longest_paths()?;
    let firsts = &network.firsts;
    let levels: Vec<Vec<u32>> = (graphs.iter().zip(firsts))
        .map(|(graph, first)| {
            (0..graph.vertices().len()).map(|vertex| level[end(first + vertex)]).collect()
        })
        .collect();
    let deepest = levels.iter().flatten().copied().max().unwrap_or(0);
    let last = (0..network.vertices).map(end).find(|point| level[*point] == deepest);
    let mut points: Vec<usize> = std::iter::successors(last, |point| previous[*point]).collect();
    points.reverse();
    let mut longest: Vec<(u32, Vertex)> = points
        .into_iter()
        .filter(|point| *point < 2 * network.vertices)
        .map(|point| network.place(point / 2))
        .collect();
    longest.dedup();
    Some(Depth { levels, deepest, longest })
}

fn start(vertex: usize) -> usize {
    2 * vertex
}

fn end(vertex: usize) -> usize {
    2 * vertex + 1
}

/// The starts and ends of all ranks' vertices, what must come before what, and what counts as a
/// step.
struct DepthNetwork {
    /// The number of each rank's first vertex among all.
    firsts: Vec<usize>,
    vertices: usize,
    /// To where, and how many steps.
    arcs: Vec<Vec<(usize, u32)>>,
}

impl DepthNetwork {
    fn of(graphs: &[Graph]) -> Option<Self> {
        let mut vertices = 0;
        let firsts = (graphs.iter())
            .map(|graph| {
                let first = vertices;
                vertices += graph.vertices().len();
                first
            })
            .collect();
        let mut network = DepthNetwork { firsts, vertices, arcs: vec![Vec::new(); 2 * vertices] };
        (0..vertices).for_each(|vertex| network.arcs[start(vertex)].push((end(vertex), 0)));
        for (graph, first) in graphs.iter().zip(network.firsts.clone()) {
            for edge in graph.edges() {
                if edge.after.index().max(edge.before.index()) >= graph.vertices().len() {
                    return None;
                }
                let before = first + edge.before.index();
                let after = first + edge.after.index();
                let from = if edge.until == Until::Complete { end(before) } else { start(before) };
                network.arcs[from].push((start(after), 0));
            }
        }
        network.messages(graphs);
        network.joins(graphs);
        Some(network)
    }

    fn messages(&mut self, graphs: &[Graph]) {
        let mut sends = Vec::new();
        let mut receives = Vec::new();
        for (rank, graph) in graphs.iter().enumerate() {
            for (operation, entry) in graph.vertices().iter().enumerate() {
                let rank = rank as u32;
                let operation = operation as u32;
                match &entry.operation {
                    Operation::Send { peer, tag, .. } => {
                        sends.push(Endpoint {
                            rank,
                            operation,
                            peer: Some(*peer),
                            tag: Some(*tag),
                            bytes: 0,
                        });
                    }
                    Operation::Receive { source, tag, .. } => {
                        receives.push(Endpoint {
                            rank,
                            operation,
                            peer: *source,
                            tag: *tag,
                            bytes: 0,
                        });
                    }
                    _ => {}
                }
            }
        }
        for (send, receive) in pair(&sends, &receives).pairs {
            let number = |endpoint: Endpoint| {
                self.firsts[endpoint.rank as usize] + endpoint.operation as usize
            };
            let from = start(number(send));
            let to = end(number(receive));
            self.arcs[from].push((to, 1));
        }
    }

    /// Adds the joins. The k-th joins of all ranks are one flat collective: an event after the
    /// starts of all of them, or of the root's, and before the completions.
    fn joins(&mut self, graphs: &[Graph]) {
        let mut points: HashMap<usize, usize> = HashMap::new();
        for (rank, graph) in graphs.iter().enumerate() {
            let mut number = 0;
            for (vertex, entry) in graph.vertices().iter().enumerate() {
                let Operation::Join { mode, .. } = entry.operation else { continue };
                let point = *points.entry(number).or_insert_with(|| {
                    self.arcs.push(Vec::new());
                    self.arcs.len() - 1
                });
                number += 1;
                let vertex = self.firsts[rank] + vertex;
                let (comes, leaves) = match mode {
                    JoinMode::Broadcast { root } => (root as usize == rank, root as usize != rank),
                    _ => (true, true),
                };
                if comes {
                    self.arcs[start(vertex)].push((point, 0));
                }
                if leaves {
                    self.arcs[point].push((end(vertex), 1));
                }
            }
        }
    }

    /// Returns, for each point, the length of the longest path to it and the previous point on it.
    fn longest_paths(&self) -> Option<(Vec<u32>, Vec<Option<usize>>)> {
        let mut missing = vec![0usize; self.arcs.len()];
        self.arcs.iter().flatten().for_each(|(to, _)| missing[*to] += 1);
        let mut order: Vec<usize> =
            (0..self.arcs.len()).filter(|point| missing[*point] == 0).collect();
        let mut level = vec![0; self.arcs.len()];
        let mut previous = vec![None; self.arcs.len()];
        let mut next = 0;
        while let Some(point) = order.get(next).copied() {
            next += 1;
            for (to, steps) in &self.arcs[point] {
                if level[point] + steps > level[*to] || previous[*to].is_none() {
                    level[*to] = level[point] + steps;
                    previous[*to] = Some(point);
                }
                missing[*to] -= 1;
                if missing[*to] == 0 {
                    order.push(*to);
                }
            }
        }
        (order.len() == self.arcs.len()).then_some((level, previous))
    }

    fn place(&self, number: usize) -> (u32, Vertex) {
        let rank = self.firsts.partition_point(|first| *first <= number) - 1;
        (rank as u32, Vertex((number - self.firsts[rank]) as u32))
    }
}
