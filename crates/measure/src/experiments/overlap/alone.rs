//! The collective with nothing to overlap it: start and wait, back to back.
//!
//! In batches, each after a barrier and long enough that reading the clock and leaving the barrier
//! one after the other do not count. A batch is as long as on its slowest rank.

use super::plan::Plan;
use super::trial::Trial;
use crate::harness::Error;
use crate::harness::agreement;
use crate::harness::clock::{microseconds, now_ns};
use models::statistics;
use tradewind::Communicator;

/// A batch is at least so long.
const BATCH_US: f64 = 100.0;
/// All batches together take about so long.
const BUDGET_US: f64 = 200_000.0;
/// A first look is made of batches of this length.
const LOOK_US: f64 = 1000.0;
const LEAST_BATCHES: f64 = 3.0;
/// Before, it is called so often, unless that takes longer than the time below: a rank's first runs
/// touch new memory.
const WARM_UP_CALLS: u32 = 64;
const WARM_UP_US: f64 = 2e6;

/// Runs `calls` in a row; microseconds a call on this rank.
fn batch(world: &Communicator, trial: &mut Trial, calls: u32) -> Result<f64, Error> {
    world.barrier()?;
    let begin = now_ns();
    for call in 0..calls {
        trial.start(call)?.wait()?;
    }
    Ok(microseconds(begin, now_ns()) / f64::from(calls))
}

/// Calls it until it runs as it will run.
pub(super) fn warm_up(world: &Communicator, trial: &mut Trial) -> Result<(), Error> {
    let mut calls = 0;
    let mut spent = 0.0;
    while calls < WARM_UP_CALLS && spent < WARM_UP_US {
        let each = agreement::largest(world, &[batch(world, trial, trial.roots())?])?[0];
        calls += trial.roots();
        spent += each * f64::from(trial.roots());
    }
    Ok(())
}

/// About how long a call takes, in microseconds, the same on all ranks: the least of three batches,
/// because a processor that is taken away only makes them longer. Batches grow until they are long
/// enough.
pub(super) fn estimate(world: &Communicator, trial: &mut Trial) -> Result<f64, Error> {
    let mut least = f64::INFINITY;
    let mut calls = trial.roots();
    let mut enough = 0;
    while enough < 3 {
        let each = agreement::largest(world, &[batch(world, trial, calls)?])?[0];
        least = least.min(each);
        if each * f64::from(calls) < LOOK_US { calls *= 2 } else { enough += 1 }
    }
    Ok(least)
}

/// Measures the time of a call, in microseconds, the same on all ranks: the median over the
/// batches.
pub(super) fn measure(world: &Communicator, trial: &mut Trial, plan: &Plan) -> Result<f64, Error> {
    let roots = trial.roots();
    // Whole rounds of roots, so that every batch has the same mixture.
    let rounds =
        (BATCH_US / (plan.alone_us * f64::from(roots)).max(1e-3)).clamp(1.0, 10_000.0) as u32;
    let calls = roots * rounds;
    let most = f64::from(plan.repetitions).max(LEAST_BATCHES);
    let batches = (BUDGET_US / (plan.alone_us * f64::from(calls)).max(1e-3))
        .clamp(LEAST_BATCHES, most) as u32;
    let times = (0..batches).map(|_| batch(world, trial, calls)).collect::<Result<Vec<_>, _>>()?;
    Ok(statistics::median(&agreement::largest(world, &times)?))
}
