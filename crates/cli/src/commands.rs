//! The subcommands, one file each.

mod check;
mod completions;
mod convert;
mod doctor;
mod exec;
mod kernel;
mod man;
mod measure;
mod mpi;
mod names;
mod node;
mod overlap;
mod predict;
mod rank;
mod report;
mod run;
pub(crate) mod schedule;
mod serve;
mod serve_names;
mod top;
mod tour;
mod trace;
pub(crate) mod tune;
mod values;

use crate::failure::Failure;
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
    /// Measures the time that nonblocking collectives add to a computation.
    Overlap(overlap::Arguments),
    /// Measures what communication on this machine costs.
    Measure(measure::Arguments),
    Report(report::Arguments),
    Tune(tune::Arguments),
    Predict(predict::Arguments),
    Schedule(schedule::Arguments),
    Exec(exec::Arguments),
    Kernel(kernel::Arguments),
    Doctor(doctor::Arguments),
    Names(names::Arguments),
    Top(top::Arguments),
    Trace(trace::Arguments),
    /// Reports the errors of a GOAL file.
    Check(check::Arguments),
    /// Converts a GOAL file from text to binary or back.
    Convert(convert::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
    #[command(hide = true)]
    Rank(rank::Arguments),
    #[command(hide = true)]
    Node(node::Arguments),
    /// Runs the node service of a job that another launcher has started.
    #[command(hide = true)]
    Serve(serve::Arguments),
    /// Runs the name server of a user on a node.
    #[command(hide = true)]
    ServeNames(serve_names::Arguments),
}

impl Command {
    /// Executes the subcommand. `whole` returns the definition of the whole command.
    pub(crate) fn execute(
        self,
        format: Format,
        whole: impl FnOnce() -> clap::Command,
    ) -> Result<ExitCode, Failure> {
        match self {
            Command::Run(arguments) => run::execute(arguments),
            Command::Mpi(arguments) => mpi::execute(&arguments),
            Command::Tour(arguments) => tour::execute(&arguments, format),
            Command::Overlap(arguments) => overlap::execute(&arguments, format),
            Command::Measure(arguments) => measure::execute(arguments, format),
            Command::Tune(arguments) => tune::execute(&arguments, format),
            Command::Predict(arguments) => predict::execute(&arguments, format),
            Command::Report(arguments) => report::execute(&arguments, format),
            Command::Rank(arguments) => rank::execute(&arguments),
            Command::Schedule(arguments) => schedule::execute(&arguments, format),
            Command::Exec(arguments) => exec::execute(&arguments, format),
            Command::Kernel(arguments) => kernel::execute(&arguments, format),
            Command::Doctor(arguments) => doctor::execute(&arguments, format),
            Command::Names(arguments) => names::execute(&arguments, format),
            Command::Top(arguments) => top::execute(&arguments, format),
            Command::Trace(arguments) => trace::execute(&arguments),
            Command::Check(arguments) => check::execute(&arguments, format),
            Command::Convert(arguments) => convert::execute(&arguments, format),
            Command::Completions(arguments) => completions::execute(&arguments, whole()),
            Command::Man(arguments) => man::execute(&arguments, whole()),
            Command::Node(_) => node::execute(),
            Command::Serve(arguments) => serve::execute(&arguments),
            Command::ServeNames(arguments) => serve_names::execute(&arguments),
        }
    }
}
