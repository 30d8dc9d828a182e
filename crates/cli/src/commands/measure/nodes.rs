//! `tradewind measure plogp`: the parameters of messages on one node, and between nodes.

use super::super::values::number;
use super::made_nodes::MadeNodes;
use super::suite;
use crate::failure::Failure;
use crate::format::Format;
use launch::detect::{Launch, detect};
use launch::environment::{Environment, INTERNODE, Lookup};
use measure::experiments::plogp::nodes::experiment;
use measure::harness::{Experiment, Setting};
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::process::ExitCode;
use tradewind::{Communicator, Job};

/// The parameters of pLogP for every class of pairs, into machine.json; about a minute.
///
/// On one node: L, the overheads and the gap of messages, for each class of pairs and both engines,
/// γ, flat collectives and cooperative progress. In a job that a launcher has started on several
/// nodes (mpiexec -hosts A,B tradewind measure plogp --out DIR), or with --nodes: messages between
/// the nodes by each engine that the job has.
#[derive(Debug, clap::Args)]
#[group(id = "plogp")]
pub(crate) struct Arguments {
    #[command(flatten)]
    suite: suite::Arguments,

    /// Measures messages between so many nodes instead, which are network namespaces made for it,
    /// with ranks that mpiexec.hydra starts. Needs root.
    #[arg(long, value_name = "N", value_parser = number("nodes", 2..=16_u32))]
    nodes: Option<u32>,

    /// Puts so many ranks on each node, and measures messages inside a node by the engines between
    /// nodes, too.
    #[arg(long, value_name = "R", default_value = "1", requires = "nodes")]
    #[arg(value_parser = number("ranks", NonZeroU32::MIN..=NonZeroU32::MAX))]
    ranks_per_node: NonZeroU32,
}

pub(crate) fn execute(arguments: &Arguments, format: Format) -> Result<ExitCode, Failure> {
    if let Some(nodes) = arguments.nodes {
        return on_made_nodes(arguments, nodes, format);
    }
    match detect(&Environment) {
        Ok(Launch::ManyNodes { .. }) => in_job(arguments, format),
        Ok(Launch::Single) | Err(_) => suite::one("plogp", &arguments.suite, format),
        Ok(Launch::Run { .. } | Launch::OneNode { .. }) => Err(Failure::OneNode),
    }
}

/// Measures the nodes of the job that this process is a rank of.
fn in_job(arguments: &Arguments, format: Format) -> Result<ExitCode, Failure> {
    let quick = arguments.suite.quick;
    let setting = Setting { quick, ..Setting::default() };
    let job = Job::init()?;
    let world = job.world();
    let build = || parameters(world, &setting);
    let found = super::in_job::in_job(world, &setting, &arguments.suite.place, build)?;
    if world.rank() == 0 {
        suite::show(found, &arguments.suite.place, format)?;
    }
    job.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// The parameters of messages between the nodes of this job.
pub(in crate::commands) fn parameters(
    world: &Communicator,
    setting: &Setting,
) -> Result<Experiment, Failure> {
    if world.nodes() < 2 {
        return Err(Failure::OneNode);
    }
    Ok(experiment(setting, (world.size(), world.nodes()), internode().as_deref()))
}

/// The engine between nodes that this process was started for, if one was named.
pub(in crate::commands) fn internode() -> Option<String> {
    Environment.get(INTERNODE).and_then(|engine| engine.into_string().ok())
}

/// Makes nodes, and starts ranks there: once for the engines in user space, once for the kernel.
fn on_made_nodes(arguments: &Arguments, nodes: u32, format: Format) -> Result<ExitCode, Failure> {
    let made = MadeNodes::new(nodes, arguments.ranks_per_node)?;
    let suite::Arguments { place, quick, .. } = &arguments.suite;
    let out = std::path::absolute(&place.out)?;
    let mut line: Vec<OsString> =
        vec!["measure".into(), "plogp".into(), "--out".into(), out.into()];
    line.extend(quick.then(|| "--quick".into()));
    line.extend(place.again.then(|| "--again".into()));
    for engine in made.engines() {
        made.run(engine, &line, format)?;
    }
    Ok(ExitCode::SUCCESS)
}
