//! Performance guidelines between collectives, and their violations.

use super::simulated::Simulated;
use crate::results::{Value, values};
use collectives::Collective;
use models::decision::Query;
use models::machine_file::Engine;
use std::collections::BTreeMap;

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

/// The best times of each operation by sizes, in microseconds.
type Best = BTreeMap<Collective, BTreeMap<u64, f64>>;

/// The rows of those that are broken.
pub(super) fn broken(plans: &[Simulated<'_>]) -> Vec<Vec<Value>> {
    let mut best: BTreeMap<u32, Best> = BTreeMap::new();
    for one in plans.iter().filter(|one| one.engine == Engine::Peers) {
        let Query { operation, ranks, bytes, .. } = one.times.query;
        let of_operation = best.entry(ranks).or_default().entry(operation).or_default();
        let least = of_operation.entry(bytes).or_insert(f64::INFINITY);
        *least = least.min(one.row.median());
    }
    let mut rows = Vec::new();
    for (ranks, best) in &best {
        for guideline in GUIDELINES {
            for (bytes, left) in best.get(&guideline.left).into_iter().flatten() {
                let bytes = *bytes as f64;
                let right = guideline.right(best, *ranks, bytes);
                if let Some(right) = right.filter(|right| *left > TOLERANCE * right) {
                    let words = guideline.words();
                    rows.push(values![words, *ranks, bytes, *left, right, left / right]);
                }
            }
        }
    }
    rows
}

impl Guideline {
    /// The time of the right side; `None` if it was not measured for these sizes.
    fn right(&self, best: &Best, ranks: u32, bytes: f64) -> Option<f64> {
        let ranks = f64::from(ranks);
        let side = |(operation, size): &(Collective, Size)| {
            let bytes = match size {
                Size::Same => bytes,
                Size::All => bytes * ranks,
                Size::Part => bytes / ranks,
            };
            at(best.get(operation)?, bytes)
        };
        self.right.iter().map(side).sum()
    }

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

/// Between two sizes, on a straight line in equal ratios; none beyond them.
fn at(times: &BTreeMap<u64, f64>, bytes: f64) -> Option<f64> {
    let above = times.range(bytes.ceil() as u64..).next();
    let (right, right_time) = above.map(|(right, time)| (*right as f64, *time))?;
    if right == bytes {
        return Some(right_time);
    }
    let (left, left_time) = times.range(..bytes.ceil() as u64).next_back()?;
    let left = *left as f64;
    let share = (bytes / left).ln() / (right / left).ln();
    Some(left_time * (right_time / left_time).powf(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_sizes_lies_the_ratio() {
        let times = [(1, 2.0), (100, 8.0)].into();
        assert_eq!(at(&times, 100.0), Some(8.0));
        assert!(at(&times, 10.0).is_some_and(|time| (time - 4.0).abs() < 1e-12));
        assert_eq!((at(&times, 0.5), at(&times, 101.0)), (None, None));
    }
}
