//! Failures of a key-value space over TCP.

use std::net::SocketAddr;
use std::time::Duration;

/// A failure of the exchange with the other ranks over TCP.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server cannot listen.
    #[error(
        "rank 0 cannot listen at {address} ({origin}): {source}; end the process that listens there, choose another port, \
         and start rank 0 once only"
    )]
    Listen {
        /// Host and port.
        address: String,
        /// Variables from which the address was determined.
        origin: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The server has not been reached.
    #[error(
        "rank {rank} cannot reach rank 0 at {addresses} ({origin}) within {waited:?}: {why}; is rank 0 started, and does a \
         firewall let this port through?"
    )]
    Unreachable {
        /// This rank.
        rank: u32,
        /// All addresses that were tried.
        addresses: String,
        /// Variables from which the addresses were determined.
        origin: String,
        /// Time for which this rank has tried.
        waited: Duration,
        /// Reason of the last attempt.
        why: String,
    },
    /// The other end has another secret.
    #[error(
        "rank 0 at {address} has another secret than this rank: set TRADEWIND_SECRET or TRADEWIND_SECRET_FILE to the same \
         value for all ranks"
    )]
    OtherSecret {
        /// Address of the server.
        address: SocketAddr,
    },
    /// Another program listens there.
    #[error(
        "{address} ({origin}) is another program's: choose a port that is free on the host of rank 0"
    )]
    OtherProgram {
        /// Address of the server.
        address: SocketAddr,
        /// Variables from which the address was determined.
        origin: String,
    },
    /// The connection has ended before the exchange was complete.
    #[error("rank 0 at {address} has ended while the ranks exchanged their addresses")]
    Ended {
        /// Address of the server.
        address: SocketAddr,
    },
    /// The server has reported a failure of another rank, or refuses this one.
    #[error("{0}")]
    Failed(String),
    /// The server has not answered.
    #[error("rank 0 at {address} has not answered within {waited:?}: is it stopped?")]
    Silent {
        /// Address of the server.
        address: SocketAddr,
        /// Time for which this rank has waited.
        waited: Duration,
    },
    /// The secret is absent.
    #[error(
        "the ranks exchange their addresses over TCP, which needs a secret that all of them have: set TRADEWIND_SECRET, or \
         set TRADEWIND_SECRET_FILE to a file with it on every node (`(umask 077; openssl rand -hex 16 > FILE)`)"
    )]
    NoSecret,
    /// The secret is too short.
    #[error("the secret in {place} has {length} characters, it must have {least} or more")]
    ShortSecret {
        /// The variable or file.
        place: String,
        /// Number of its characters.
        length: usize,
        /// Least number.
        least: usize,
    },
    /// The file with the secret cannot be read.
    #[error("cannot read the secret in {path} (TRADEWIND_SECRET_FILE): {source}")]
    SecretFile {
        /// The file.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Other users may access the file with the secret.
    #[error(
        "other users may access the secret in {path} (mode {mode:03o}): run `chmod 600 {path}`, and replace the secret if \
         others use this node"
    )]
    OpenSecretFile {
        /// The file.
        path: String,
        /// Its permissions.
        mode: u32,
    },
    /// Any other refusal of the system.
    #[error("cannot {action}: {source}")]
    System {
        /// The attempt.
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// For `map_err`: names the attempt.
pub(super) fn system<E: Into<std::io::Error>>(action: &'static str) -> impl Fn(E) -> Error {
    move |error| Error::System { action, source: error.into() }
}
