//! Joins over all ranks: all ranks join equally often, in the same mode, with the same
//! amounts.

use super::problem::{Problem, VertexLocation};
use super::report::Report;
use crate::graph::{Blocks, Graph, JoinMode, Operation, Vertex};

/// A join of one rank.
struct Join<'a> {
    graph: &'a Graph,
    vertex: Vertex,
    mode: JoinMode,
    contribution: &'a Blocks,
    result: &'a Blocks,
}

impl Join<'_> {
    fn place(&self) -> VertexLocation {
        VertexLocation::new(self.graph, self.vertex)
    }

    fn contributed(&self) -> u64 {
        self.contribution.bytes().unwrap_or(u64::MAX)
    }

    fn received(&self) -> u64 {
        self.result.bytes().unwrap_or(u64::MAX)
    }
}

/// The vertices of each rank's joins, in vertex order.
pub(super) fn vertices(graph: &Graph) -> impl Iterator<Item = (Vertex, JoinMode)> {
    joins(graph).map(|join| (join.vertex, join.mode))
}

fn joins(graph: &Graph) -> impl Iterator<Item = Join<'_>> {
    graph.vertices().iter().enumerate().filter_map(move |(index, entry)| match &entry.operation {
        Operation::Join { mode, contribution, result } => {
            Some(Join { graph, vertex: Vertex(index as u32), mode: *mode, contribution, result })
        }
        _ => None,
    })
}

/// Adds every difference between a rank's joins and rank 0's.
pub(super) fn check(graphs: &[Graph], report: &mut Report) {
    let all: Vec<Vec<Join<'_>>> = graphs.iter().map(|graph| joins(graph).collect()).collect();
    let Some((first, others)) = all.split_first() else { return };
    for (graph, joins) in graphs.iter().zip(&all) {
        if joins.len() != first.len() {
            let rank = graph.rank();
            let count = joins.len();
            let expected = first.len();
            report.add(|| Problem::JoinCounts { rank, count, expected });
        }
    }
    for (number, first) in first.iter().enumerate() {
        let matching = others.iter().filter_map(|joins| joins.get(number));
        let mut same_mode = true;
        for join in matching.clone().filter(|join| join.mode != first.mode) {
            same_mode = false;
            report.add(|| Problem::JoinModes {
                number,
                at: join.place(),
                found: join.mode,
                first: first.place(),
                expected: first.mode,
            });
        }
        if !same_mode {
            continue;
        }
        match first.mode {
            JoinMode::Broadcast { root } => {
                let Some(root) = all.get(root as usize).and_then(|joins| joins.get(number)) else {
                    continue;
                };
                for join in
                    std::iter::once(first).chain(matching).filter(|join| join.received() > 0)
                {
                    compare(number, join, join.received(), root, report);
                }
            }
            _ => matching.for_each(|join| compare(number, join, join.contributed(), first, report)),
        }
    }
}

fn compare(number: usize, join: &Join<'_>, found: u64, first: &Join<'_>, report: &mut Report) {
    let expected = first.contributed();
    if found != expected {
        report.add(|| Problem::JoinSizes {
            number,
            at: join.place(),
            found,
            first: first.place(),
            expected,
        });
    }
}
