//! `tradewind node`: the launcher of one node of a job on several nodes.

use super::run;
use crate::failure::Failure;
use std::process::ExitCode;
use std::time::Duration;

/// Is the launcher of one node of a job on several; `tradewind run --nodes` executes it there.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn execute() -> Result<ExitCode, Failure> {
    let outcome = service::launcher::launch_on_this_node()?;
    run::report(&outcome, None, Duration::ZERO);
    Ok(ExitCode::from(outcome.exit_status()))
}
