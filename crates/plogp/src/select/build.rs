//! A decision table from the models.

use super::table::{DecisionTable, Range, Row, RunnerUp};
use super::{Candidate, Levels, Plan, Query};
use crate::fingerprint::Fingerprint;
use crate::operation::Operation;

/// As long as a plan takes no longer than this times the fastest, it is kept, so that the table stays small and does not
/// change with every size.
const SLACK: f64 = 1.02;

/// For which collectives a table is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The operations.
    pub operations: Vec<Operation>,
    /// Numbers of ranks.
    pub ranks: Vec<u32>,
    /// Numbers of ranks a node; those above the number of ranks are left out.
    pub ranks_per_node: Vec<u32>,
    /// Sizes at which plans are compared, ascending. Where the winner changes between two of them, the place is found to
    /// the byte.
    pub bytes: Vec<u64>,
}

impl Grid {
    /// All operations, 0 bytes, and two sizes for each doubling from 1 byte to `largest`.
    pub fn usual(ranks: Vec<u32>, ranks_per_node: Vec<u32>, largest: u64) -> Self {
        let doublings = std::iter::successors(Some(1u64), |bytes| bytes.checked_mul(2));
        let sizes = doublings.flat_map(|bytes| [bytes, bytes.saturating_add(bytes / 2)]);
        let mut bytes: Vec<u64> = [0].into_iter().chain(sizes.take_while(|bytes| *bytes <= largest)).collect();
        bytes.dedup();
        Grid { operations: Operation::ALL.to_vec(), ranks, ranks_per_node, bytes }
    }
}

impl DecisionTable {
    /// The table of the plans that the models find fastest, for the machine with this fingerprint. What nothing is known
    /// about has no row.
    pub fn build(levels: Levels<'_>, grid: &Grid, fingerprint: Fingerprint) -> Self {
        let mut rows = Vec::new();
        for operation in &grid.operations {
            for ranks in &grid.ranks {
                for ranks_per_node in grid.ranks_per_node.iter().filter(|here| *here <= ranks) {
                    let shape =
                        Query { operation: *operation, ranks: *ranks, ranks_per_node: *ranks_per_node, bytes: 0 };
                    let ranges = ranges(levels, shape, &grid.bytes);
                    if !ranges.is_empty() {
                        let (operation, ranks, ranks_per_node) = (*operation, *ranks, *ranks_per_node);
                        rows.push(Row { operation, ranks, ranks_per_node, ranges });
                    }
                }
            }
        }
        DecisionTable { fingerprint, rows }
    }
}

/// The ranges of one row. The first begins with 0, and the last has no end.
fn ranges(levels: Levels<'_>, shape: Query, sizes: &[u64]) -> Vec<Range> {
    let at = |bytes| Query { bytes, ..shape };
    let sizes = if shape.operation == Operation::Barrier { &[] } else { sizes };
    let Some(mut current) = range_from(levels, &at(0)) else { return Vec::new() };
    let mut ranges = Vec::new();
    let mut good = 0;
    for bytes in sizes.iter().copied().filter(|bytes| *bytes > 0) {
        while !holds(levels, &current.plan, &at(bytes)) {
            let change = first_failure(good, bytes, |bytes| holds(levels, &current.plan, &at(bytes)));
            let Some(next) = range_from(levels, &at(change)) else { break };
            current.to = Some(change);
            ranges.push(std::mem::replace(&mut current, next));
            good = change;
        }
        good = bytes;
    }
    ranges.push(current);
    ranges
}

/// The range that begins with this query's size, without an end.
fn range_from(levels: Levels<'_>, query: &Query) -> Option<Range> {
    let mut candidates = levels.candidates(query).into_iter();
    let Candidate { plan, microseconds } = candidates.next()?;
    let runner_up = candidates.next().map(|Candidate { plan, microseconds }| RunnerUp { plan, microseconds });
    Some(Range { from: query.bytes, to: None, plan, microseconds, runner_up })
}

/// Whether a plan is good enough. The fastest plan itself always is.
fn holds(levels: Levels<'_>, plan: &Plan, query: &Query) -> bool {
    let best = levels.candidates(query).first().map_or(0.0, |candidate| candidate.microseconds);
    levels.price(plan, query).is_some_and(|price| price <= best * SLACK)
}

/// The first size above `good` that fails, if sizes fail from some point on, given that `bad` does; otherwise one that
/// follows a good one.
fn first_failure(mut good: u64, mut bad: u64, holds: impl Fn(u64) -> bool) -> u64 {
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if holds(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    bad
}
