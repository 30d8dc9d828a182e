//! What joins cost: no messages, and so a model of their own, fitted to the join itself.

use crate::laps::Laps;
use crate::statistics::percentile;
use crate::suite::SuiteError;
use plogp::fit::{self, PlaneSample};
use plogp::models::join::JoinCosts;
use plogp::operation::Operation;
use tradewind::{
    Algorithms, AllreduceAlgorithm, AlltoallAlgorithm, BarrierAlgorithm, BcastAlgorithm, Communicator, Op,
};

/// A join among some ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    pub(super) operation: Operation,
    pub(super) ranks: u32,
    pub(super) bytes: u64,
    /// How long it took on the slowest rank, in microseconds: the lower quartile of the laps.
    pub(super) microseconds: f64,
}

/// Operations whose join is measured.
const OPERATIONS: [Operation; 4] = [Operation::Barrier, Operation::Bcast, Operation::Allreduce, Operation::Alltoall];

/// Measures all joins among the first 2, 4, 8 … ranks. All ranks of the job call this; rank 0 finds something.
pub(super) fn measure(world: &Communicator, sizes: &[u64], laps: Laps) -> Result<Vec<Measured>, SuiteError> {
    let mut found = Vec::new();
    let mut ranks = 2;
    while ranks <= world.size() {
        if let Some(some) = world.split((world.rank() < ranks).then_some(0), i64::from(world.rank()))? {
            for operation in OPERATIONS {
                let sizes = if operation == Operation::Barrier { &[0] } else { sizes };
                for bytes in sizes {
                    let mut times = time(&some, operation, *bytes, laps)?;
                    times.sort_by(f64::total_cmp);
                    found.push(Measured { operation, ranks, bytes: *bytes, microseconds: percentile(&times, 0.25) });
                }
            }
        }
        // The others sleep meanwhile.
        world.barrier()?;
        ranks *= 2;
    }
    Ok(found)
}

fn time(some: &Communicator, operation: Operation, bytes: u64, laps: Laps) -> Result<Vec<f64>, SuiteError> {
    let usual = Algorithms::default();
    let some = some.with_algorithms(match operation {
        Operation::Bcast => Algorithms { bcast: Some(BcastAlgorithm::Join), ..usual },
        Operation::Allreduce => Algorithms { allreduce: Some(AllreduceAlgorithm::Join), ..usual },
        Operation::Alltoall => Algorithms { alltoall: Some(AlltoallAlgorithm::Join), ..usual },
        _ => Algorithms { barrier: Some(BarrierAlgorithm::Join), ..usual },
    });
    let doubles = (bytes / 8) as usize;
    let all = doubles * if operation == Operation::Alltoall { some.size() as usize } else { 1 };
    let (input, mut output) = (vec![1.0_f64; all], vec![0.0_f64; all]);
    laps.time(&some, |times| {
        for _ in 0..times {
            match operation {
                Operation::Bcast => some.bcast(&mut output, 0)?,
                Operation::Allreduce => some.allreduce(&input, &mut output, Op::Sum)?,
                Operation::Alltoall => some.alltoall(&input, &mut output)?,
                _ => some.barrier()?,
            }
        }
        Ok(())
    })
}

/// a + b × P + c × m for each operation. A barrier has no bytes: its c is nothing, and two numbers of ranks are enough.
pub(super) fn fit(measured: &[Measured]) -> Vec<(Operation, JoinCosts)> {
    let of = |operation: Operation| {
        let mut samples: Vec<PlaneSample> = measured
            .iter()
            .filter(|one| one.operation == operation)
            .map(|one| PlaneSample { ranks: one.ranks, bytes: one.bytes, measured: one.microseconds })
            .collect();
        if operation == Operation::Barrier {
            // The same time at another size, so that the plane lies level.
            samples.extend(samples.clone().into_iter().map(|sample| PlaneSample { bytes: 1, ..sample }));
        }
        let mut costs = fit::plane(&samples).ok()?.costs;
        if operation == Operation::Barrier {
            costs.per_byte = 0.0;
        }
        Some((operation, costs))
    };
    OPERATIONS.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_has_a_plane_of_its_own() {
        let mut measured = Vec::new();
        for ranks in [2, 4, 8] {
            let at = |operation, bytes: u64, microseconds| Measured { operation, ranks, bytes, microseconds };
            measured.push(at(Operation::Barrier, 0, 0.5 + 0.25 * f64::from(ranks)));
            for bytes in [8, 1024, 32 << 10] {
                measured.push(at(Operation::Bcast, bytes, 1.0 + 0.5 * f64::from(ranks) + 0.001 * bytes as f64));
            }
        }
        let fitted = fit(&measured);
        let near = |found: JoinCosts, fixed: f64, per_rank: f64, per_byte: f64| {
            (found.fixed - fixed).abs() < 1e-6
                && (found.per_rank - per_rank).abs() < 1e-6
                && (found.per_byte - per_byte).abs() < 1e-9
        };
        let [(Operation::Barrier, barrier), (Operation::Bcast, bcast)] = fitted[..] else { panic!("{fitted:?}") };
        assert!(near(barrier, 0.5, 0.25, 0.0), "{barrier:?}");
        assert!(near(bcast, 1.0, 0.5, 0.001), "{bcast:?}");
    }
}
