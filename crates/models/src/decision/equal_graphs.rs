//! Plans of a call that are one graph.
//!
//! Among few ranks algorithms coincide: with two nodes all exchanges between their leaders are one
//! message each way, and with four ranks a tree of degree 3 is flat. Each such plan was timed on its
//! own, and the fastest of several times of one graph is a matter of chance. So they get one time.

use super::refine::Measured;
use crate::query::Query;
use crate::simulation::linked;
use collectives::{Algorithm, Choice, GraphSpec, build};
use goal::graph::Graph;
use std::num::NonZeroU32;

/// Largest number of ranks in a comparison of graphs: each plan has a graph for each rank.
const MOST_RANKS: u32 = 64;

/// Assigns plans on one engine with equal graphs the geometric means of their times and quartiles.
/// A join has no graph.
pub fn pooled(query: &Query, mut measured: Vec<Measured>) -> Vec<Measured> {
    if query.ranks > MOST_RANKS {
        return measured;
    }
    let graphs: Vec<_> = measured.iter().map(|one| graphs(query, &one.plan)).collect();
    let times = measured.clone();
    for (at, one) in measured.iter_mut().enumerate() {
        let Some(own) = &graphs[at] else { continue };
        let is_same = |(other, graphs): &(&Measured, &Option<Vec<Graph>>)| {
            other.engine == one.engine && graphs.as_ref() == Some(own)
        };
        let same: Vec<&Measured> =
            times.iter().zip(&graphs).filter(is_same).map(|(other, _)| other).collect();
        let mean = |of: &dyn Fn(&Measured) -> f64| {
            let logarithms: f64 =
                same.iter().map(|other| of(other).max(f64::MIN_POSITIVE).ln()).sum();
            (logarithms / same.len() as f64).exp()
        };
        if same.len() > 1 {
            one.median = mean(&|other| other.median);
            one.quartiles = [0, 1].map(|at| mean(&|other| other.quartiles[at]));
        }
    }
    measured
}

/// The graphs of all ranks; `None` if the plan has none.
fn graphs(query: &Query, plan: &Choice) -> Option<Vec<Graph>> {
    let Query { operation, ranks, ranks_per_node, bytes, .. } = *query;
    if plan.algorithm == Algorithm::Join {
        return None;
    }
    let spec = GraphSpec {
        ranks_per_node: NonZeroU32::new(ranks_per_node).unwrap_or(NonZeroU32::MIN),
        ..linked::call(operation, ranks, bytes)
    };
    (0..ranks).map(|rank| build(&GraphSpec { rank, ..spec }, plan).ok()).collect()
}
