//! `tradewind rank`: one rank of a job that a command of this program has started.

use super::{exec, measure, overlap};
use crate::failure::Failure;
use std::process::ExitCode;

/// Runs one rank of a measurement or of a GOAL file; other commands start it.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    Overlap(overlap::rank::Arguments),
    Steps(measure::suite::rank::Arguments),
    File(exec::rank::Arguments),
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    match &arguments.task {
        Task::Overlap(arguments) => Ok(exit_code(overlap::rank::measure(arguments))),
        Task::Steps(arguments) => Ok(exit_code(measure::suite::rank::measure(arguments))),
        Task::File(arguments) => exec::rank::execute(arguments).map(|()| ExitCode::SUCCESS),
    }
}

/// Prints the error of a rank; the command that started it writes the number of the rank before it.
fn exit_code(result: Result<(), impl std::error::Error>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
