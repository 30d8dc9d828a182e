//! `tradewind measure plogp`: the parameters of messages on one node, and between nodes.

use super::super::values::number;
use super::suite;
use crate::failure::Failure;
use crate::format::Format;
use launch::detect::{Launch, detect};
use launch::environment::{COMMAND, Environment, INTERNODE, Lookup};
use measure::experiments::plogp::nodes::experiment;
use measure::harness::Setting;
use std::fs::Permissions;
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use virtual_nodes::VirtualNodes;

/// The parameters of pLogP for every class of pairs, into machine.json; about a minute.
///
/// On one node: L, the overheads and the gap of messages, for each class of pairs and both engines,
/// γ, flat collectives and cooperative progress. In a job that a launcher has started on several
/// nodes (mpiexec -hosts A,B tradewind measure plogp --out DIR), or with --nodes: messages between
/// the nodes by each engine that the job has.
#[derive(Debug, clap::Args)]
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

/// What hydra executes to start something on a node: it passes options, the node's name, and a
/// command line for a shell there.
const LAUNCHER: &str = r#"#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
name=$1; shift
eval "namespace=\$NAMESPACE_$name"
exec nsenter --net="$namespace" -- sh -c "$*"
"#;

/// The largest IP packet between the nodes, in bytes.
const MTU: u32 = 1500;

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
    suite::in_job(&setting, &arguments.suite.place, format, |world| {
        if world.nodes() < 2 {
            return Err(Failure::OneNode);
        }
        let engine = Environment.get(INTERNODE).and_then(|engine| engine.into_string().ok());
        Ok(experiment(&setting, (world.size(), world.nodes()), engine.as_deref()))
    })
}

/// Makes nodes, and starts ranks there: once for the engines in user space, once for the kernel.
fn on_made_nodes(arguments: &Arguments, nodes: u32, format: Format) -> Result<ExitCode, Failure> {
    let made = VirtualNodes::new(nodes as usize, MTU)?;
    let directory = tempfile::tempdir()?;
    let launcher = directory.path().join("launch");
    let write = |path: &Path| {
        std::fs::write(path, LAUNCHER)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o700))
    };
    write(&launcher).map_err(|source| Failure::Write { path: launcher.clone(), source })?;
    let Some(first) = made.nodes().first() else { return Ok(ExitCode::SUCCESS) };
    let kernel = first.run(|| kernel::probe(first.interface()));
    let engines: &[&str] = if kernel.is_ok() { &["direct", "kernel"] } else { &["direct"] };
    for engine in engines {
        let status = ranks(arguments, &made, &launcher, engine, format)?;
        if status != 0 {
            return Err(Failure::RanksOnNodes(status));
        }
    }
    if let Err(why) = kernel {
        eprintln!("tradewind: the kernel engine was not measured: {why}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts this command as the ranks on the nodes; the exit status.
fn ranks(
    arguments: &Arguments,
    made: &VirtualNodes,
    launcher: &Path,
    engine: &str,
    format: Format,
) -> Result<i32, Failure> {
    let per_node = arguments.ranks_per_node.get();
    let Some(first) = made.nodes().first() else { return Ok(0) };
    let program = std::env::current_exe()?;
    let mut command = first.command("mpiexec.hydra");
    command.args(["-localhost", &first.address().to_string()]);
    command.args(["-launcher", "ssh", "-launcher-exec"]).arg(launcher);
    let hosts: Vec<String> =
        made.nodes().iter().map(|node| format!("h{}:{per_node}", node.number())).collect();
    let ranks = per_node * made.nodes().len() as u32;
    command.args(["-hosts", &hosts.join(","), "-n", &ranks.to_string()]);
    command.arg(&program);
    if format == Format::Json {
        command.args(["--format", "json"]);
    }
    let suite::Arguments { place, quick, .. } = &arguments.suite;
    command.args(["measure", "plogp", "--out"]).arg(std::path::absolute(&place.out)?);
    command.args(quick.then_some("--quick")).args(place.again.then_some("--again"));
    for node in made.nodes() {
        command.env(format!("NAMESPACE_h{}", node.number()), node.namespace());
    }
    command.env(INTERNODE, engine).env(COMMAND, &program);
    let status = command.stdin(Stdio::null()).status().map_err(Failure::Hydra)?;
    Ok(status.code().unwrap_or(1))
}
