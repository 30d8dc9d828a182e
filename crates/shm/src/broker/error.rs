//! Errors and limits of the broker.

use crate::refusal::way_out;
use rustix::io::Errno;
use std::time::Duration;

/// Maximum payload of a message in bytes.
pub const MAX_BYTES: usize = 1024;

/// Maximum number of descriptors in a message.
pub const MAX_DESCRIPTORS: usize = 16;

/// Longest name of an abstract socket: 108 bytes minus the leading zero.
pub(super) const MAX_NAME_BYTES: usize = 107;

/// Error of a broker operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// Another process has bound this name: connect to it instead.
    #[error("the name {name} is taken: a node service runs already; connect to it")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The name is empty or too long.
    #[error("{name:?} cannot name a node service: 1 to {} bytes are allowed", MAX_NAME_BYTES)]
    Name {
        /// The name.
        name: String,
    },
    /// No process listens on the name.
    #[error(
        "no node service answers at {name} within {waited:?}: start one, or check whether it has \
         ended"
    )]
    NoService {
        /// The name.
        name: String,
        /// Time spent trying.
        waited: Duration,
    },
    /// A process listens on the name, and its queue of pending connections is full.
    #[error(
        "the node service at {name} has accepted no connection within {waited:?}: check whether it \
         is stopped"
    )]
    Busy {
        /// The name.
        name: String,
        /// Time spent trying.
        waited: Duration,
    },
    /// The other side belongs to another user.
    #[error(
        "refused: the other process runs as user {theirs} and this one as user {ours}; run all \
         ranks as one user"
    )]
    OtherUser {
        /// The other side's process number; `None` if it is in a process namespace that is not
        /// visible here.
        pid: Option<u32>,
        /// The other side's effective user number.
        theirs: u32,
        /// This process's effective user number.
        ours: u32,
    },
    /// The other side has closed the connection or has ended.
    #[error("the other side has closed the connection")]
    Closed,
    /// No message arrived in time.
    #[error("no message arrived within {waited:?}")]
    TimedOut {
        /// Time spent waiting.
        waited: Duration,
    },
    /// The other side does not read, and its queue is full.
    #[error("the other side does not read its messages: its queue is full")]
    NotReading,
    /// The message exceeds the limits.
    #[error(
        "a message of {bytes} bytes and {descriptors} descriptors is too large: at most \
         {MAX_BYTES} and {MAX_DESCRIPTORS}"
    )]
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// Its descriptors.
        descriptors: usize,
    },
    /// A message arrived in part.
    #[error(
        "a message arrived without its {missing}: raise the limit on open files if descriptors are \
         missing (`ulimit -n`)"
    )]
    Truncated {
        /// Missing part: `bytes` or `descriptors`.
        missing: &'static str,
        /// Its bytes, if they arrived.
        bytes: Vec<u8>,
    },
    /// The message does not start with the magic number of this protocol.
    #[error("a message starts with {found:#010x}: a program other than tradewind uses this socket")]
    WrongMagic {
        /// The first four bytes.
        found: u32,
    },
    /// The other side uses another version of the protocol.
    #[error(
        "the other side uses version {theirs} of the protocol and this one version {ours}: use one \
         tradewind on the node"
    )]
    WrongVersion {
        /// The version in the message.
        theirs: u16,
        /// The version of this library.
        ours: u16,
    },
    /// Any other failed system call.
    #[error("cannot {action}: {source}{}", way_out(source))]
    System {
        /// Attempted action.
        action: &'static str,
        /// Error of the system call.
        source: std::io::Error,
    },
}

/// Returns a function that converts the error of a failed system call.
pub(super) fn system(action: &'static str) -> impl Fn(Errno) -> BrokerError {
    move |error| BrokerError::System { action, source: error.into() }
}
