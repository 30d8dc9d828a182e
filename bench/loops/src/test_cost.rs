//! Cost of one test of a collective that cannot complete yet: rank 0 tests while the others still
//! compute.

use crate::Failure;
use crate::collective::Collective;
use crate::measure::{compute, wall_us};
use crate::memory::Memory;
use crate::operation::{Operation, UnderWay};
use crate::report::Line;

const CALLS: usize = 100;
const REPETITIONS: usize = 500;

/// Microseconds a call, or nothing when the collective finished meanwhile.
fn ask<M: Memory, O: Operation<M>>(
    collective: &mut Collective<O, M>,
) -> Result<Option<f64>, Failure> {
    let mut request = collective.start(0)?;
    let mut finished = false;
    let start_us = wall_us();
    for _ in 0..CALLS {
        finished = request.test()?;
        if finished {
            break;
        }
    }
    let each_us = (wall_us() - start_us) / CALLS as f64;
    request.wait()?;
    Ok((!finished).then_some(each_us))
}

/// Measures one row.
pub fn measure<M: Memory, O: Operation<M>>(
    collective: &mut Collective<O, M>,
) -> Result<(), Failure> {
    let mut times = Vec::with_capacity(REPETITIONS);
    for r in 0..REPETITIONS {
        collective.prepare(0, r);
        collective.world.barrier()?;
        if collective.rank == 0 {
            times.extend(ask(collective)?);
        } else {
            compute(collective.row.computation);
            collective.start_and_wait(0)?;
        }
        collective.check(0, r, false)?;
    }
    if collective.rank == 0 {
        if times.len() < REPETITIONS / 2 {
            return Err("it finished while it was being tested: give more iterations".into());
        }
        let mut line = Line::begin("test_cost", collective.row, collective.world);
        line.add_summary("test_us", &mut times)?;
        line.end();
    }
    Ok(())
}
