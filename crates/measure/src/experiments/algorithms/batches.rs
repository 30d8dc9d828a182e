//! Plans taking turns in batches of calls: between nodes, because their clocks differ.

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
/// plans in two levels take so many consecutive ranks for a node. The first and the last rank are
/// roots in turn, so that buffers cannot hide the latency. All ranks call this with the same
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
    let roots = [0, world.size().saturating_sub(1)];
    let shapes = roots.map(|root| CollectiveCall { root, ..*shape });
    let mut memories = shapes.map(|shape| Memory::new(&shape, world.rank()));
    let runner = |plan: &Choice| {
        shapes.each_ref().map(|shape| Runner::calling(world, shape, plan, ranks_per_node))
    };
    let runners: Vec<[Runner; 2]> = plans.iter().map(runner).collect();
    let mut calls = Vec::new();
    for (runners, plan) in runners.iter().zip(plans) {
        // The first call registers the graph.
        for ((runner, shape), memory) in runners.iter().zip(&shapes).zip(&mut memories) {
            verify(world, shape, runner, plan, memory)?;
        }
        batch(world, runners, &mut memories, 2)?;
        let one = batch(world, runners, &mut memories, 4)?;
        let share = budget.milliseconds * 1e3 / f64::from(ROUNDS) / plans.len() as f64;
        calls.push((share / one.max(1e-3)).clamp(2.0, MOST_CALLS) as u32);
    }
    let mut timed: Vec<Timed> =
        plans.iter().map(|plan| Timed { plan: *plan, microseconds: Vec::new() }).collect();
    for round in 0..ROUNDS as usize {
        for turn in 0..plans.len() {
            let plan = (turn + round) % plans.len();
            let time = batch(world, &runners[plan], &mut memories, calls[plan])?;
            timed[plan].microseconds.push(time);
        }
    }
    Ok(Comparison { shape: *shape, shares_cores: false, timed })
}

/// Time of one of so many calls, in microseconds, on the rank that takes longest.
fn batch(
    world: &Communicator,
    runners: &[Runner; 2],
    memories: &mut [Memory; 2],
    calls: u32,
) -> Result<f64, Error> {
    world.barrier()?;
    let begin = now_ns();
    for call in 0..calls as usize {
        runners[call % 2].run(&mut memories[call % 2])?;
    }
    let own = microseconds(begin, now_ns()) / f64::from(calls.max(1));
    Ok(agreement::largest(world, &[own])?[0])
}
