//! Finds the errors of a graph, or of all ranks' graphs together, with their places.

mod digraph;
mod flow;
mod joins;
mod messages;
mod operation;
mod problem;
mod race;
mod report;
mod usage;
mod waiting;

pub use problem::{List, Problem, VertexLocation};

use crate::graph::{Graph, Until, Vertex};
use digraph::{Arc, Digraph};
use report::Report;

/// Properties of the engine that [`global`] needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalOptions {
    /// Messages of up to this many bytes are sent without waiting for their receive; longer ones
    /// wait (rendezvous).
    pub eager_limit: u64,
}

impl Default for GlobalOptions {
    /// No message waits for its receive.
    fn default() -> Self {
        GlobalOptions { eager_limit: u64::MAX }
    }
}

/// Every problem on a line of its own.
pub fn list(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Checks one rank's graph: that every operation is well formed, that no operations wait for each
/// other, and that no two operations which may run at the same time write bytes that the other
/// uses.
///
/// # Errors
/// Every problem found, up to 1000 and how many more there are. Bytes without a place
/// conflict with no operation.
///
/// ```
/// use goal::check::{self, Problem};
/// use goal::graph::{Access, Graph};
///
/// let mut graph = Graph::new(0, 2);
/// let bytes = graph.buffer(Access::InOut, 8);
/// let send = graph.send(bytes, 1, 0);
/// let receive = graph.receive(bytes, 1, 0);
/// let problems = check::graph(&graph).expect_err("the message may overwrite what is being sent");
/// assert!(matches!(problems[..], [Problem::Unordered { .. }]));
///
/// graph.requires(receive, send);
/// assert_eq!(check::graph(&graph), Ok(()));
/// ```
pub fn graph(graph: &Graph) -> Result<(), Vec<Problem>> {
    let mut report = Report::default();
    rank(graph, &mut report);
    report.finish()
}

/// Adds the errors of one graph. Returns true if all its edges lead to vertices and form no cycle.
fn rank(graph: &Graph, report: &mut Report) -> bool {
    if graph.rank() >= graph.ranks() {
        report.add(|| Problem::Rank { rank: graph.rank(), ranks: graph.ranks() });
    }
    let (arcs, complete) = arcs(graph, report);
    let digraph = Digraph::new(graph.vertices().len(), &arcs);
    let order = digraph.order();
    if let Err(cycle) = &order {
        let place = |vertex: &usize| VertexLocation::new(graph, Vertex(*vertex as u32));
        report.add(|| Problem::Cycle { cycle: cycle.iter().map(place).collect() });
    }
    for index in 0..graph.vertices().len() {
        operation::check(graph, Vertex(index as u32), report);
    }
    if let Ok(order) = &order {
        race::check(graph, &digraph, order, report);
    }
    complete && order.is_ok()
}

/// The edges between vertices that exist, and whether these are all.
fn arcs(graph: &Graph, report: &mut Report) -> (Vec<(usize, Arc)>, bool) {
    let vertices = graph.vertices().len();
    let mut arcs = Vec::with_capacity(graph.edges().len());
    for (number, edge) in graph.edges().iter().enumerate() {
        let after = edge.after;
        let before = edge.before;
        if after.index() < vertices && before.index() < vertices {
            let until_complete = edge.until == Until::Complete;
            arcs.push((before.index(), Arc { to: after.index(), until_complete }));
        } else {
            report.add(|| Problem::MissingVertex {
                rank: graph.rank(),
                edge: number,
                after,
                before,
                vertices,
            });
        }
    }
    let complete = arcs.len() == graph.edges().len();
    (arcs, complete)
}

/// Checks the graphs of all ranks, in order of rank: each by itself, and how they fit together.
/// Every send has one receive of the same length and the reverse, joins are the same everywhere,
/// and no operations of several ranks wait for each other for ever.
///
/// # Errors
/// Every problem found, up to 1000 and how many more there are. Graphs that are not those of ranks
/// 0, 1, … are reported as such and compared no further.
///
/// ```
/// use goal::check::{self, GlobalOptions, Problem};
/// use goal::graph::{Block, Graph};
///
/// let mut graphs = [Graph::new(0, 2), Graph::new(1, 2)];
/// graphs[0].send(Block::unplaced(8), 1, 7);
/// graphs[1].receive(Block::unplaced(4), 0, 7);
/// let problems = check::global(&graphs, &GlobalOptions::default()).expect_err("8 bytes do not fit");
/// assert!(matches!(problems[..], [Problem::SizesDiffer { sent: 8, expected: 4, .. }]));
/// ```
pub fn global(graphs: &[Graph], options: &GlobalOptions) -> Result<(), Vec<Problem>> {
    let mut report = Report::default();
    let mut in_order = true;
    for (position, graph) in graphs.iter().enumerate() {
        let rank = graph.rank();
        let ranks = graph.ranks();
        if rank as usize != position || ranks as usize != graphs.len() {
            in_order = false;
            report.add(|| Problem::Position { position, graphs: graphs.len(), rank, ranks });
        }
    }
    if !in_order {
        return report.finish();
    }
    let mut sound = true;
    for graph in graphs {
        sound &= rank(graph, &mut report);
    }
    let pairing = messages::check(graphs, &mut report);
    joins::check(graphs, &mut report);
    // Edges that lead nowhere, or round within a rank, have been reported; what they do to the
    // others is no news.
    if sound {
        waiting::check(graphs, &pairing, options.eager_limit, &mut report);
    }
    report.finish()
}

/// Returns the least eager limit with which no operations of several ranks wait for each other for
/// ever: [`global`] finds no such operations with it and with every larger one. `None` if they wait
/// with every limit, or if the graphs have errors that [`global`] reports with every limit.
///
/// ```
/// use goal::check;
/// use goal::graph::{Block, Graph};
///
/// let mut graphs = [Graph::new(0, 2), Graph::new(1, 2)];
/// for rank in 0..2 {
///     // Each rank sends before it receives.
///     let send = graphs[rank].send(Block::unplaced(300), 1 - rank as u32, 7);
///     let receive = graphs[rank].receive(Block::unplaced(300), 1 - rank as u32, 7);
///     graphs[rank].requires(receive, send);
/// }
/// assert_eq!(check::least_eager_limit(&graphs), Some(300));
/// ```
pub fn least_eager_limit(graphs: &[Graph]) -> Option<u64> {
    match global(graphs, &GlobalOptions::default()) {
        Ok(()) => {
            waiting::least_eager_limit(graphs, &messages::check(graphs, &mut Report::default()))
        }
        Err(_) => None,
    }
}
