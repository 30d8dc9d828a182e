//! Errors of the start of a name server.

use queues::names::NameError;

/// Reason why a job could not be added to the user's name server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The `tradewind` command, which runs the server, cannot be executed.
    #[error(
        "cannot start the name server {name}: {command} cannot be executed: {source}; put the \
         directory of the `tradewind` command into PATH or set TRADEWIND_COMMAND to its path"
    )]
    NoCommand {
        /// Name of the server.
        name: String,
        /// Command that was executed.
        command: String,
        /// Reason of the system.
        source: std::io::Error,
    },
    /// The server ended before it was ready.
    #[error("the name server {name} did not start: {why}")]
    NotReady {
        /// Name of the server.
        name: String,
        /// Reason.
        why: String,
    },
    /// The server refused the job, or did not respond.
    #[error(transparent)]
    Names(#[from] NameError),
}
