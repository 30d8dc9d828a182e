//! An experiment on threads of this process: for trials and tests. They are not bound to cores.

use super::{Error, Experiment, Finding, StepContext};
use crate::results::Part;
use crate::rows::{RowsError, Run};
use std::sync::{Mutex, PoisonError};
use tradewind::{Communicator, local_nodes, local_with};

/// Makes all steps, each job's ranks being threads of this process.
///
/// # Errors
/// The error of a step, or a finding without a destination in the part.
pub fn run_on_threads(experiment: &Experiment) -> Result<Part, Error> {
    let mut part = experiment.outline().clone();
    each_step(experiment, |found| experiment.add(&mut part, found))?;
    experiment.conclude(&mut part)?;
    Ok(part)
}

/// Makes all steps of an experiment that consists of [rows](crate::rows), each job's ranks being
/// threads of this process.
///
/// # Errors
/// The error of a step, or a row that cannot be.
pub fn rows_on_threads(experiment: &Experiment) -> Result<Run, Error> {
    let name = experiment.outline().name.clone();
    let steps = experiment.steps().len() as u64;
    let mut run = Run { name, steps, ..Run::default() };
    each_step(experiment, |found| {
        let number = run.done();
        let step = experiment.step_rows(number as usize, found);
        step.rows.iter().try_for_each(|row| row.check().map_err(RowsError::Impossible))?;
        run.found.insert(number, step);
        Ok(())
    })?;
    Ok(run)
}

fn each_step(
    experiment: &Experiment,
    mut add: impl FnMut(Vec<Finding>) -> Result<(), Error>,
) -> Result<(), Error> {
    for step in experiment.steps() {
        let outcome = Mutex::new(Ok(Vec::new()));
        let shape = &step.shape;
        let body = |world: Communicator| {
            let origin = experiment.origin();
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
        let found: Vec<Finding> = outcome.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        add(found)?;
    }
    Ok(())
}
