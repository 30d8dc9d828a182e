//! `tradewind doctor`: requirements of jobs on this node, or on all nodes of a job.

mod checks;
mod job;
mod kernel;
mod report;

use crate::format::Format;
use launch::detect::{Launch, detect};
use launch::environment::Environment;
use report::{Report, describe};
use std::process::ExitCode;

/// Reports which launcher, network, kernel engine, shared memory and limits a job finds on this
/// node, what is missing, and the way out.
///
/// Under a launcher, as in `srun -N 2 tradewind doctor`, its processes join one job, and rank 0
/// reports all nodes. If they cannot join, each reports the reason. Exit status 1 where something
/// prevents jobs; what only makes them slower is a note.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    part: Option<Part>,

    /// Do not join a job: report this node only.
    #[arg(long)]
    node_only: bool,
}

/// A part of the report, in detail.
#[derive(Debug, clap::Subcommand)]
enum Part {
    Kernel(kernel::Arguments),
}

pub(crate) fn execute(arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    if let Some(Part::Kernel(arguments)) = &arguments.part {
        return kernel::execute(arguments, format);
    }
    let launch = detect(&Environment);
    let is_single = matches!(launch, Ok(Launch::Single) | Err(_));
    let report = if arguments.node_only || is_single {
        Some(Report { job: None, nodes: vec![checks::of_this_node(&launch)] })
    } else {
        job::report(&launch)
    };
    let Some(report) = report else { return Ok(ExitCode::SUCCESS) };
    format.print(|| describe(&report), &report)?;
    Ok(if report.has_problem() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
