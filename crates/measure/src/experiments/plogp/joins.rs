//! Costs of joins: without messages, they have a model of their own, fitted to the join.

use crate::experiments::algorithms::{CollectiveCall, TimeBudget, Timed, compare};
use crate::harness::Error;
use collectives::{Algorithm, Choice, Collective};
use models::fit::{self, PlaneSample};
use models::formulas::join::JoinCosts;
use tradewind::Communicator;

/// A join among some ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    pub(super) operation: Collective,
    pub(super) ranks: u32,
    pub(super) bytes: u64,
    /// Time of one call, from a start that all ranks have in common until the slowest was
    /// done, in microseconds: what all models predict. Calls back to back overlap where ranks that
    /// only gives does not wait, and would look cheaper.
    pub(super) microseconds: f64,
}

/// Operations with a measured join.
const OPERATIONS: [Collective; 4] =
    [Collective::Barrier, Collective::Bcast, Collective::Allreduce, Collective::Alltoall];

/// Measures all joins among the first 2, 4, 8 … ranks, which share so many cores. All ranks of the
/// job call this; rank 0 finds something.
pub(super) fn measure(
    world: &Communicator,
    cores: u32,
    sizes: &[u64],
    budget: TimeBudget,
) -> Result<Vec<Measured>, Error> {
    let mut found = Vec::new();
    let mut ranks = 2;
    while ranks <= world.size() {
        if let Some(some) =
            world.split((world.rank() < ranks).then_some(0), i64::from(world.rank()))?
        {
            for operation in OPERATIONS {
                let sizes = if operation == Collective::Barrier { &[0] } else { sizes };
                for bytes in sizes {
                    let shape = CollectiveCall { operation, ranks, bytes: *bytes, root: 0 };
                    let compared =
                        compare(&some, cores, &shape, &[Choice::of(Algorithm::Join)], budget)?;
                    let microseconds = compared.timed.first().map_or(0.0, Timed::median);
                    found.push(Measured { operation, ranks, bytes: *bytes, microseconds });
                }
            }
        }
        // The others sleep meanwhile.
        world.barrier()?;
        ranks *= 2;
    }
    Ok(found)
}

/// a + b × P + c × m for each operation. A barrier has no bytes: its c is nothing, and two numbers
/// of ranks are enough.
pub(super) fn fit(measured: &[Measured]) -> Vec<(Collective, JoinCosts)> {
    let of = |operation: Collective| {
        let mut samples: Vec<PlaneSample> = measured
            .iter()
            .filter(|one| one.operation == operation)
            .map(|one| PlaneSample {
                ranks: one.ranks,
                bytes: one.bytes,
                measured: one.microseconds,
            })
            .collect();
        if operation == Collective::Barrier {
            // The same time at another size, so that the plane lies level.
            samples.extend(
                samples.clone().into_iter().map(|sample| PlaneSample { bytes: 1, ..sample }),
            );
        }
        let mut costs = fit::plane(&samples).ok()?.costs;
        if operation == Collective::Barrier {
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
            let at = |operation, bytes: u64, microseconds| Measured {
                operation,
                ranks,
                bytes,
                microseconds,
            };
            measured.push(at(Collective::Barrier, 0, 0.5 + 0.25 * f64::from(ranks)));
            for bytes in [8, 1024, 32 << 10] {
                measured.push(at(
                    Collective::Bcast,
                    bytes,
                    1.0 + 0.5 * f64::from(ranks) + 0.001 * bytes as f64,
                ));
            }
        }
        let fitted = fit(&measured);
        let near = |found: JoinCosts, fixed: f64, per_rank: f64, per_byte: f64| {
            (found.fixed - fixed).abs() < 1e-6
                && (found.per_rank - per_rank).abs() < 1e-6
                && (found.per_byte - per_byte).abs() < 1e-9
        };
        let [(Collective::Barrier, barrier), (Collective::Bcast, bcast)] = fitted[..] else {
            panic!("{fitted:?}")
        };
        assert!(near(barrier, 0.5, 0.25, 0.0), "{barrier:?}");
        assert!(near(bcast, 1.0, 0.5, 0.001), "{bcast:?}");
    }
}
