//! A decision table from the models.

use super::table::{DecisionTable, Range, Row, RunnerUp};
use crate::costs::{Candidate, CostModel};
use crate::machine::Fingerprint;
use crate::query::Query;
use collectives::Choice;
use collectives::Collective;

/// As long as a plan takes no longer than this times the fastest at the sizes of the grid, it is
/// kept, so that the table stays small and does not change with every size.
const SLACK: f64 = 1.02;

/// For which collectives a table is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The operations.
    pub operations: Vec<Collective>,
    /// Numbers of ranks.
    pub ranks: Vec<u32>,
    /// Numbers of ranks a node; those above the number of ranks are left out.
    pub ranks_per_node: Vec<u32>,
    /// Sizes at which plans are compared, ascending. Between two of them with different winners,
    /// the one is used up to where the other becomes faster.
    pub bytes: Vec<u64>,
}

impl Grid {
    /// All operations, 0 bytes, and two sizes for each doubling from 1 byte to `largest`.
    pub fn usual(ranks: Vec<u32>, ranks_per_node: Vec<u32>, largest: u64) -> Self {
        let doublings = std::iter::successors(Some(1u64), |bytes| bytes.checked_mul(2));
        let sizes = doublings.flat_map(|bytes| [bytes, bytes.saturating_add(bytes / 2)]);
        let mut bytes: Vec<u64> =
            [0].into_iter().chain(sizes.take_while(|bytes| *bytes <= largest)).collect();
        bytes.dedup();
        Grid { operations: Collective::ALL.to_vec(), ranks, ranks_per_node, bytes }
    }
}

impl DecisionTable {
    /// The table of the plans that the models find fastest, for the machine with this fingerprint.
    /// Operations without known costs have no row.
    pub fn build(prices: CostModel<'_>, grid: &Grid, fingerprint: Fingerprint) -> Self {
        let mut rows = Vec::new();
        for operation in &grid.operations {
            for ranks in &grid.ranks {
                for ranks_per_node in grid.ranks_per_node.iter().filter(|here| *here <= ranks) {
                    let shape = Query {
                        operation: *operation,
                        ranks: *ranks,
                        ranks_per_node: *ranks_per_node,
                        bytes: 0,
                    };
                    let ranges = ranges(prices, shape, &grid.bytes);
                    if !ranges.is_empty() {
                        let (operation, ranks, ranks_per_node) =
                            (*operation, *ranks, *ranks_per_node);
                        rows.push(Row { operation, ranks, ranks_per_node, ranges });
                    }
                }
            }
        }
        DecisionTable { fingerprint, rows }
    }
}

/// The ranges of one row. The first begins with 0, and the last has no end.
fn ranges(prices: CostModel<'_>, shape: Query, sizes: &[u64]) -> Vec<Range> {
    let at = |bytes| Query { bytes, ..shape };
    let price = |plan: &Choice, bytes| prices.price(plan, &at(bytes)).unwrap_or(f64::INFINITY);
    let best = |bytes| prices.candidates(&at(bytes)).into_iter().next();
    let sizes = if shape.operation == Collective::Barrier { &[] } else { sizes };
    let Some(Candidate { plan, .. }) = best(0) else { return Vec::new() };
    let mut ranges = vec![range_from(prices, &at(0), plan)];
    let mut good = 0;
    for bytes in sizes.iter().copied().filter(|bytes| *bytes > 0) {
        let (Some(current), Some(next)) = (ranges.last_mut(), best(bytes)) else { break };
        if price(&current.plan, bytes) > next.microseconds * SLACK {
            let change = first_failure(good, bytes, |bytes| {
                price(&current.plan, bytes) <= price(&next.plan, bytes)
            });
            current.to = Some(change);
            ranges.push(range_from(prices, &at(change), next.plan));
        }
        good = bytes;
    }
    ranges
}

/// The range of a plan that begins with this query's size, without an end.
fn range_from(prices: CostModel<'_>, query: &Query, plan: Choice) -> Range {
    let microseconds = prices.price(&plan, query).unwrap_or(f64::INFINITY);
    let other = |next: &Choice| (next.levels, next.algorithm) != (plan.levels, plan.algorithm);
    let runner_up = prices.candidates(query).into_iter().find(|candidate| other(&candidate.plan));
    let runner_up =
        runner_up.map(|Candidate { plan, microseconds }| RunnerUp { plan, microseconds });
    Range { from: query.bytes, to: None, plan, microseconds, runner_up }
}

/// The first size above `good` that fails, if sizes fail from some point on; otherwise one that
/// fails after one that does not. `bad` is known to fail.
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
