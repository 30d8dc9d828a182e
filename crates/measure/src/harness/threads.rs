//! An experiment on threads of this process: for trials and tests. They are not bound to cores.

use super::{Error, Experiment, Step, StepContext};
use crate::rows::{RowsError, Run, StepRows};
use std::sync::{Mutex, PoisonError};
use tradewind::{Communicator, local_nodes, local_with};

/// Makes all steps, each job's ranks being threads of this process.
///
/// # Errors
/// The error of a step, or a row that cannot be.
pub fn run_on_threads(experiment: &Experiment) -> Result<Run, Error> {
    let steps = experiment.steps();
    let mut run = Run::default();
    experiment.name().clone_into(&mut run.name);
    run.steps = steps.len() as u64;
    for (number, step) in steps.iter().enumerate() {
        let found = experiment.step_rows(number, on_threads(experiment, step)?);
        found.rows.iter().try_for_each(|row| row.check().map_err(RowsError::Impossible))?;
        run.found.insert(number as u64, found);
    }
    Ok(run)
}

fn on_threads(experiment: &Experiment, step: &Step) -> Result<StepRows, Error> {
    let outcome = Mutex::new(Ok(StepRows::default()));
    let shape = &step.shape;
    let origin = experiment.origin();
    let body = |world: Communicator| {
        let here = StepContext { world: &world, shape, service: None, directory: None, origin };
        let found = step.run(&here);
        let fails = found.is_err();
        if world.rank() == 0 || fails {
            let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
            if outcome.is_ok() {
                *outcome = found;
            }
        }
        // No rank leaves the job before the others are done with the step.
        if fails { Ok(()) } else { world.barrier() }
    };
    match &shape.nodes {
        Some(nodes) => local_nodes(&nodes.ranks, body)?,
        None => local_with(shape.ranks, shape.engine, body)?,
    }
    outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
}
