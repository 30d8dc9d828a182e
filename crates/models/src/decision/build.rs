//! A decision table from the models.

use super::table::{DecisionTable, Range, Row, RunnerUp, Times};
use crate::machine::Fingerprint;
use crate::prediction::{Models, Prediction};
use crate::query::{CallForm, Query};
use collectives::Collective;

/// As long as a plan takes no longer than this times the fastest at the sizes of the grid, it is
/// kept, so that the table stays small and does not change with every size.
const SLACK: f64 = 1.02;

/// For which collectives a table is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The operations.
    pub operations: Vec<Collective>,
    /// The forms of calls.
    pub forms: Vec<CallForm>,
    /// Numbers of ranks.
    pub ranks: Vec<u32>,
    /// Numbers of ranks a node; those above the number of ranks are left out.
    pub ranks_per_node: Vec<u32>,
    /// Sizes at which plans are compared, ascending. Between two of them with different winners,
    /// the one is used up to where the other becomes faster.
    pub bytes: Vec<u64>,
}

impl Grid {
    /// All operations in both forms, 0 bytes, and two sizes for each doubling from 1 byte to
    /// `largest`.
    pub fn usual(ranks: Vec<u32>, ranks_per_node: Vec<u32>, largest: u64) -> Self {
        let doublings = std::iter::successors(Some(1u64), |bytes| bytes.checked_mul(2));
        let sizes = doublings.flat_map(|bytes| [bytes, bytes.saturating_add(bytes / 2)]);
        let mut bytes: Vec<u64> =
            [0].into_iter().chain(sizes.take_while(|bytes| *bytes <= largest)).collect();
        bytes.dedup();
        let operations = Collective::ALL.to_vec();
        Grid { operations, forms: CallForm::ALL.to_vec(), ranks, ranks_per_node, bytes }
    }
}

impl DecisionTable {
    /// The table of the plans that the models find fastest, for the machine with this fingerprint.
    /// Operations without known costs have no row.
    pub fn build(models: &Models, grid: &Grid, fingerprint: Fingerprint) -> Self {
        let mut rows = Vec::new();
        for operation in grid.operations.iter().copied() {
            for form in grid.forms.iter().copied() {
                for ranks in grid.ranks.iter().copied() {
                    for ranks_per_node in grid.ranks_per_node.iter().copied() {
                        let shape = Query { operation, form, ranks, ranks_per_node, bytes: 0 };
                        if ranks_per_node <= ranks {
                            rows.extend(Row::build(models, &shape, &grid.bytes));
                        }
                    }
                }
            }
        }
        DecisionTable { fingerprint, rows }
    }
}

impl Row {
    /// The row of the plans that the models find fastest for a shape at these sizes, ascending;
    /// `None` if no costs are known.
    pub fn build(models: &Models, shape: &Query, sizes: &[u64]) -> Option<Self> {
        let Query { operation, form, ranks, ranks_per_node, .. } = *shape;
        let ranges = ranges(models, *shape, sizes);
        let error = models.error(shape);
        let disturbed = None;
        let row = Row { operation, form, ranks, ranks_per_node, error, disturbed, ranges };
        (!row.ranges.is_empty()).then_some(row)
    }
}

/// The ranges of one row. The first begins with 0, and the last has no end.
fn ranges(models: &Models, shape: Query, sizes: &[u64]) -> Vec<Range> {
    let at = |bytes| Query { bytes, ..shape };
    let price = |range: &Range, bytes| {
        models.price(range.engine, &range.plan, &at(bytes)).unwrap_or(f64::INFINITY)
    };
    // What two plans are compared by.
    let costs = |kept: &Range, next: &Range, bytes| {
        let query = at(bytes);
        let usual = models.choice_without_table(&query);
        [kept, next].map(|range| {
            let plan = (range.engine, &range.plan);
            price(range, bytes) * models.handicap(plan, usual.as_ref(), &query)
        })
    };
    let sizes = if shape.operation == Collective::Barrier { &[] } else { sizes };
    let Some(first) = range_at(models, &at(0)) else { return Vec::new() };
    let mut ranges = vec![first];
    let mut good = 0;
    for bytes in sizes.iter().copied().filter(|bytes| *bytes > 0) {
        let (Some(current), Some(next)) = (ranges.last_mut(), range_at(models, &at(bytes))) else {
            break;
        };
        let [kept, best] = costs(current, &next, bytes);
        if kept > best * SLACK {
            let kept = *current;
            let change = first_failure(good, bytes, |bytes| {
                let [kept, next] = costs(&kept, &next, bytes);
                kept <= next
            });
            current.to = Some(change);
            let microseconds = price(&next, change);
            let is_known = microseconds.is_finite();
            let (at, time) = if is_known {
                (change, Times::predicted(microseconds))
            } else {
                (bytes, next.time)
            };
            ranges.push(Range { from: change, at, time, ..next });
        }
        good = bytes;
    }
    ranges
}

/// The models' choice for a query with the fastest other one, as a range without an end.
fn range_at(models: &Models, query: &Query) -> Option<Range> {
    let candidates = models.candidates(query);
    let Prediction { plan, engine, microseconds } = models.choose_of(&candidates, query)?;
    let differs = |next: &&Prediction| {
        (next.plan.levels, next.plan.algorithm, next.engine)
            != (plan.levels, plan.algorithm, engine)
    };
    let runner_up = candidates.iter().find(differs).map(|next| RunnerUp {
        plan: next.plan,
        engine: next.engine,
        time: Times::predicted(next.microseconds),
    });
    let from = query.bytes;
    let time = Times::predicted(microseconds);
    Some(Range { from, to: None, plan, engine, at: from, time, runner_up })
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
