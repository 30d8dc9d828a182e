//! An experiment in a job that a launcher has started: this process is one of its ranks.

use super::suite::kept::SavedPart;
use super::suite::{Measured, ResultsLocation, part_written, show_problems};
use measure::harness::{Experiment, Groups, Nodes, Setting, StepContext};
use measure::rows::StepRows;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tradewind::Job;

/// Interval between lines about the progress.
const SAY_EVERY: Duration = Duration::from_secs(2);

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
        0 => Some(SavedPart::open(build()?, setting, place)),
        _ => None,
    };
    // First 1 if rank 0 can begin, then 1 for each step that is missing.
    let mut wanted = vec![0_u8; experiment.steps().len() + 1];
    if let Some(Ok(saved)) = &saved {
        show_problems(std::slice::from_ref(saved));
        wanted[0] = 1;
        let is_wanted = |step: usize| u8::from(!saved.is_done(step));
        wanted.iter_mut().skip(1).enumerate().for_each(|(step, one)| *one = is_wanted(step));
    }
    world.bcast(&mut wanted, 0)?;
    let mut saved = saved.transpose()?;
    if wanted[0] == 0 {
        return Ok(Measured { parts: Vec::new(), status: ExitCode::FAILURE });
    }
    let directory = saved.as_ref().map(|_| place.out.as_path());
    let nodes = setting.nodes.clone().map_or_else(|| Nodes::of(world, None), Ok)?;
    let mut groups = Groups::new(world, nodes);
    let mut said: Option<Instant> = None;
    let service = Some(job.service_process());
    let origin = experiment.origin();
    let missing = experiment.steps().iter().enumerate().zip(&wanted[1..]);
    for ((number, step), _) in missing.filter(|(_, wanted)| **wanted == 1) {
        let is_due = said.is_none_or(|said| said.elapsed() >= SAY_EVERY);
        if let (Some(saved), true, false) = (&saved, is_due, place.temporary) {
            eprintln!("tradewind: {}", saved.what_comes());
            said = Some(Instant::now());
        }
        let shape = &step.shape;
        let found = match groups.of(shape)? {
            Some(world) => step.run(&StepContext { world, shape, service, directory, origin })?,
            None => StepRows::default(),
        };
        groups.meet()?;
        if let Some(saved) = &mut saved {
            saved.add(number, found)?;
        }
    }
    let mut measured = Measured { parts: Vec::new(), status: ExitCode::SUCCESS };
    if let Some(saved) = &mut saved {
        saved.conclude()?;
        part_written(saved)?;
        measured.parts.push(saved.part().clone());
    }
    Ok(measured)
}
