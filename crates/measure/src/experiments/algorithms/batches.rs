//! Plans taking turns in batches of calls: between nodes, whose clocks differ.

use super::graphs::CollectiveCall;
use super::rounds::{Comparison, TimeBudget, Timed, verify};
use super::runner::{Memory, Runner};
use crate::harness::clock::{microseconds, now_ns};
use crate::harness::{Error, agreement};
use collectives::Choice;
use std::num::NonZeroU32;
use tradewind::Communicator;

/// Batches of each plan.
const ROUNDS: u32 = 9;
/// Calls of a batch at most.
const MOST_CALLS: f64 = 1_000.0;

/// Times these plans side by side as calls of a communicator, in batches of calls back to back;
/// plans in two levels take so many consecutive ranks for a node. All ranks call this with the same
/// arguments and get the same result: the time of a call on the rank that takes longest.
///
/// # Errors
/// A plan that cannot be run for this call, wrong results, a rank that is gone.
pub fn compare_in_batches(
    world: &Communicator,
    shape: &CollectiveCall,
    plans: &[Choice],
    ranks_per_node: Option<NonZeroU32>,
    budget: TimeBudget,
) -> Result<Comparison, Error> {
    let mut memory = Memory::new(shape, world.rank());
    let runners: Vec<Runner> =
        plans.iter().map(|plan| Runner::calling(world, shape, plan, ranks_per_node)).collect();
    let mut calls = Vec::new();
    for (runner, plan) in runners.iter().zip(plans) {
        // The first call registers the graph.
        verify(world, shape, runner, plan, &mut memory)?;
        batch(world, runner, &mut memory, 2)?;
        let one = batch(world, runner, &mut memory, 3)?;
        let share = budget.milliseconds * 1e3 / f64::from(ROUNDS) / plans.len() as f64;
        calls.push((share / one.max(1e-3)).clamp(1.0, MOST_CALLS) as u32);
    }
    let mut timed: Vec<Timed> =
        plans.iter().map(|plan| Timed { plan: *plan, microseconds: Vec::new() }).collect();
    for round in 0..ROUNDS as usize {
        for turn in 0..plans.len() {
            let plan = (turn + round) % plans.len();
            timed[plan].microseconds.push(batch(world, &runners[plan], &mut memory, calls[plan])?);
        }
    }
    Ok(Comparison { shape: *shape, shares_cores: false, timed })
}

/// Time of one of so many calls, in microseconds, on the rank that takes longest.
fn batch(
    world: &Communicator,
    runner: &Runner,
    memory: &mut Memory,
    calls: u32,
) -> Result<f64, Error> {
    world.barrier()?;
    let begin = now_ns();
    for _ in 0..calls {
        runner.run(memory)?;
    }
    let own = microseconds(begin, now_ns()) / f64::from(calls.max(1));
    Ok(agreement::largest(world, &[own])?[0])
}
