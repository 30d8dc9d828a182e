//! Errors of a launcher, the node service and a rank.

use shm::broker::BrokerError;
use shm::process::ProcessError;
use shm::refusal::way_out;
use std::ffi::OsString;
use std::time::Duration;

/// Reason why a rank could not join its job, or a job could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The job itself: its segment, a rank that failed.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// The connection to the node service.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The watch on a process, or the binding to a core.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The environment, or the exchange with the ranks of other nodes.
    #[error(transparent)]
    Launch(#[from] launch::LaunchError),
    /// The user demands the kernel engine, and a node does not have it.
    #[error(
        "TRADEWIND_INTERNODE demands the kernel engine, which node {node} cannot have: {why}; without the \
         variable the job uses the agent"
    )]
    NoKernelEngine {
        /// The number of the node.
        node: u32,
        /// The reason.
        why: String,
    },
    /// The engine between nodes.
    #[error(transparent)]
    Network(#[from] network::error::Error),
    /// The node service does not admit this process.
    #[error("the node service refuses this process: {0}")]
    Refused(String),
    /// The response is not one of a node service of this version.
    #[error("the node service sent something unexpected: use one version of tradewind on the node")]
    Answer,
    /// The `tradewind` command, which runs the node service, cannot be executed.
    #[error(
        "cannot start the node service: {command} cannot be executed: {source}{}",
        way_out_of_start(source)
    )]
    NoCommand {
        /// The command.
        command: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The node service ended before it was ready.
    #[error("the node service did not start: {0}")]
    NotReady(String),
    /// A node service of this name is alive, and all its ranks have exited.
    #[error(
        "the node service of an earlier job has not ended within {waited:?}: end process {pid}"
    )]
    Stale {
        /// The process of the service.
        pid: u32,
        /// Time that this process has waited.
        waited: Duration,
    },
    /// A rank's program cannot be executed.
    #[error("cannot start {}: {}", .program.display(), unstartable(.source))]
    Spawn {
        /// The program.
        program: OsString,
        /// The rank.
        rank: u32,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The process is no launcher of a node.
    #[error(
        "standard input has no orders: `tradewind run --nodes` executes `tradewind internal node`"
    )]
    NotOrdered,
    /// The launcher of the job has another version.
    #[error(
        "the launcher is version {theirs} of tradewind, this node has version {ours}: install one version on all nodes"
    )]
    OtherVersion {
        /// Version of this program.
        ours: String,
        /// Version of the launcher.
        theirs: String,
    },
    /// There are fewer cores than ranks to bind.
    #[error("{ranks} ranks cannot be bound to {cores} cores: use --bind none, or fewer ranks")]
    Cores {
        /// Number of ranks.
        ranks: u32,
        /// Number of cores that this process may use.
        cores: usize,
    },
    /// A map names a core that this process may not use.
    #[error("core {core} of the map is not in this process's affinity mask: choose among {}", list(.allowed))]
    NoCore {
        /// The core.
        core: usize,
        /// The cores that it may use.
        allowed: Vec<usize>,
    },
    /// The limit on open files is too low for the ranks.
    #[error(
        "{ranks} ranks need {needed} open files and the limit is {limit}: raise it (`ulimit -n {needed}`)"
    )]
    OpenFiles {
        /// Number of ranks.
        ranks: u32,
        /// Descriptors that the launcher needs.
        needed: u64,
        /// The limit that this process cannot raise.
        limit: u64,
    },
    /// Any other error of the system.
    #[error("cannot {action}: {source}{}", way_out(source))]
    System {
        /// The action that failed.
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// Returns the end of a text about the `tradewind` command that cannot be executed.
fn way_out_of_start(source: &std::io::Error) -> &'static str {
    match (source.kind(), way_out(source)) {
        // EAGAIN: the number of processes is limited.
        (std::io::ErrorKind::WouldBlock, _) => "; raise `ulimit -u`",
        (_, "") => {
            "; put the directory of the `tradewind` command into PATH or set TRADEWIND_COMMAND to \
             its path"
        }
        (_, refused) => refused,
    }
}

/// Returns the reason why a program cannot be executed, with the way out.
fn unstartable(source: &std::io::Error) -> String {
    match source.kind() {
        std::io::ErrorKind::NotFound => {
            "no such program; give its path, or put its directory into PATH".to_owned()
        }
        std::io::ErrorKind::PermissionDenied => {
            "it may not be executed; is it a program? (`chmod +x`)".to_owned()
        }
        // ENOEXEC of errno.h, for which the standard library has no name.
        _ if source.raw_os_error() == Some(8) => {
            "it is not a program of this machine; a script begins with a line like #!/bin/sh"
                .to_owned()
        }
        // EAGAIN: the number of processes is limited.
        std::io::ErrorKind::WouldBlock => format!("{source}; use fewer ranks or raise `ulimit -u`"),
        _ => source.to_string(),
    }
}

/// Returns a function for `map_err` that adds the action.
pub(crate) fn system<E: Into<std::io::Error>>(action: &'static str) -> impl Fn(E) -> ServiceError {
    move |error| ServiceError::System { action, source: error.into() }
}

fn list(cores: &[usize]) -> String {
    cores.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}
