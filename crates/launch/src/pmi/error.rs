//! Failures of a session with a process manager.

use super::message::Version;

/// A failure of a command to the process manager.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection failed.
    #[error(
        "the connection with the process manager failed: {0}; start the program with mpiexec or srun"
    )]
    Stream(#[from] std::io::Error),
    /// The process manager, or its proxy on this node, has ended.
    #[error("the process manager has closed its connection: it has ended, or is ending the job")]
    Closed,
    /// The answer is no message.
    #[error(
        "the process manager answers {text:?} to {command}, which is no message of {version}: {why}"
    )]
    Malformed {
        /// The command.
        command: &'static str,
        /// The protocol.
        version: Version,
        /// The beginning of the answer.
        text: String,
        /// The fault of the answer.
        why: &'static str,
    },
    /// The answer belongs to another command.
    #[error("the process manager answers {command} with {found:?}, it should be {expected:?}")]
    Unexpected {
        /// The command.
        command: &'static str,
        /// The command of the answer.
        found: String,
        /// The expected value.
        expected: &'static str,
    },
    /// A word of the answer is missing or invalid.
    #[error(
        "the process manager's answer to {command} has {found}, it should have {field}, {expected}"
    )]
    Field {
        /// The command.
        command: &'static str,
        /// The word's name.
        field: &'static str,
        /// The value in the answer.
        found: String,
        /// The expected value.
        expected: &'static str,
    },
    /// The process manager refuses the command.
    #[error("the process manager refuses {command}: {why}")]
    Refused {
        /// The command.
        command: &'static str,
        /// Reason in the answer.
        why: String,
    },
    /// The process manager does not support this version of the protocol.
    #[error("the process manager does not support {0}; TRADEWIND_PMI selects the version, 1 or 2")]
    Version(Version),
    /// The process manager has another number of this rank, or another size of the job, than the
    /// environment.
    #[error(
        "{what} is {found} by the process manager and {expected} by the environment: unset variables of another launcher"
    )]
    Contradiction {
        /// Which number.
        what: &'static str,
        /// Number from the process manager.
        found: u32,
        /// Number from the environment.
        expected: u32,
    },
    /// A key or a value that a process manager would cut or divide.
    #[error(
        "{what} {text:?} cannot be put: it must have 1 to {limit} printable characters, none of them a space, = or ;"
    )]
    Unsendable {
        /// A key or a value.
        what: &'static str,
        /// Its beginning.
        text: String,
        /// Characters that it may have.
        limit: usize,
    },
}

/// Returns the beginning of a received text, for a message.
pub(crate) fn beginning(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
