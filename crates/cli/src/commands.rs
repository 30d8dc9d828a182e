//! The subcommands, one file each.

mod completions;
mod doctor;
mod exec;
mod figures;
mod internal;
mod measure;
mod mpi;
mod names;
mod report;
mod run;
pub(crate) mod schedule;
mod top;
mod tour;
pub(crate) mod tune;
mod values;

use crate::format::Format;
use std::process::ExitCode;

/// A subcommand.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Runs a program as the ranks of a job.
    Run(run::Arguments),
    Mpi(mpi::Arguments),
    /// Shows collectives that complete during a computation, on this machine, in less than a
    /// minute.
    Tour(tour::Arguments),
    Doctor(doctor::Arguments),
    Top(top::Arguments),
    Names(names::Arguments),
    /// Measures what communication on this machine costs.
    Measure(measure::Arguments),
    Tune(tune::Arguments),
    Report(report::Arguments),
    Schedule(schedule::Arguments),
    Exec(exec::Arguments),
    #[command(hide = true)]
    Completions(completions::Arguments),
    #[command(hide = true)]
    Internal(internal::Arguments),
}

impl Command {
    /// Executes the subcommand. `whole` returns the definition of the whole command.
    pub(crate) fn execute(
        self,
        format: Format,
        whole: impl FnOnce() -> clap::Command,
    ) -> anyhow::Result<ExitCode> {
        match self {
            Command::Run(arguments) => run::execute(arguments),
            Command::Mpi(arguments) => mpi::execute(&arguments, format),
            Command::Tour(arguments) => tour::execute(&arguments, format),
            Command::Doctor(arguments) => doctor::execute(&arguments, format),
            Command::Top(arguments) => top::execute(&arguments, format),
            Command::Names(arguments) => names::execute(&arguments, format),
            Command::Measure(arguments) => measure::execute(arguments, format),
            Command::Tune(arguments) => tune::execute(&arguments, format),
            Command::Report(arguments) => report::execute(&arguments, format),
            Command::Schedule(arguments) => schedule::execute(&arguments, format),
            Command::Exec(arguments) => exec::execute(&arguments, format),
            Command::Completions(arguments) => completions::execute(&arguments, whole()),
            Command::Internal(arguments) => internal::execute(&arguments),
        }
    }

    /// Returns true if a rank has started this process, not a user.
    pub(crate) fn is_service(&self) -> bool {
        matches!(self, Command::Internal(arguments) if arguments.is_service())
    }
}
