//! Performance guidelines between collectives, and their violations.

use super::names::{figure, numbers_of_ranks};
use crate::results::{Part, Role, Value};
use collectives::Collective;
use tradewind::EngineKind;

/// More than this is no chance.
const TOLERANCE: f64 = 1.1;

/// One operation should take no longer than others that together do the same. Sizes are multiples
/// of m, or of m / P where a message is in parts.
struct Guideline {
    left: Collective,
    right: &'static [(Collective, Size)],
}

#[derive(Clone, Copy)]
enum Size {
    /// m.
    Same,
    /// m × P.
    All,
    /// m / P.
    Part,
}

const GUIDELINES: &[Guideline] = &[
    Guideline {
        left: Collective::Allreduce,
        right: &[(Collective::Reduce, Size::Same), (Collective::Bcast, Size::Same)],
    },
    Guideline {
        left: Collective::Allreduce,
        right: &[(Collective::ReduceScatter, Size::Part), (Collective::Allgather, Size::Part)],
    },
    Guideline {
        left: Collective::Allgather,
        right: &[(Collective::Gather, Size::Same), (Collective::Bcast, Size::All)],
    },
    Guideline {
        left: Collective::Bcast,
        right: &[(Collective::Scatter, Size::Part), (Collective::Allgather, Size::Part)],
    },
    Guideline {
        left: Collective::Reduce,
        right: &[(Collective::ReduceScatter, Size::Part), (Collective::Gather, Size::Part)],
    },
    Guideline { left: Collective::Reduce, right: &[(Collective::Allreduce, Size::Same)] },
    Guideline { left: Collective::Gather, right: &[(Collective::Allgather, Size::Same)] },
    Guideline { left: Collective::Scatter, right: &[(Collective::Alltoall, Size::Same)] },
    Guideline { left: Collective::Allgather, right: &[(Collective::Alltoall, Size::Same)] },
    Guideline {
        left: Collective::Allreduce,
        right: &[(Collective::Scan, Size::Same), (Collective::Bcast, Size::Same)],
    },
];

/// The rows of those that are broken.
pub(super) fn broken(part: &Part) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for ranks in numbers_of_ranks(part) {
        for guideline in GUIDELINES {
            for (bytes, left) in best(part, guideline.left, ranks) {
                let side = |(operation, size): &(Collective, Size)| {
                    let ranks_wide = f64::from(ranks);
                    let bytes = match size {
                        Size::Same => bytes,
                        Size::All => bytes * ranks_wide,
                        Size::Part => bytes / ranks_wide,
                    };
                    at(&best(part, *operation, ranks), bytes)
                };
                let Some(right) = guideline.right.iter().map(side).sum::<Option<f64>>() else {
                    continue;
                };
                if left > TOLERANCE * right {
                    let numbers = [f64::from(ranks), bytes, left, right, left / right];
                    rows.push(
                        std::iter::once(guideline.words().into())
                            .chain(numbers.map(Value::from))
                            .collect(),
                    );
                }
            }
        }
    }
    rows
}

impl Guideline {
    fn words(&self) -> String {
        let one = |(operation, size): &(Collective, Size)| {
            let size = match size {
                Size::Same => "m",
                Size::All => "m × P",
                Size::Part => "m / P",
            };
            format!("{operation}({size})")
        };
        let right = self.right.iter().map(one).collect::<Vec<_>>().join(" + ");
        format!("{}(m) ≤ {right}", self.left)
    }
}

/// The best time of an operation at each size.
fn best(part: &Part, operation: Collective, ranks: u32) -> Vec<(f64, f64)> {
    let Some(figure) = part.figure(&figure(operation, ranks, EngineKind::Peers)) else {
        return Vec::new();
    };
    let mut best: Vec<(f64, f64)> = Vec::new();
    for point in figure
        .series
        .iter()
        .filter(|series| series.role == Role::Measured)
        .flat_map(|series| &series.points)
    {
        match best.iter_mut().find(|(x, _)| *x == point.x) {
            Some((_, time)) => *time = time.min(point.median),
            None => best.push((point.x, point.median)),
        }
    }
    best.sort_by(|left, right| left.0.total_cmp(&right.0));
    best
}

/// Between two sizes, on a straight line in equal ratios; none beyond them.
fn at(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let above = points.partition_point(|(known, _)| *known < x);
    let (right, right_time) = *points.get(above)?;
    if right == x {
        return Some(right_time);
    }
    let (left, left_time) = *points.get(above.checked_sub(1)?)?;
    let share = (x / left).ln() / (right / left).ln();
    Some(left_time * (right_time / left_time).powf(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_sizes_lies_the_ratio() {
        let points = [(1.0, 2.0), (100.0, 8.0)];
        assert_eq!(at(&points, 100.0), Some(8.0));
        assert!(at(&points, 10.0).is_some_and(|time| (time - 4.0).abs() < 1e-12));
        assert_eq!((at(&points, 0.5), at(&points, 101.0)), (None, None));
    }
}
