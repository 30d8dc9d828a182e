//! Jobs whose ranks exchange the name of their node service themselves, as those of an MPI program
//! do by calls of its library. All ranks are on this node.

use crate::attach::engine_kind;
use crate::error::ServiceError;
use crate::spawn::{Job, spawn};
use launch::environment::Environment;
use shm::broker::unguessable_name;
use std::path::Path;

/// Starts the node service of a job of `ranks` ranks on this node, and returns its name when ranks
/// can connect. One process of the job does so and passes the name on. `command` is the `tradewind`
/// command, unless TRADEWIND_COMMAND names another; `None` is the one in PATH.
///
/// # Errors
/// If the command cannot be executed, or the service does not start.
pub fn start(ranks: u32, command: Option<&Path>) -> Result<String, ServiceError> {
    let job = Job {
        name: unguessable_name("tradewind-job")?,
        ranks,
        launcher: rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned()),
        engine: engine_kind(&Environment)?,
        listen: None,
        command: command.map(Into::into),
    };
    spawn(&job)?;
    Ok(job.name)
}
