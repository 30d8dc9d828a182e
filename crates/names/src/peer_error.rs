//! Errors of programs that meet by name.

use crate::connection::ConnectionError;
use crate::port::PortError;
use crate::start_error::StartError;
use crate::wire::NameError;
use launch::LaunchError;
use std::fmt;
use std::time::Duration;

/// Reason why a name cannot be published, or a connection to a published name cannot be used.
///
/// `Debug` prints the same sentences as `Display`: a program prints them if its `main` returns this
/// error.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The name, or the target of a connection, is malformed.
    #[error(
        "{name:?} is no name of a program: {why}; examples are solver, solver@host and solver@host:7411"
    )]
    InvalidName {
        /// The name or the target.
        name: String,
        /// Reason.
        why: &'static str,
    },
    /// Another process has published the name.
    #[error("the name {name} is in use: process {pid} has published it on this node")]
    Taken {
        /// The name.
        name: String,
        /// That process.
        pid: u32,
    },
    /// No process has published the name.
    #[error("no program of this user has published {name} on {place}; {}", list(.published))]
    Unknown {
        /// The name.
        name: String,
        /// The other node, or "this node".
        place: String,
        /// Names that are published there.
        published: Vec<String>,
    },
    /// The name is published for a job of which no rank has published it in time.
    #[error(
        "no program has opened {name} within {waited:.0?}: it is published for a job \
         (`tradewind run --serve`) that has not called Job::publish"
    )]
    NotServed {
        /// The name.
        name: String,
        /// Time that this process has waited.
        waited: Duration,
    },
    /// The name server of another node cannot be reached.
    #[error("the name server at {node} cannot be reached: {why}")]
    Unreachable {
        /// Host and port.
        node: String,
        /// Reason.
        why: String,
    },
    /// There is no secret for other nodes.
    #[error(
        "programs on {node} are reached with a secret that both nodes have: set TRADEWIND_SECRET, or \
         TRADEWIND_SECRET_FILE to a file with it (`(umask 077; openssl rand -hex 16 > FILE)`)"
    )]
    NoSecret {
        /// The other node.
        node: String,
    },
    /// The name server cannot listen to other nodes.
    #[error("cannot listen to other nodes at {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// Reason of the system.
        source: std::io::Error,
    },
    /// A variable of the environment, or the file with the secret, is unusable.
    #[error(transparent)]
    Environment(LaunchError),
    /// The program at the other end has ended.
    #[error("{name} has ended")]
    Ended {
        /// Name of the program, or the client.
        name: String,
    },
    /// The program at the other end is on another node, which does not respond any more.
    #[error("{name} cannot be reached any more: the name server of its node does not respond")]
    NodeLost {
        /// Name of the program, or the client.
        name: String,
    },
    /// The program at the other end has closed its port.
    #[error("{name} has closed its end of the connection")]
    Closed {
        /// Name of the program, or the client.
        name: String,
    },
    /// The program at the other end excludes this one.
    #[error("{name} excludes this program")]
    Excluded {
        /// Name of the program.
        name: String,
    },
    /// The name server of this node has ended.
    #[error(
        "the name server of this node has ended, and with it what it has passed on; publish or \
         connect again, which starts another one"
    )]
    ServerEnded,
    /// The message is too long.
    #[error("a message of {bytes} bytes is too long: at most {most}; send it in pieces")]
    Oversized {
        /// Length of the message.
        bytes: usize,
        /// Largest length.
        most: usize,
    },
    /// The name server of this node cannot be started.
    #[error(transparent)]
    Start(StartError),
    /// Any other failure of a port.
    #[error(transparent)]
    Port(PortError),
}

impl fmt::Debug for PeerError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

fn list(published: &[String]) -> String {
    match published {
        [] => "nothing is published there".to_owned(),
        names => format!("published are: {}", names.join(", ")),
    }
}

impl PeerError {
    /// Returns the error of a connection with this program.
    pub(crate) fn of_connection(
        error: ConnectionError,
        name: impl FnOnce() -> String,
    ) -> PeerError {
        match error {
            ConnectionError::Gone { .. } | ConnectionError::GoneThere { .. } => {
                PeerError::Ended { name: name() }
            }
            ConnectionError::NodeLost { .. } => PeerError::NodeLost { name: name() },
            ConnectionError::Closed { .. } => PeerError::Closed { name: name() },
            ConnectionError::Refused { .. } => PeerError::Excluded { name: name() },
            ConnectionError::Oversized { bytes, most } => PeerError::Oversized { bytes, most },
            error => PeerError::Port(error.into()),
        }
    }
}

impl From<PortError> for PeerError {
    fn from(error: PortError) -> PeerError {
        match error {
            PortError::Names(NameError::ServerGone) => PeerError::ServerEnded,
            PortError::Connection(ConnectionError::Oversized { bytes, most }) => {
                PeerError::Oversized { bytes, most }
            }
            error => PeerError::Port(error),
        }
    }
}

impl From<NameError> for PeerError {
    fn from(error: NameError) -> PeerError {
        PortError::from(error).into()
    }
}

impl From<StartError> for PeerError {
    fn from(error: StartError) -> PeerError {
        match error {
            StartError::Names(error) => error.into(),
            error => PeerError::Start(error),
        }
    }
}
