//! `tradewind measure`: experiments on what messages cost that no collective describes.

pub(crate) mod queues;

use crate::failure::Failure;
use crate::format::Format;
use std::process::ExitCode;

/// Measures what messages cost that no collective describes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

/// What is measured.
#[derive(Debug, clap::Subcommand)]
enum Experiment {
    Queues(queues::Arguments),
}

pub(crate) fn execute(arguments: Arguments, format: Format) -> Result<ExitCode, Failure> {
    match arguments.experiment {
        Experiment::Queues(arguments) => queues::execute(&arguments.into_plan(), format),
    }
}
