//! `tradewind serve-names`: the name server of a user on a node. The first job that needs it
//! executes it.

use crate::failure::Failure;
use service::names::serve;
use std::process::ExitCode;

/// Runs the name server of a user on a node.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Name of the server's listening socket.
    name: String,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    serve(&arguments.name)?;
    Ok(ExitCode::SUCCESS)
}
