//! `tradewind measure`: experiments on what communication on this machine costs.

pub(crate) mod collectives;
pub(crate) mod in_job;
pub(crate) mod made_nodes;
pub(crate) mod nodes;
mod planned;
pub(crate) mod queues;
pub(crate) mod suite;

use crate::format::Format;
use std::process::ExitCode;

/// Measures what communication on this machine costs.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    experiment: ExperimentCommand,
}

const AFTER: &str = "\
Results are written to a directory (--out), as JSON and CSV. Ctrl-C keeps the results so far, and the same command continues
after them; complete experiments are not measured again.";

/// An experiment.
#[derive(Debug, clap::Subcommand)]
enum ExperimentCommand {
    /// Everything, one experiment after the other; about ten minutes on two cores, with --quick
    /// about one.
    /// With --nodes, or in a job that a launcher has started on several nodes (mpiexec -hosts A,B
    /// tradewind measure all --out DIR): the experiments of messages and collectives between the
    /// nodes.
    All(nodes::Arguments),
    /// The parameters of pLogP for every class of pairs, into machine.json; about a minute.
    ///
    /// On one node: L, the overheads and the gap of messages, for each class of pairs and both
    /// engines, γ, flat collectives and cooperative progress. Between nodes: messages between the
    /// nodes by each engine that the job has, and inside a node where it has several ranks.
    Plogp(nodes::Arguments),
    /// Flat collectives and cooperative progress on one node, into machine.json: what the models of
    /// collectives there need; about fifteen seconds.
    Progress(suite::Arguments),
    /// Copies of memory against size and alignment.
    Memory(nodes::Arguments),
    /// Time against message length, by exchange and by ping-pong, the receive posted beforehand or
    /// not.
    Pingpong(nodes::Arguments),
    /// Time of a barrier on 2^d ranks.
    Barrier(nodes::Arguments),
    /// Exchanges over all dimensions of a hypercube.
    Hypercube(nodes::Arguments),
    /// Exchanges over random matchings.
    Matchings(nodes::Arguments),
    /// Exchanges in a chain, all across its middle.
    Contention(nodes::Arguments),
    /// Messages against where two ranks lie: on cores of their own, on one core, not bound, and every
    /// mapping of two ranks to cores.
    Placement(suite::Arguments),
    /// Times of every algorithm of every collective, beside the predictions of the models.
    Models(suite::Arguments),
    /// Fastest algorithm for each size and number of ranks, by the clock alone; `tradewind tune`
    /// uses models first.
    Decisions(suite::Arguments),
    /// Time lost by the choices of the directory's decision table, on one node or between nodes.
    Regret(nodes::Arguments),
    Queues(queues::Arguments),
    /// Exposed time of the collectives, sizes and engines that are named, as one table.
    Collectives(collectives::Arguments),
    /// Exposed time of collectives beside a computation, with both engines; between nodes also over
    /// the number of ranks.
    Overlap(nodes::Arguments),
}

pub(crate) fn execute(arguments: Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let on_one_node = |name: &str, arguments: &suite::Arguments| {
        nodes::refuse_in_job()?;
        suite::one(name, arguments, format)
    };
    let (name, arguments) = match arguments.experiment {
        ExperimentCommand::Queues(arguments) => return queues::execute(arguments, format),
        ExperimentCommand::Collectives(arguments) => {
            return collectives::execute(arguments, format);
        }
        ExperimentCommand::Placement(arguments) => return on_one_node("placement", &arguments),
        ExperimentCommand::Progress(arguments) => return on_one_node("progress", &arguments),
        ExperimentCommand::Models(arguments) => return on_one_node("models", &arguments),
        ExperimentCommand::Decisions(arguments) => return on_one_node("decisions", &arguments),
        ExperimentCommand::All(arguments) => (nodes::ALL, arguments),
        ExperimentCommand::Plogp(arguments) => ("plogp", arguments),
        ExperimentCommand::Memory(arguments) => ("memory", arguments),
        ExperimentCommand::Pingpong(arguments) => ("pingpong", arguments),
        ExperimentCommand::Barrier(arguments) => ("barrier", arguments),
        ExperimentCommand::Hypercube(arguments) => ("hypercube", arguments),
        ExperimentCommand::Matchings(arguments) => ("matchings", arguments),
        ExperimentCommand::Contention(arguments) => ("contention", arguments),
        ExperimentCommand::Overlap(arguments) => ("overlap", arguments),
        ExperimentCommand::Regret(arguments) => ("regret", arguments),
    };
    nodes::execute(name, &arguments, format)
}
