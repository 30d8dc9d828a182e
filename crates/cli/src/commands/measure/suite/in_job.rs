//! An experiment in a job that a launcher has started: this process is one of its ranks.

use super::kept::SavedPart;
use super::{Measured, ResultsLocation, part_written, show};
use crate::failure::Failure;
use crate::format::Format;
use measure::harness::{Experiment, Setting, StepContext};
use measure::results::Directory;
use std::process::ExitCode;
use tradewind::{Communicator, Job};

/// Index of the first step if rank 0 cannot begin.
const NONE: u64 = u64::MAX;

/// Makes the steps of an experiment that are missing in rank 0's directory. Rank 0 keeps and shows
/// what is found; every rank makes all steps.
pub(in crate::commands) fn in_job(
    setting: &Setting,
    place: &ResultsLocation,
    format: Format,
    build: impl Fn(&Communicator) -> Result<Experiment, Failure>,
) -> Result<ExitCode, Failure> {
    let job = Job::init()?;
    let world = job.world();
    let experiment = build(world)?;
    let saved = match world.rank() {
        0 => Some(open(build(world)?, setting, place)),
        _ => None,
    };
    let mut first = [match &saved {
        Some(Ok(saved)) => first_step(saved),
        Some(Err(_)) => NONE,
        None => 0,
    }];
    world.bcast(&mut first, 0)?;
    let mut saved = saved.transpose()?;
    if first[0] == NONE {
        return Ok(ExitCode::FAILURE);
    }
    let directory = saved.as_ref().map(|_| place.out.as_path());
    for step in experiment.steps().iter().skip(first[0] as usize) {
        if let Some(saved) = &saved {
            eprintln!("tradewind: {}", saved.what_comes());
        }
        let found =
            step.run(&StepContext { world, shape: &step.shape, service: None, directory })?;
        if let Some(saved) = &mut saved {
            saved.add(found)?;
            saved.save()?;
        }
    }
    if let Some(saved) = &mut saved {
        saved.conclude()?;
        part_written(&Directory::create(&place.out)?, saved.name())?;
        let parts = vec![saved.part().clone()];
        show(Measured { parts, status: ExitCode::SUCCESS }, place, format)?;
    }
    job.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn open(
    experiment: Experiment,
    setting: &Setting,
    place: &ResultsLocation,
) -> Result<SavedPart, Failure> {
    SavedPart::open(&Directory::create(&place.out)?, experiment, setting, place.again)
}

fn first_step(saved: &SavedPart) -> u64 {
    match saved.next_job() {
        steps if steps.is_empty() => saved.experiment().steps().len() as u64,
        steps => steps.start as u64,
    }
}
