//! `tradewind serve-names`: the name server of a user on a node. The first job that needs it
//! executes it.

use crate::failure::Failure;
use service::names::serve;
use service::spawn::detach;
use std::process::{Command, ExitCode};

/// Runs the name server of a user on a node.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Name of the server's listening socket.
    name: String,

    /// Run the server in this process instead of a detached one.
    #[arg(long)]
    stay: bool,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.stay {
        serve(&arguments.name)?;
        return Ok(ExitCode::SUCCESS);
    }
    // This program, independent of the name in the command line.
    let mut itself = Command::new("/proc/self/exe");
    detach(itself.args(std::env::args_os().skip(1)).arg("--stay"), false)?;
    Ok(ExitCode::SUCCESS)
}
