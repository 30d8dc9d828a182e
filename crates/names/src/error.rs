//! Errors of the name server and of its clients.

use crate::codec::messages;
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
        /// There is no program of this name.
        #[error("there is no such program")]
        1 => UnknownProgram,
        /// The program has another key.
        #[error("the key is not the program's")]
        2 => WrongKey,
        /// Another process has opened the program.
        #[error("process {pid} has opened it")]
        3 => Taken {
            /// Number of that process.
            pid: u32,
        },
        /// The kernel reports another process than the one that registers.
        #[error("the process cannot be watched: it has ended or is in another process namespace")]
        4 => Unwatchable,
        /// The receiver excludes the sender.
        #[error("the receiver excludes this program")]
        5 => Excluded,
        /// The name has no destination.
        #[error("the name has no destination yet")]
        6 => UnknownName,
        /// The receiving process has ended.
        #[error("the receiving process has ended")]
        7 => ProcessGone,
        /// The receiver takes no more messages.
        #[error("the receiver takes no more messages")]
        8 => Closed,
        /// The table of a program's names is full.
        #[error("a program is connected with the largest number of others")]
        9 => TableFull,
        /// There is a connection to the name already.
        #[error("there is a connection to this destination already: use that one, or drop it")]
        10 => ConnectionOpen,
        /// One of the two processes has the largest number of connections.
        #[error("a process has the largest number of connections")]
        11 => TooManyConnections,
        /// The request has an invalid value.
        #[error("{why}")]
        12 => Invalid {
            /// Reason.
            why: String,
        },
        /// No program has published the name on the other node.
        #[error("it is not published there; published are: {published}")]
        13 => UnknownThere {
            /// Names that are published there, with commas.
            published: String,
        },
        /// The name server of the other node cannot be reached, or refuses the connection.
        #[error("{why}")]
        14 => Unreachable {
            /// Reason.
            why: String,
        },
        /// The system has no memory or descriptors.
        #[error("the system refuses: {why}")]
        15 => System {
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
    #[error("a program's key is 32 hexadecimal digits")]
    Key,
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
pub(crate) fn system<E: Into<std::io::Error>>(action: &'static str) -> impl Fn(E) -> NameError {
    move |error| NameError::System { action, source: error.into() }
}
