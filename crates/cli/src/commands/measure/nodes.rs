//! Measurements between nodes: `tradewind measure plogp --nodes 2`, or in a job on several nodes.

use super::made_nodes::{MadeNodes, NodesWanted};
use super::suite::{self, Measured};
use crate::commands::values::number;
use crate::format::Format;
use anyhow::Context;
use clap::error::ErrorKind;
use launch::detect::{Launch, detect};
use launch::environment::{Environment, INTERNODE, Lookup};
use measure::experiments::decisions::{Purpose, losses_between_nodes};
use measure::experiments::plogp::engine_between_nodes;
use measure::experiments::{BETWEEN_NODES, between_nodes};
use measure::harness::{Experiment, Nodes, Setting};
use measure::rows::Measurements;
use models::machine_file::Engine;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::process::ExitCode;
use tradewind::{Communicator, Job};

/// Name of all experiments together.
pub(super) const ALL: &str = "all";

/// Message where a measurement between nodes finds a job on one.
const ONE_NODE: &str = "all ranks of this job are on one node: messages between nodes need ranks on several, and those of \
                        one node are measured without a launcher";

/// An experiment that runs on one node or between nodes.
#[derive(Debug, clap::Args)]
#[group(id = "node-experiment")]
pub(crate) struct Arguments {
    #[command(flatten)]
    suite: suite::Arguments,

    #[command(flatten)]
    made: NodesWanted,

    /// Number of ranks on each node.
    #[arg(long, value_name = "R", default_value = "1", requires = "nodes")]
    #[arg(value_parser = number("ranks", NonZeroU32::MIN..=NonZeroU32::MAX))]
    ranks_per_node: NonZeroU32,
}

pub(crate) fn execute(
    name: &str,
    arguments: &Arguments,
    format: Format,
) -> anyhow::Result<ExitCode> {
    if let Some(nodes) = arguments.made.nodes {
        if arguments.suite.map.is_some() {
            let error = "--map names cores of one node: leave out --map or --nodes\n";
            clap::Error::raw(ErrorKind::ArgumentConflict, error).exit();
        }
        return on_made_nodes(name, arguments, nodes, format);
    }
    match detect(&Environment) {
        Ok(Launch::ManyNodes { .. }) => in_job(name, arguments, format),
        Ok(Launch::Single) | Err(_) if name == ALL => suite::all(&arguments.suite, format),
        Ok(Launch::Single) | Err(_) => suite::one(name, &arguments.suite, format),
        Ok(Launch::Run { .. } | Launch::OneNode { .. }) => Err(anyhow::anyhow!(ONE_NODE)),
    }
}

/// Refuses to be one of several ranks that would start the same jobs at the same time.
pub(crate) fn refuse_in_job() -> anyhow::Result<()> {
    match detect(&Environment) {
        Ok(Launch::Single) | Err(_) => Ok(()),
        Ok(_) => anyhow::bail!(
            "this process is one of a job's ranks, and each of them would measure by itself: run the command once, without \
             a launcher"
        ),
    }
}

/// Measures the nodes of the job that this process is a rank of.
fn in_job(name: &str, arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let job = Job::init()?;
    let world = job.world();
    let setting = Setting { quick: arguments.suite.quick, ..Setting::default() };
    let setting = of_job(world, arguments.made.with_link(setting))?;
    announce_engine(world, &setting);
    let names = if name == ALL { BETWEEN_NODES } else { &[name] };
    let mut all = Measured { parts: Vec::new(), status: ExitCode::SUCCESS };
    for name in names {
        let build = || experiment(name, &setting);
        let found = super::in_job::in_job(&job, &setting, &arguments.suite.place, build)?;
        all.parts.extend(found.parts);
        all.status = found.status;
        if all.status != ExitCode::SUCCESS {
            break;
        }
    }
    if world.rank() == 0 {
        if name == Purpose::Check.name() {
            // The losses of all engines so far.
            let measured = Measurements::read(&arguments.suite.place.out)?;
            all.parts.extend(losses_between_nodes(&measured));
        }
        suite::show(all, &arguments.suite.place, format)?;
    }
    job.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// The setting with the nodes of a job.
pub(in crate::commands) fn of_job(
    world: &Communicator,
    setting: Setting,
) -> anyhow::Result<Setting> {
    if world.nodes() < 2 {
        anyhow::bail!(ONE_NODE);
    }
    let named = internode();
    let is_kernel = named.is_none() && engine_between_nodes(world)? == Engine::Kernel;
    let engine = named.or_else(|| is_kernel.then(|| Engine::Kernel.name().to_owned()));
    let nodes = Nodes::of(world, engine)?;
    Ok(Setting { nodes: Some(nodes), ..setting })
}

/// States on rank 0 which engine is measured, where it was not named.
pub(in crate::commands) fn announce_engine(world: &Communicator, setting: &Setting) {
    let has_engine = setting.nodes.as_ref().is_some_and(|nodes| nodes.engine.is_some());
    if world.rank() == 0 && has_engine && internode().is_none() {
        eprintln!(
            "tradewind: this job runs collectives in the kernel, so this engine is measured: with \
             TRADEWIND_INTERNODE=direct the same command measures the others"
        );
    }
}

/// An experiment between the nodes of the setting.
pub(in crate::commands) fn experiment(name: &str, setting: &Setting) -> anyhow::Result<Experiment> {
    let nodes = setting.nodes.as_ref().context(ONE_NODE)?;
    between_nodes(name, setting, nodes).with_context(|| suite::no_experiment(name))
}

/// The engine between nodes that this process was started for, if one was named.
fn internode() -> Option<String> {
    Environment.get(INTERNODE).and_then(|engine| engine.into_string().ok())
}

/// Makes nodes, and starts ranks there: once for the engines in user space, once for the kernel.
fn on_made_nodes(
    name: &str,
    arguments: &Arguments,
    nodes: u32,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let made = MadeNodes::new(nodes, arguments.ranks_per_node, arguments.made.link)?;
    let suite::Arguments { place, quick, .. } = &arguments.suite;
    let out = std::path::absolute(&place.out)?;
    let mut line: Vec<OsString> = vec!["measure".into(), name.into(), "--out".into(), out.into()];
    line.extend(quick.then(|| "--quick".into()));
    line.extend(place.again.then(|| "--again".into()));
    for engine in made.engines() {
        made.run(engine, &line, format)?;
    }
    Ok(ExitCode::SUCCESS)
}
