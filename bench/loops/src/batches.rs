//! A collective by itself: batches of calls back to back, each batch after a barrier. Every call of
//! a long message has new data and a barrier of its own, both untimed.
//!
//! The root moves on with every call: no rank can run ahead and hide the latency in buffers.

use crate::Failure;
use crate::collective::Collective;
use crate::measure::{percentile, repetitions_within, wall_us};
use crate::memory::Memory;
use crate::operation::Operation;
use crate::report::{Line, agree, combine};
use tradewind::Op;

const LONG: usize = 16 << 10;
const BATCH_US: f64 = 100.0;
const LEAST_CALLS: usize = 4;
const MOST_CALLS: usize = 1000;
const LEAST_BATCHES: usize = 5;
const MOST_BATCHES: usize = 2000;

/// One call with its root.
type Call<'w, O, M> = fn(&mut Collective<'w, O, M>, usize) -> Result<(), Failure>;

fn batch<'w, M: Memory, O: Operation<M>>(
    collective: &mut Collective<'w, O, M>,
    call: Call<'w, O, M>,
    calls: usize,
) -> Result<f64, Failure> {
    if collective.row.bytes >= LONG {
        let mut spent_us = 0.0;
        for i in 0..calls {
            collective.rewrite(i % collective.ranks);
            collective.world.barrier()?;
            let start_us = wall_us();
            call(collective, i % collective.ranks)?;
            spent_us += wall_us() - start_us;
        }
        return Ok(spent_us);
    }
    let start_us = wall_us();
    for i in 0..calls {
        call(collective, i % collective.ranks)?;
    }
    Ok(wall_us() - start_us)
}

/// About what a call costs, all ranks of one opinion; warms up meanwhile. The batches grow until
/// three took `enough_us`, and the least counts, because a stolen processor makes a batch longer
/// but never shorter.
fn estimate<'w, M: Memory, O: Operation<M>>(
    collective: &mut Collective<'w, O, M>,
    call: Call<'w, O, M>,
    enough_us: f64,
) -> Result<f64, Failure> {
    let mut least_us = f64::INFINITY;
    let (mut calls, mut long_enough) = (collective.ranks, 0);
    batch(collective, call, calls)?;
    while long_enough < 3 {
        let spent_us = agree(collective.world, batch(collective, call, calls)?)?;
        least_us = least_us.min(spent_us / calls as f64);
        if spent_us < enough_us { calls *= 2 } else { long_enough += 1 }
    }
    Ok(least_us)
}

/// Adds "name":[median, p10, p90, count] of one call in microseconds to the line, the maximum over
/// the ranks for each batch. Returns the median.
pub fn measure_batches<'w, M: Memory, O: Operation<M>>(
    collective: &mut Collective<'w, O, M>,
    call: Call<'w, O, M>,
    budget_us: f64,
    line: &mut Line,
    name: &str,
) -> Result<f64, Failure> {
    let each_us = estimate(collective, call, budget_us / 20.0)?;
    // Every rank is the root at least once.
    let least = LEAST_CALLS.max(collective.ranks);
    let calls = repetitions_within(BATCH_US, each_us, least, MOST_CALLS);
    let batches =
        repetitions_within(budget_us, each_us * calls as f64, LEAST_BATCHES, MOST_BATCHES);
    let mut times = vec![0.0; batches];
    for (b, time) in times.iter_mut().enumerate() {
        collective.prepare(0, b);
        collective.world.barrier()?;
        *time = batch(collective, call, calls)? / calls as f64;
        collective.check(0, b, false)?;
    }
    combine(collective.world, &mut times, Op::Maximum)?;
    line.add_summary(name, &mut times)?;
    Ok(percentile(&times, 50))
}
