//! Every way to run a collective that there is a model of, with its price.

use super::{Level, Plan, Query, Step};
use crate::costs::Costs;
use crate::operation::{Algorithm, Operation};

/// What a machine costs inside a node and between nodes, and which algorithms may be used.
#[derive(Clone, Copy)]
pub struct Levels<'a> {
    /// Among the ranks of a node.
    pub inside: &'a Costs,
    /// Between nodes; `None` if there is one node only.
    pub between: Option<&'a Costs>,
    /// Whether an algorithm can be run at a level. A model is not yet an implementation.
    pub available: &'a dyn Fn(Level, Operation, Algorithm) -> bool,
}

/// A way to run a collective.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The way.
    pub plan: Plan,
    /// How long it is to take, in microseconds.
    pub microseconds: f64,
}

/// One part of a two-level collective: at which level, what, among how many ranks, with how many bytes.
type Phase = (Level, Operation, u32, u64);

impl Levels<'_> {
    /// All ways, fastest first; of equals, those that come first in [`Operation::algorithms`]. Empty if nothing is available,
    /// or if the query has several nodes and nothing is known between nodes.
    ///
    /// One-level algorithms on several nodes are priced as if all messages went between nodes. A two-level way adds its
    /// phases up, each with its own fastest algorithm.
    pub fn candidates(&self, query: &Query) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> =
            self.at_level((Level::Whole, query.operation, query.ranks, query.bytes), query.nodes());
        candidates.extend(self.two_levels(query));
        candidates.sort_by(|left, right| left.microseconds.total_cmp(&right.microseconds));
        candidates
    }

    /// What this plan takes for a query, in microseconds; `None` if it is no plan for it.
    pub fn price(&self, plan: &Plan, query: &Query) -> Option<f64> {
        let whole = [(Level::Whole, query.operation, query.ranks, query.bytes)];
        let two_levels = phases(query);
        let phases =
            if plan.steps.len() == 1 && plan.steps[0].level == Level::Whole { &whole[..] } else { &two_levels };
        if phases.len() != plan.steps.len() {
            return None;
        }
        let mut total = 0.0;
        for (step, (level, operation, ranks, bytes)) in plan.steps.iter().zip(phases) {
            if (step.level, step.operation) != (*level, *operation) {
                return None;
            }
            let costs = self.costs(*level, query.nodes())?;
            total += costs.predict(*operation, step.algorithm, *ranks, *bytes, step.tuning())?;
        }
        Some(total)
    }

    fn at_level(&self, (level, operation, ranks, bytes): Phase, nodes: u32) -> Vec<Candidate> {
        let Some(costs) = self.costs(level, nodes) else { return Vec::new() };
        let may_be_used = |algorithm: Algorithm| {
            // No memory is shared between nodes.
            let reaches = algorithm != Algorithm::Join || level == Level::Inside || nodes == 1;
            reaches && (self.available)(level, operation, algorithm)
        };
        let mut candidates = Vec::new();
        for algorithm in operation.algorithms().iter().copied().filter(|algorithm| may_be_used(*algorithm)) {
            let Some(best) = costs.best(operation, algorithm, ranks, bytes) else { continue };
            let (segment_bytes, degree) = (best.tuning.segment_bytes, best.tuning.degree);
            let one_segment = segment_bytes.is_some_and(|segment| segment.get() >= bytes);
            if one_segment && algorithm.unsegmented().is_some_and(may_be_used) {
                continue; // the same under another name
            }
            let plan = Plan { steps: vec![Step { level, operation, algorithm, segment_bytes, degree }] };
            candidates.push(Candidate { plan, microseconds: best.microseconds });
        }
        candidates
    }

    fn two_levels(&self, query: &Query) -> Option<Candidate> {
        let mut whole = Candidate { plan: Plan { steps: Vec::new() }, microseconds: 0.0 };
        for phase in phases(query) {
            let candidates = self.at_level(phase, query.nodes());
            let best = candidates.into_iter().min_by(|left, right| left.microseconds.total_cmp(&right.microseconds))?;
            whole.plan.steps.extend(best.plan.steps);
            whole.microseconds += best.microseconds;
        }
        if whole.plan.steps.is_empty() { None } else { Some(whole) }
    }

    fn costs(&self, level: Level, nodes: u32) -> Option<&Costs> {
        match level {
            Level::Inside => Some(self.inside),
            Level::Whole if nodes == 1 => Some(self.inside),
            Level::Whole | Level::Between => self.between,
        }
    }
}

/// How a collective is composed of collectives inside nodes and between one rank of each; empty where it is not, or where
/// there is only one node or one rank on each.
fn phases(query: &Query) -> Vec<Phase> {
    use Operation::*;
    let (nodes, here) = (query.nodes(), query.ranks_per_node.min(query.ranks));
    if nodes < 2 || here < 2 {
        return Vec::new();
    }
    let m = query.bytes;
    let times = |count: u32, bytes: u64| bytes.saturating_mul(u64::from(count));
    let (of_node, of_all) = (times(here, m), times(query.ranks, m));
    let inside = |operation, bytes| (Level::Inside, operation, here, bytes);
    let between = |operation, bytes| (Level::Between, operation, nodes, bytes);
    match query.operation {
        Barrier => vec![inside(Barrier, 0), between(Barrier, 0), inside(Barrier, 0)],
        Bcast => vec![between(Bcast, m), inside(Bcast, m)],
        Scatter => vec![between(Scatter, of_node), inside(Scatter, m)],
        Gather => vec![inside(Gather, m), between(Gather, of_node)],
        Allgather => vec![inside(Gather, m), between(Allgather, of_node), inside(Bcast, of_all)],
        Reduce => vec![inside(Reduce, m), between(Reduce, m)],
        Allreduce => vec![inside(Reduce, m), between(Allreduce, m), inside(Bcast, m)],
        ReduceScatter => vec![inside(Reduce, of_all), between(ReduceScatter, of_node), inside(Scatter, m)],
        Alltoall => vec![inside(Gather, of_all), between(Alltoall, times(here, of_node)), inside(Scatter, of_all)],
        Scan | Exscan => Vec::new(),
    }
}
