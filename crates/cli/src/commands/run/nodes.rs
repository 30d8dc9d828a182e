//! The options of `tradewind run` for several nodes.

use super::hosts;
use crate::commands::values;
use engine::Exit;
use launch::environment::{COMMAND, Environment, Lookup};
use service::launcher::{NodeRanks, Outcome};
use std::ffi::OsString;
use std::path::PathBuf;

/// The command that reaches the nodes if the user names none: no terminal, no X11, no questions.
const SSH: &str = "ssh -x -T -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=15";
/// Exit status of ssh if it fails itself.
const SSH_FAILED: i32 = 255;

/// The nodes of a job.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("several").args(["nodes", "hostfile"]))]
pub(crate) struct Reach {
    /// Nodes on which the ranks run: `a,b:3` are --ppn ranks on a and 3 on b.
    #[arg(long, value_name = "HOST,...", value_delimiter = ',')]
    nodes: Vec<String>,

    /// File with the nodes, one a line: `host`, `host:3` or `host slots=3`.
    #[arg(long, value_name = "FILE")]
    hostfile: Option<PathBuf>,

    /// Ranks on each node that has no number of its own [default: 1].
    #[arg(long, value_name = "N", value_parser = values::ranks, requires = "several")]
    ppn: Option<u32>,

    /// Command that connects with a node. Its arguments are the name of the node and a command line
    /// for a shell there [default: ssh -x -T -o BatchMode=yes -o ConnectTimeout=30 -o
    /// ServerAliveInterval=15].
    #[arg(long, value_name = "COMMAND", requires = "several")]
    ssh: Option<String>,

    /// Variable for the ranks: NAME=VALUE, or NAME with its value in this environment. May be given
    /// several times.
    #[arg(long, value_name = "NAME", value_delimiter = None)]
    env: Vec<String>,
}

impl Reach {
    /// Returns true if the command line names nodes.
    pub(super) fn has_nodes(&self) -> bool {
        !self.nodes.is_empty() || self.hostfile.is_some()
    }

    /// Returns the nodes with their ranks, `ranks` altogether if that is present.
    pub(super) fn places(&self, ranks: Option<u32>) -> anyhow::Result<Vec<NodeRanks>> {
        let nodes = match &self.hostfile {
            Some(file) => hosts::of_file(file, self.ppn)?,
            None => hosts::of_list(&self.nodes, self.ppn).map_err(anyhow::Error::msg)?,
        };
        match ranks {
            Some(ranks) => hosts::limited(nodes, ranks).map_err(anyhow::Error::msg),
            None => Ok(nodes),
        }
    }

    /// Returns the command that reaches the nodes.
    pub(super) fn shell(&self) -> Vec<OsString> {
        self.ssh.as_deref().unwrap_or(SSH).split_whitespace().map(OsString::from).collect()
    }

    /// Returns the variables of the ranks.
    pub(super) fn variables(&self) -> Vec<(OsString, OsString)> {
        self.env.iter().filter_map(|word| variable(word)).collect()
    }
}

/// Returns the path of the `tradewind` command on the nodes: that of this one, unless the user
/// names another.
pub(super) fn command() -> anyhow::Result<PathBuf> {
    match Environment.get(COMMAND) {
        Some(path) => Ok(path.into()),
        None => Ok(std::env::current_exe()?),
    }
}

/// Parses `NAME=VALUE`, or takes the value of `NAME` in this process's environment.
fn variable(word: &str) -> Option<(OsString, OsString)> {
    match word.split_once('=') {
        Some((name, value)) => Some((name.into(), value.into())),
        None => Some((word.into(), std::env::var_os(word)?)),
    }
}

/// Reports nodes that could not be reached or were ended. The nodes themselves report their ranks.
pub(super) fn report(outcome: &Outcome, nodes: &[NodeRanks]) {
    let name = |node: u32| nodes.get(node as usize).map_or("", |node| node.host.as_str());
    match outcome.failed {
        Some((node, Exit::Exited(SSH_FAILED))) => eprintln!(
            "tradewind: node {} cannot be reached, or its connection has ended (try `ssh {} true`), or a rank there has \
             exited with status {SSH_FAILED}",
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
