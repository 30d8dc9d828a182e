//! Errors of the name server and of its clients.

use super::address::PortAddress;
use super::codec::messages;
use super::config::{MAX_QUEUE_CONNECTIONS, MAX_RING_CONNECTIONS};
use crate::id::QueueName;
use shm::broker::BrokerError;
use shm::process::ProcessError;
use shm::segment::SegmentError;
use std::fmt;
use std::time::Duration;

messages! {
    /// Reason why the name server refuses a request.
    #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
    #[non_exhaustive]
    pub enum Refusal {
        /// The request is malformed, or came before the registration.
        #[error("it cannot decode the request: use one version of tradewind on the node")]
        0 => NotUnderstood,
        /// No job of this name has been added.
        #[error("there is no such job")]
        1 => UnknownJob,
        /// The job has another key.
        #[error("the key is not the job's")]
        2 => WrongKey,
        /// The job has no process with this index.
        #[error("the job has {processes} processes")]
        3 => NoSuchProcess {
            /// Number of processes.
            processes: u32,
        },
        /// Another process has registered as this process of the job.
        #[error("process {pid} has registered as this process of the job")]
        4 => ProcessTaken {
            /// Number of that process.
            pid: u32,
        },
        /// The kernel reports another process than the one that registers.
        #[error("the process cannot be watched: it has ended or is in another process namespace")]
        5 => Unwatchable,
        /// The job has no port with this index.
        #[error("each process of the job has {ports} ports")]
        6 => NoSuchPort {
            /// Number of ports per process.
            ports: u16,
        },
        /// The port has been opened before.
        #[error("the port is open already")]
        7 => PortOpen,
        /// The port has not been opened.
        #[error("the port is not open: open it first")]
        8 => PortNotOpen,
        /// No rule permits the sender's job to send there.
        #[error("no rule permits the sender's job to send there")]
        9 => NoRight,
        /// The name has no destination.
        #[error("the name has no destination yet")]
        10 => UnknownName,
        /// The right to send there has been revoked.
        #[error("the right to send there has been revoked")]
        11 => RevokedName,
        /// The receiving process has ended.
        #[error("the receiving process has ended")]
        12 => ProcessGone,
        /// The table of the job's names is full.
        #[error("all names of a job are in use: configure the job with more")]
        13 => TableFull,
        /// The receive queue does not accept this source.
        #[error("the receive queue does not accept messages from the sender")]
        14 => SourceRefused,
        /// A port has one connection to a name.
        #[error("the port has a connection to this destination already: use that one, or drop it")]
        17 => ConnectionOpen,
        /// One of the two processes has the largest number of connections.
        #[error(
            "a process has {MAX_RING_CONNECTIONS} connections with rings, or {MAX_QUEUE_CONNECTIONS} \
             through receive queues, the maximum"
        )]
        15 => TooManyConnections,
        /// The former receiver of this name still has messages of the port in its receive queues.
        #[error(
            "messages sent to the name before have not been received there yet: try again when they \
             have"
        )]
        19 => Moving,
        /// All queue numbers of the node are in use.
        #[error("all queue numbers of the node are in use")]
        16 => NoQueue,
        /// The request has an invalid value.
        #[error("{why}")]
        20 => Invalid {
            /// Reason.
            why: String,
        },
        /// Another process has added a job of this name.
        #[error("process {pid} has added a job of this name")]
        21 => JobExists {
            /// Number of that process.
            pid: u32,
        },
        /// No program has published the name on the other node.
        #[error("it is not published there; published are: {published}")]
        22 => UnknownThere {
            /// Names that are published there, with commas.
            published: String,
        },
        /// The name server of the other node cannot be reached, or refuses the connection.
        #[error("{why}")]
        23 => Unreachable {
            /// Reason.
            why: String,
        },
        /// The system has no memory or descriptors.
        #[error("the system refuses: {why}")]
        18 => System {
            /// Reason of the system.
            why: String,
        },
    }
}

impl Refusal {
    /// Returns the refusal for a failed system call.
    pub fn system(source: impl fmt::Display) -> Refusal {
        Refusal::System { why: source.to_string() }
    }
}

/// Reason why an operation of the name server or of a client failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name server refuses a request.
    #[error("the name server refuses to {action}: {refusal}")]
    Refused {
        /// Request, as the end of "refuses to …".
        action: String,
        /// Reason.
        refusal: Refusal,
    },
    /// The name server did not respond in time.
    #[error(
        "the name server has not responded within {waited:?}: is its thread or process stopped?"
    )]
    NoAnswer {
        /// Time that this process waited.
        waited: Duration,
    },
    /// The name server has ended, or has closed the socket.
    #[error(
        "the name server has ended: no names and connections can be obtained; open connections \
         continue"
    )]
    ServerGone,
    /// The response cannot be decoded, or belongs to another request.
    #[error("the name server sent an unexpected message: use one version of tradewind on the node")]
    UnexpectedResponse,
    /// The text of a key is invalid.
    #[error("a job's key is 32 hexadecimal digits")]
    Key,
    /// The configuration of a job is invalid.
    #[error("job {name:?} cannot be added: {why}")]
    Config {
        /// Name of the job.
        name: String,
        /// Reason.
        why: &'static str,
    },
    /// There is a job of this name.
    #[error("job {name:?} cannot be added: process {pid} has added one of this name")]
    JobExists {
        /// Name of the job.
        name: String,
        /// Process that added it; 0 for the process of the server.
        pid: u32,
    },
    /// No job of this name has been added.
    #[error("there is no job {name:?}: add it first")]
    UnknownJob {
        /// The name.
        name: String,
    },
    /// The job has no such name.
    #[error("job {job} has no name {name}")]
    UnknownName {
        /// The job.
        job: String,
        /// The name.
        name: QueueName,
    },
    /// The port is not valid for the operation.
    #[error("{address} {why}")]
    Address {
        /// The port.
        address: PortAddress,
        /// Reason.
        why: &'static str,
    },
    /// The socket of the name server failed.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// A segment could not be created or mapped.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// A process could not be watched.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Another system call failed.
    #[error("cannot {action}: {source}")]
    System {
        /// Action that failed.
        action: &'static str,
        /// Reason of the system.
        source: std::io::Error,
    },
}

/// Returns a conversion for errors of a system call.
pub fn system<E: Into<std::io::Error>>(action: &'static str) -> impl Fn(E) -> NameError {
    move |error| NameError::System { action, source: error.into() }
}
