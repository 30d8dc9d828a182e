//! Nonblocking collectives alone and underneath a computation, without a single test.
//!
//! Exposed time is what the collective adds to the computation: for each repetition the maximum
//! over the ranks of the time from before the start to after the wait, less that rank's median time
//! for the computation alone. Repetitions with and without the collective alternate, so that both
//! see the same machine.

use crate::Failure;
use crate::batches::measure_batches;
use crate::collective::Collective;
use crate::measure::{compute, percentile, repetitions_within, skew, sort, wall_us};
use crate::memory::Memory;
use crate::operation::{Operation, UnderWay};
use crate::report::{Line, Options, agree, combine};
use tradewind::Op;

const LEAST: usize = 20;
const MOST: usize = 2000;

#[derive(Default)]
struct Times {
    wall: Vec<f64>,
    processor: Vec<f64>,
}

impl Times {
    fn allocate(repetitions: usize) -> Self {
        Self { wall: vec![0.0; repetitions], processor: vec![0.0; repetitions] }
    }
}

fn compute_alone<M: Memory, O: Operation<M>>(
    collective: &Collective<O, M>,
    options: &mut Options,
    times: &mut Times,
    repetition: usize,
) -> Result<(), Failure> {
    collective.world.barrier()?;
    skew(&mut options.random, collective.row.computation, options.skew_percent);
    let processor = options.processor.used_us()?;
    let wall = wall_us();
    compute(collective.row.computation);
    times.wall[repetition] = wall_us() - wall;
    times.processor[repetition] = options.processor.used_us()? - processor;
    Ok(())
}

fn compute_over<M: Memory, O: Operation<M>>(
    collective: &mut Collective<O, M>,
    options: &mut Options,
    times: &mut Times,
    repetition: usize,
) -> Result<(), Failure> {
    let root = repetition % collective.ranks;
    let computation = collective.row.computation;
    collective.prepare(root, repetition);
    collective.world.barrier()?;
    skew(&mut options.random, computation, options.skew_percent);
    let processor = options.processor.used_us()?;
    let wall = wall_us();
    let request = collective.start(root)?;
    compute(computation);
    request.wait()?;
    times.wall[repetition] = wall_us() - wall;
    times.processor[repetition] = options.processor.used_us()? - processor;
    collective.check(root, repetition, true)
}

fn median_of(values: &[f64]) -> f64 {
    let mut copy = values.to_vec();
    sort(&mut copy);
    percentile(&copy, 50)
}

fn measure_exposed<M: Memory, O: Operation<M>>(
    collective: &mut Collective<O, M>,
    options: &mut Options,
    alone_us: f64,
    line: &mut Line,
) -> Result<(), Failure> {
    let start_us = wall_us();
    compute(collective.row.computation);
    let computation_us = agree(collective.world, wall_us() - start_us)?;
    let repetitions =
        repetitions_within(options.budget_us, 2.0 * computation_us + 2.0 * alone_us, LEAST, MOST);
    let (mut computation, mut total) = (Times::allocate(repetitions), Times::allocate(repetitions));
    for r in 0..repetitions {
        compute_alone(collective, options, &mut computation, r)?;
        compute_over(collective, options, &mut total, r)?;
    }
    let wall = median_of(&computation.wall);
    let processor = median_of(&computation.processor);
    let mut exposed: Vec<f64> = total.wall.iter().map(|time| time - wall).collect();
    total.processor.iter_mut().for_each(|time| *time -= processor);
    combine(collective.world, &mut exposed, Op::Maximum)?;
    combine(collective.world, &mut total.wall, Op::Maximum)?;
    combine(collective.world, &mut computation.wall, Op::Maximum)?;
    combine(collective.world, &mut total.processor, Op::Sum)?;
    line.add_summary("compute_us", &mut computation.wall)?;
    line.add_summary("total_us", &mut total.wall)?;
    line.add_summary("exposed_us", &mut exposed)?;
    line.add_summary("processor_us", &mut total.processor)
}

/// Measures one row.
pub fn measure<M: Memory, O: Operation<M>>(
    collective: &mut Collective<O, M>,
    options: &mut Options,
) -> Result<(), Failure> {
    let mut line = Line::begin("overlap", collective.row, collective.world);
    let alone_us = measure_batches(
        collective,
        |collective, root| collective.start_and_wait(root),
        options.budget_us,
        &mut line,
        "alone_us",
    )?;
    if collective.row.computation.amount > 0 {
        measure_exposed(collective, options, alone_us, &mut line)?;
    }
    line.end();
    Ok(())
}
