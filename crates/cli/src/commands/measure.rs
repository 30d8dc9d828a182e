//! `tradewind measure`: experiments on what communication on this machine costs.

pub(crate) mod queues;
pub(crate) mod suite;

use crate::failure::Failure;
use crate::format::Format;
use std::process::ExitCode;

/// Measures what communication on this machine costs.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

const AFTER: &str = "\
What was found is kept in a directory (--out), as JSON and CSV. Ctrl-C leaves there what has been measured so far, and the
same command goes on behind it; what is complete is not measured again.";

/// What is measured.
#[derive(Debug, clap::Subcommand)]
enum Experiment {
    /// Everything, one experiment after the other; about ten minutes on two cores, with --quick about one.
    All(suite::Arguments),
    /// The parameters of pLogP for every class of pairs, into machine.json; about half a minute.
    Plogp(suite::Arguments),
    /// The time of a barrier on 2^d ranks.
    Barrier(suite::Arguments),
    /// Every algorithm of every collective against what the models predict.
    Models(suite::Arguments),
    /// Which algorithm is best when; `tradewind tune` makes the table that programs go by from it.
    Decisions(suite::Arguments),
    /// What the choices of the directory's decision table lose.
    Regret(suite::Arguments),
    Queues(queues::Arguments),
}

pub(crate) fn execute(arguments: Arguments, format: Format) -> Result<ExitCode, Failure> {
    let (name, arguments) = match arguments.experiment {
        Experiment::Queues(arguments) => return queues::execute(&arguments.into_plan(), format),
        Experiment::All(arguments) => return suite::all(&arguments, format),
        Experiment::Plogp(arguments) => ("plogp", arguments),
        Experiment::Barrier(arguments) => ("barrier", arguments),
        Experiment::Models(arguments) => ("models", arguments),
        Experiment::Decisions(arguments) => ("decisions", arguments),
        Experiment::Regret(arguments) => ("regret", arguments),
    };
    suite::one(name, &arguments, format)
}
