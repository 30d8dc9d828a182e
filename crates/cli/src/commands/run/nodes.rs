//! `tradewind run` on several nodes.

use super::{Arguments, Bind, hosts};
use crate::failure::Failure;
use engine::Exit;
use launch::environment::{COMMAND, Environment, Lookup};
use service::launcher::{NodeRanks, NodesOptions, Outcome, launch_on_nodes};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// The command that reaches the nodes if the user names none: no terminal, no X11, no questions.
const SSH: &str = "ssh -x -T -o BatchMode=yes -o ConnectTimeout=30";
/// Exit status of ssh if it fails itself.
const SSH_FAILED: i32 = 255;

/// Runs the program on the nodes that the arguments name.
pub(super) fn execute(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments { ranks, engine, bind, prefix, timeout, grace, program, reach, .. } = arguments;
    let nodes = match &reach.hostfile {
        Some(file) => hosts::of_file(file, reach.ppn)?,
        None => hosts::of_list(&reach.nodes, reach.ppn).map_err(Failure::Nodes)?,
    };
    let nodes = match ranks {
        Some(ranks) => hosts::limited(nodes, ranks).map_err(Failure::Nodes)?,
        None => nodes,
    };
    let shell = reach.ssh.as_deref().unwrap_or(SSH);
    let own = std::env::current_exe().map_err(Failure::Output)?;
    let options = NodesOptions {
        nodes: nodes.clone(),
        shell: shell.split_whitespace().map(OsString::from).collect(),
        command: Environment.get(COMMAND).map_or(own, PathBuf::from),
        engine,
        binds: bind.map(|bind| bind == Bind::Core),
        prefix,
        environment: reach.env.iter().filter_map(|word| variable(word)).collect(),
        grace,
        limit: timeout,
    };
    let (path, arguments) = program
        .split_first()
        .map_or((OsString::new(), &[][..]), |(path, rest)| (path.clone(), rest));
    let outcome = launch_on_nodes(&path, arguments, options)?;
    report(&outcome, &nodes);
    Ok(ExitCode::from(outcome.exit_status()))
}

/// Parses `NAME=VALUE`, or takes the value of `NAME` in this process's environment.
fn variable(word: &str) -> Option<(OsString, OsString)> {
    match word.split_once('=') {
        Some((name, value)) => Some((name.into(), value.into())),
        None => Some((word.into(), std::env::var_os(word)?)),
    }
}

/// Reports nodes that could not be reached or were ended. The nodes themselves report their ranks.
fn report(outcome: &Outcome, nodes: &[NodeRanks]) {
    let name = |node: u32| nodes.get(node as usize).map_or("", |node| node.host.as_str());
    match outcome.failed {
        Some((node, Exit::Exited(SSH_FAILED))) => eprintln!(
            "tradewind: node {} cannot be reached, or its connection has ended: try `ssh {} true`",
            name(node),
            name(node)
        ),
        Some((node, Exit::Exited(127))) => eprintln!(
            "tradewind: node {} has no such program, or no tradewind command at the path of this one: set TRADEWIND_COMMAND",
            name(node)
        ),
        Some((node, how @ Exit::Killed(_))) => {
            eprintln!("tradewind: the connection with node {} has failed: {how}", name(node));
        }
        _ => {}
    }
    if !outcome.ended.is_empty() {
        let names: Vec<&str> = outcome.ended.iter().map(|node| name(*node)).collect();
        let why = if outcome.out_of_time { "the time is over" } else { "the job has failed" };
        eprintln!("tradewind: {why}; ended the ranks of {}", names.join(", "));
    }
}
