//! Failures of a session with a process manager.

use super::message::Message;

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
    /// The answer is malformed, belongs to another command, or is a refusal.
    #[error("the process manager answers {command} with {text:?}: {why}")]
    Answer {
        /// The command.
        command: &'static str,
        /// The beginning of the answer.
        text: String,
        /// The fault of the answer, or the reason of the refusal.
        why: String,
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

impl Error {
    pub(super) fn answer(command: &'static str, why: String, answer: &Message) -> Self {
        Error::Answer { command, text: beginning(answer.write().trim_end()), why }
    }
}

/// Returns the beginning of a received text, for a message.
pub(super) fn beginning(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
