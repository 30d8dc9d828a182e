//! An experiment in a job that a launcher has started: this process is one of its ranks.

use super::suite::kept::SavedPart;
use super::suite::{Measured, ResultsLocation, part_written};
use measure::harness::{Experiment, Groups, Nodes, Setting, StepContext};
use measure::results::Directory;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tradewind::Job;

/// Index of the first step if rank 0 cannot begin.
const NONE: u64 = u64::MAX;
/// Interval between writes of the part, and between lines about the progress.
const SAVE_EVERY: Duration = Duration::from_secs(2);

/// Makes the steps of an experiment that are missing in rank 0's directory. The ranks of a step's
/// shape make it while the others sleep; rank 0 keeps and returns what is found.
pub(in crate::commands) fn in_job(
    job: &Job,
    setting: &Setting,
    place: &ResultsLocation,
    build: impl Fn() -> anyhow::Result<Experiment>,
) -> anyhow::Result<Measured> {
    let world = job.world();
    let experiment = build()?;
    let saved = match world.rank() {
        0 => Some(open(build()?, setting, place)),
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
        return Ok(Measured { parts: Vec::new(), status: ExitCode::FAILURE });
    }
    let directory = saved.as_ref().map(|_| place.out.as_path());
    let nodes = setting.nodes.clone().map_or_else(|| Nodes::of(world, None), Ok)?;
    let mut groups = Groups::new(world, nodes);
    let mut written: Option<Instant> = None;
    let service = Some(job.service_process());
    for step in experiment.steps().iter().skip(first[0] as usize) {
        let is_due = written.is_none_or(|written| written.elapsed() >= SAVE_EVERY);
        if let (Some(saved), true) = (&saved, is_due) {
            saved.save()?;
            eprintln!("tradewind: {}", saved.what_comes());
            written = Some(Instant::now());
        }
        let shape = &step.shape;
        let found = match groups.of(shape)? {
            Some(world) => step.run(&StepContext { world, shape, service, directory })?,
            None => Vec::new(),
        };
        groups.meet()?;
        if let Some(saved) = &mut saved {
            saved.add(found)?;
        }
    }
    let mut measured = Measured { parts: Vec::new(), status: ExitCode::SUCCESS };
    if let Some(saved) = &mut saved {
        saved.conclude()?;
        part_written(&Directory::create(&place.out)?, saved.name())?;
        measured.parts.push(saved.part().clone());
    }
    Ok(measured)
}

fn open(
    experiment: Experiment,
    setting: &Setting,
    place: &ResultsLocation,
) -> anyhow::Result<SavedPart> {
    SavedPart::open(&Directory::create(&place.out)?, experiment, setting, place.again)
}

fn first_step(saved: &SavedPart) -> u64 {
    match saved.next_job() {
        steps if steps.is_empty() => saved.experiment().steps().len() as u64,
        steps => steps.start as u64,
    }
}
