//! Failures of the conversation with a process manager.

use super::message::Version;

/// A failure of a command to the process manager.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection failed.
    #[error("cannot speak with the process manager: {0}; start the program with mpiexec or srun")]
    Stream(#[from] std::io::Error),
    /// The process manager, or what carries its words to this node, is gone.
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
    /// The answer is one to another question.
    #[error("the process manager answers {command} with {found:?}, it should be {expected:?}")]
    Unexpected {
        /// The command.
        command: &'static str,
        /// The command of the answer.
        found: String,
        /// The expected value.
        expected: &'static str,
    },
    /// A word of the answer is missing, or is not what it should be.
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
    /// The process manager says no.
    #[error("the process manager refuses {command}: {why}")]
    Refused {
        /// The command.
        command: &'static str,
        /// Reason in the answer.
        why: String,
    },
    /// The process manager does not speak this version of the protocol.
    #[error("the process manager does not speak {0}")]
    Version(Version),
    /// The process manager gives this rank another number, or the job another size, than the
    /// environment does.
    #[error("the process manager says {what} is {found}, the environment says {expected}")]
    Contradiction {
        /// Which number.
        what: &'static str,
        /// Number from the process manager.
        found: u32,
        /// Number from the environment.
        expected: u32,
    },
    /// A key or a value that does not survive the way.
    #[error(
        "{what} {text:?} cannot be put: it must have 1 to {limit} printable characters, none of them a space, = or ;"
    )]
    Unspeakable {
        /// A key or a value.
        what: &'static str,
        /// Its beginning.
        text: String,
        /// Characters that it may have.
        limit: usize,
    },
}

/// The beginning of a text from elsewhere, for a message.
pub(crate) fn beginning(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
