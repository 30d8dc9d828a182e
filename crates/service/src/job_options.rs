//! Options of a job on this node, from the environment.

use crate::error::ServiceError;
use engine::Decisions;
use engine::node::{EngineKind, JobOptions};
use launch::environment::{Environment, Lookup};
use shm::segment::Backing;
use std::path::PathBuf;

/// File with the measurements of the machine, beside that of the [decisions](decisions_path).
pub const MACHINE_FILE: &str = "machine.json";

/// Returns the options of a job with `ranks` ranks on this node, as the environment of this process
/// sets them.
///
/// # Errors
/// Returns an error if a variable has an invalid value.
pub fn job_options(ranks: u32, engine: EngineKind) -> Result<JobOptions, ServiceError> {
    job_options_from(&Environment, ranks, engine)
}

/// Returns the path of the user's file of decisions; `None` if there is no such path.
pub fn decisions_path() -> Option<PathBuf> {
    Environment.decisions_file().map(|file| file.path)
}

pub(crate) fn job_options_from(
    environment: &impl Lookup,
    ranks: u32,
    engine: EngineKind,
) -> Result<JobOptions, ServiceError> {
    let mut options = JobOptions::new(ranks, engine);
    if let Some(directory) = environment.segment_directory() {
        options.backing = Backing::Directory(directory);
    }
    options.arena_bytes = environment.arena_bytes()?.unwrap_or(options.arena_bytes);
    options.eager_limit = environment.eager_bytes()?.unwrap_or(options.eager_limit);
    options.single_copy = environment.single_copy()?;
    let file = environment.decisions_file();
    options.decisions = file.and_then(|file| Decisions::read(file.path, file.is_named));
    Ok(options)
}
