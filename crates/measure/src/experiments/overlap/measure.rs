//! Measurement of one collective over a computation.

use super::case::Case;
use super::collective::Collective;
use super::neighbor::NeighborSubject;
use super::progress::Progress;
use crate::experiments::algorithms::{CollectiveCall, CollectiveSubject, Memory};
use crate::harness::timer::{Extent, OverTimes, Place, Timer};
use crate::harness::{Error, StepContext};
use crate::rows::{Quantity, Row, What};
use collectives::Choice;
use models::machine_file::Engine;

/// A broadcast goes through so many roots at most.
const MOST_ROOTS: u32 = 8;

/// Measures one collective of one size. All ranks call this, with the same case, and get the same
/// rows: the collective alone, the computation by itself, the collective over it, and what it adds.
///
/// # Errors
/// If the case cannot be measured, a rank has failed, or the collective returns wrong data.
pub fn measure(
    here: &StepContext<'_>,
    progress: Progress,
    case: &Case,
    seed: u64,
) -> Result<Vec<Row>, Error> {
    case.check()?;
    let Case { collective, bytes, computation_us, repetitions } = *case;
    let world = here.world;
    let plan = Choice::of(collective.algorithm(progress, bytes));
    let timer = Timer::new(world, Place::of(here));
    let extent = |cycle| Extent { computation_us, repetitions, cycle, seed };
    let (times, engine) = match collective.of_library() {
        Some(operation) => {
            let form = progress.form();
            let ranks = world.size();
            let call = CollectiveCall { operation, form, ranks, bytes, root: 0 };
            let roots: Vec<u32> = match collective {
                Collective::Bcast => (0..ranks.min(MOST_ROOTS)).collect(),
                _ => vec![0],
            };
            let memory = Memory::new(&call, &roots, world.rank())?;
            let mut subject =
                CollectiveSubject::called(world, &call, &plan, None, &roots, &memory)?;
            subject.verify(&plan)?;
            let times = timer.over(&mut subject, extent(roots.len() as u32))?;
            subject.verify(&plan)?;
            (times, subject.engine()?)
        }
        None => {
            let algorithms = tradewind::Algorithms {
                neighbor: Some(plan.algorithm),
                ..tradewind::Algorithms::default()
            };
            let world = world.with_algorithms(algorithms);
            let mut subject = NeighborSubject::new(&world, progress.form(), bytes)?;
            subject.verify()?;
            let times = timer.over(&mut subject, extent(1))?;
            subject.verify()?;
            (times, subject.engine()?)
        }
    };
    Ok(rows(here, case, (progress, engine, plan), times))
}

fn rows(
    here: &StepContext<'_>,
    case: &Case,
    (progress, engine, plan): (Progress, Engine, Choice),
    times: OverTimes,
) -> Vec<Row> {
    let OverTimes { alone, calls, computation, over, exposed, unattended, processor } = times;
    let row = |what: What, quantity, times| here.row(what, quantity, times).sized(case.bytes);
    let of_collective = |quantity, times| {
        row(case.collective.what(), quantity, times).by(engine, progress.form(), Some(plan))
    };
    vec![
        Row { calls, ..of_collective(Quantity::Alone, alone) },
        row(What::Computation, Quantity::Alone, computation),
        of_collective(Quantity::Over, over),
        Row {
            unattended: Some(unattended),
            processor: Some(processor),
            ..of_collective(Quantity::Exposed, exposed)
        },
    ]
}
