//! Details of errors: the exit of a failed rank, and ranks that a call waits for.

use std::fmt;

/// The exit of a failed rank.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exit {
    /// Its process exited with this status.
    Exited(i32),
    /// Its process was ended by this signal.
    Killed(i32),
    /// It left the job in order.
    Left,
    /// It never joined the job.
    NeverStarted,
    /// Its thread panicked (ranks that are threads of one process).
    Panicked,
    /// Its process is gone, and its exit was not observed.
    Vanished,
    /// It failed on another node; the service of that node describes how.
    Remote(String),
}

impl fmt::Display for Exit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Exited(status) => {
                write!(formatter, "failed: its process exited with status {status}")
            }
            Exit::Killed(signal) => {
                write!(formatter, "failed: its process was ended by signal {signal}")
            }
            Exit::Left => formatter.write_str("failed: it has left the job"),
            Exit::NeverStarted => formatter.write_str("failed: it never joined the job"),
            Exit::Panicked => formatter.write_str("failed: its thread panicked"),
            Exit::Vanished => formatter.write_str("failed: its process is gone"),
            Exit::Remote(how) => formatter.write_str(how),
        }
    }
}

impl From<engine::Exit> for Exit {
    fn from(exit: engine::Exit) -> Self {
        match exit {
            engine::Exit::Exited(status) => Exit::Exited(status),
            engine::Exit::Killed(signal) => Exit::Killed(signal),
            engine::Exit::Left => Exit::Left,
            engine::Exit::NeverStarted => Exit::NeverStarted,
            engine::Exit::Panicked => Exit::Panicked,
            engine::Exit::Vanished => Exit::Vanished,
        }
    }
}

impl From<network::error::RankExit> for Exit {
    fn from(exit: network::error::RankExit) -> Self {
        Exit::Remote(exit.to_string())
    }
}

/// A rank that a call waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Straggler {
    /// The rank in the communicator.
    pub rank: u32,
    /// Its process, on this node.
    pub process: Option<u32>,
    /// The process is stopped (by SIGSTOP, or a debugger): it is waited for, never replaced. Only
    /// known on this node.
    pub stopped: bool,
    /// Number in the job of its node, in communicators on several nodes: a message of the rank is
    /// missing, as far as this node's backend can see.
    pub node: Option<u32>,
}

impl Straggler {
    /// A rank of a communicator on several nodes.
    pub(crate) fn on_node(rank: u32, node: u32) -> Self {
        Straggler { rank, process: None, stopped: false, node: Some(node) }
    }

    /// The end of an error text that lists ranks.
    pub(crate) fn list(stragglers: &[Straggler]) -> String {
        if stragglers.is_empty() {
            return String::new();
        }
        let on_nodes = stragglers.iter().any(|straggler| straggler.node.is_some());
        let what = if on_nodes { "messages of " } else { "" };
        let parts: Vec<String> = stragglers.iter().map(ToString::to_string).collect();
        format!(": waiting for {what}{}", parts.join(", "))
    }
}

impl fmt::Display for Straggler {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Straggler { rank, process, stopped, node } = self;
        match (node, process) {
            (Some(node), _) => write!(formatter, "rank {rank} (node {node})"),
            (None, Some(process)) => {
                let stopped = if *stopped { ", stopped by a signal" } else { "" };
                write!(formatter, "rank {rank} (process {process}{stopped})")
            }
            (None, None) => write!(formatter, "rank {rank}"),
        }
    }
}

impl From<engine::Straggler> for Straggler {
    fn from(straggler: engine::Straggler) -> Self {
        let engine::Straggler { rank, process, stopped } = straggler;
        Straggler { rank, process: Some(process), stopped, node: None }
    }
}
