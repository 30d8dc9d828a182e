//! Ranges of sizes from what was measured.

use super::grid::{map_of, segments};
use crate::experiments::algorithms::CollectiveCall;
use crate::harness::Error;
use crate::results::{Figure, Part, Point, Role, Square};
use collectives::{Algorithm, Choice, Collective};
use models::decision::{DecisionTable, Range, Row, RunnerUp, TableError};
use models::machine::Fingerprint;

/// Factor of the best time up to which the plan of the previous size is kept: the table stays small
/// and does not record chance.
const SLACK: f64 = 1.08;
/// Factor of a plan's time within which a join counts as equally good, if the middle halves of
/// their repetitions overlap: the faster one then changes from run to run, and a join needs no
/// schedule.
const OVERLAPPING: f64 = 1.3;

/// The decision table of this machine from the part of the [experiment](super::experiment), as far
/// as it has been measured.
///
/// # Errors
/// Ranges that cannot be, which is a mistake of this function.
pub fn table(part: &Part, fingerprint: Fingerprint) -> Result<DecisionTable, TableError> {
    DecisionTable::new(fingerprint, rows(part))
}

fn rows(part: &Part) -> Vec<Row> {
    let row = |figure: &Figure| {
        let (operation, ranks) = shape_of(&figure.name)?;
        let ranges = ranges(&sizes(figure, operation, ranks), &join_changes(operation, ranks));
        (!ranges.is_empty()).then_some(Row { operation, ranks, ranks_per_node: ranks, ranges })
    };
    part.figures.iter().filter_map(row).collect()
}

/// Operation and number of ranks of a figure, by its name.
fn shape_of(name: &str) -> Option<(Collective, u32)> {
    let (operation, ranks) = name.rsplit_once('-')?;
    Some((operation.replace('-', "_").parse().ok()?, ranks.parse().ok()?))
}

/// Plans of one size with their times, fastest first.
type Size = (u64, Vec<(Choice, Time)>);

/// Time of a plan, in microseconds.
#[derive(Clone, Copy)]
struct Time {
    median: f64,
    /// Between these lies the middle half of the repetitions.
    quartiles: [f64; 2],
}

impl Time {
    fn of(point: &Point) -> Self {
        let quartiles = [point.lower_quartile, point.upper_quartile]
            .map(|quartile| quartile.unwrap_or(point.median));
        Time { median: point.median, quartiles }
    }

    /// Returns true if a join of this time is as good as the best.
    fn is_as_good_as(&self, best: &Time) -> bool {
        let overlaps = self.quartiles[0] <= best.quartiles[1];
        self.median <= SLACK * best.median || overlaps && self.median <= OVERLAPPING * best.median
    }
}

fn sizes(figure: &Figure, operation: Collective, ranks: u32) -> Vec<Size> {
    let mut sizes: Vec<Size> = Vec::new();
    for series in figure.series.iter().filter(|series| series.role == Role::Measured) {
        for point in &series.points {
            let shape = CollectiveCall { operation, ranks, bytes: point.x as u64, root: 0 };
            let named = |plan: &Choice| plan.to_string() == series.name;
            let Some(plan) = shape.plans(&segments()).into_iter().find(named) else { continue };
            let time = Time::of(point);
            match sizes.iter_mut().find(|(bytes, _)| *bytes == shape.bytes) {
                Some((_, plans)) => plans.push((plan, time)),
                None => sizes.push((shape.bytes, vec![(plan, time)])),
            }
        }
    }
    sizes.sort_by_key(|(bytes, _)| *bytes);
    sizes.iter_mut().for_each(|(_, plans)| {
        plans.sort_by(|left, right| left.1.median.total_cmp(&right.1.median))
    });
    sizes
}

/// The largest sizes of the ways that a join goes: above each of them it costs something else.
fn join_changes(operation: Collective, ranks: u32) -> Vec<u64> {
    use Collective as O;
    let blocks = match operation {
        O::Scatter | O::Alltoall | O::ReduceScatter => u64::from(ranks),
        _ => 1,
    };
    let folds = (operation == O::Allreduce).then(|| engine::flat::folded_by_all(ranks));
    folds.into_iter().chain([engine::flat::kept_in_cells(ranks) / blocks]).collect()
}

/// Ranges of one row; the first begins with 0, the last has no end. Between two sizes with
/// different winners the plan changes in the middle, by ratio; if one of them is a join that
/// changes its way between them, there.
fn ranges(sizes: &[Size], changes: &[u64]) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    let mut before = 0;
    for (bytes, plans) in sizes {
        let Some((first, least)) = plans.first().copied() else { continue };
        let join = plans
            .iter()
            .find(|(plan, time)| plan.algorithm == Algorithm::Join && time.is_as_good_as(&least));
        let (best, time) = join.copied().unwrap_or((first, least));
        let near = |time: &Time| time.median <= SLACK * least.median;
        // A join that is as good as the best ends the range of another.
        let keeps = |range: &Range| join.is_none() || range.plan.algorithm == Algorithm::Join;
        let still = |range: &Range| {
            range.plan == best
                || keeps(range)
                    && plans.iter().any(|(plan, time)| *plan == range.plan && near(time))
        };
        let between = |last: &Range| {
            let joins = [last.plan, best].iter().any(|plan| plan.algorithm == Algorithm::Join);
            let change = changes.iter().find(|change| joins && (before..*bytes).contains(*change));
            let middle = (before as f64 * *bytes as f64).sqrt() as u64;
            change.map_or(middle, |change| change + 1).clamp(before + 1, *bytes)
        };
        let from = ranges.last().map_or(0, between);
        match ranges.last_mut() {
            Some(range) if still(range) => {}
            last => {
                if let Some(last) = last {
                    last.to = Some(from);
                }
                let other = plans.iter().find(|(plan, _)| plan.algorithm != best.algorithm);
                let runner_up =
                    other.map(|(plan, time)| RunnerUp { plan: *plan, microseconds: time.median });
                ranges.push(Range {
                    from,
                    to: None,
                    plan: best,
                    microseconds: time.median,
                    runner_up,
                });
            }
        }
        before = *bytes;
    }
    ranges
}

/// Says in each map what the table has.
pub(super) fn fill_maps(part: &mut Part) -> Result<(), Error> {
    let rows = rows(part);
    for map in &mut part.maps {
        map.cells.clear();
        for row in rows.iter().filter(|row| map_of(row.ranks) == map.name) {
            let Some(at) = map.rows.names.iter().position(|name| name == row.operation.name())
            else {
                continue;
            };
            for (column, name) in map.columns.names.iter().enumerate() {
                // A barrier has one size, and stands in the first column.
                let bytes = if row.operation == Collective::Barrier {
                    Some(0).filter(|_| column == 0)
                } else {
                    name.parse().ok()
                };
                let Some(Ok(range)) = bytes.map(|bytes: u64| row.range(bytes)) else { continue };
                let next = range
                    .runner_up
                    .map(|next| format!("; next best: {}, {:.3} µs", next.plan, next.microseconds));
                let detail = format!(
                    "{}, from {} bytes on: {:.3} µs{}",
                    range.plan,
                    range.from,
                    range.microseconds,
                    next.unwrap_or_default()
                );
                map.cells.push(Square {
                    column,
                    row: at,
                    text: range.plan.to_string(),
                    value: None,
                    detail,
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sizes(times: &[(u64, f64, f64)]) -> Vec<Size> {
        let plans = |join: f64, ring: f64| {
            let exactly = |median: f64| Time { median, quartiles: [median; 2] };
            let mut plans = vec![
                (Choice::of(Algorithm::Join), exactly(join)),
                (Choice::of(Algorithm::Ring), exactly(ring)),
            ];
            plans.sort_by(|left, right| left.1.median.total_cmp(&right.1.median));
            plans
        };
        times.iter().map(|(bytes, join, ring)| (*bytes, plans(*join, *ring))).collect()
    }

    #[test]
    fn a_winner_is_kept_until_it_loses_clearly() {
        let ranges = ranges(&sizes(&[(1, 1.0, 2.0), (64, 1.02, 1.0), (4096, 2.0, 1.0)]), &[]);
        let found: Vec<_> =
            ranges.iter().map(|range| (range.from, range.to, range.plan.algorithm)).collect();
        assert_eq!(found, [(0, Some(512), Algorithm::Join), (512, None, Algorithm::Ring)]);
        assert_eq!(ranges[0].runner_up.map(|next| next.plan.algorithm), Some(Algorithm::Ring));
    }

    #[test]
    fn a_join_wins_where_times_cannot_decide() {
        let of = |join: [f64; 3], ring: [f64; 3]| {
            let time =
                |[lower, median, upper]: [f64; 3]| Time { median, quartiles: [lower, upper] };
            let plans = vec![
                (Choice::of(Algorithm::Ring), time(ring)),
                (Choice::of(Algorithm::Join), time(join)),
            ];
            ranges(&[(8, plans)], &[])[0].plan.algorithm
        };
        assert_eq!(of([19.4, 26.7, 27.4], [19.4, 22.5, 33.8]), Algorithm::Join);
        assert_eq!(of([25.0, 26.7, 27.4], [19.4, 22.5, 24.0]), Algorithm::Ring);
        assert_eq!(
            of([19.4, 30.0, 47.4], [19.4, 22.5, 33.8]),
            Algorithm::Ring,
            "1.33 times as long"
        );
    }

    #[test]
    fn a_join_wins_as_far_as_its_way_goes() {
        let times = sizes(&[(512, 1.0, 2.0), (4096, 3.0, 1.0), (32768, 5.0, 3.0)]);
        let starts = |changes: &[u64]| {
            ranges(&times, changes).iter().map(|range| range.from).collect::<Vec<_>>()
        };
        assert_eq!(starts(&[2048]), [0, 2049]);
        // Changes elsewhere say nothing.
        assert_eq!(starts(&[100, 8192]), [0, 1448]);
    }

    proptest! {
        #[test]
        fn every_size_has_one_plan(times in proptest::collection::btree_map(1u64..1 << 30, (0.1f64..9.0, 0.1f64..9.0), 1..12), bytes: u64, change: u32) {
            let change = u64::from(change);
            let times: Vec<_> = times.into_iter().map(|(bytes, (join, ring))| (bytes, join, ring)).collect();
            let row = Row { operation: Collective::Allreduce, ranks: 4, ranks_per_node: 4, ranges: ranges(&sizes(&times), &[change]) };
            prop_assert!(row.range(bytes).is_ok());
            let table = DecisionTable::new(Fingerprint::default(), vec![row]);
            prop_assert!(table.is_ok(), "{:?}", table);
        }
    }
}
