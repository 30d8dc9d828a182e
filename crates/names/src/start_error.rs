//! Errors of the start of a name server.

use crate::wire::NameError;
use shm::broker::BrokerError;

/// Reason why a program could not be added to the user's name server.
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
    /// A process of another user has the name of this user's server.
    #[error(
        "the socket @{name} of the name server of user {ours} belongs to {} of user {theirs}, which \
         may have taken it to be in the way: have that process ended, or set TRADEWIND_NODE to one \
         new word for all programs that are to meet, which then use another socket",
        process(*.pid)
    )]
    OtherUser {
        /// Name of the server.
        name: String,
        /// That process; `None` if it is in a process namespace that is not visible here.
        pid: Option<u32>,
        /// Its user.
        theirs: u32,
        /// The user of this process.
        ours: u32,
    },
    /// The server refused the request, or did not respond.
    #[error(transparent)]
    Names(#[from] NameError),
}

/// Names a process, also one of unknown number.
fn process(pid: Option<u32>) -> String {
    pid.map_or("a process".to_owned(), |pid| format!("process {pid}"))
}

impl StartError {
    /// Returns the error of a request to the server of this name.
    pub(crate) fn at(name: &str, error: NameError) -> StartError {
        match error {
            NameError::Broker(BrokerError::OtherUser { pid, theirs, ours }) => {
                StartError::OtherUser { name: name.to_owned(), pid, theirs, ours }
            }
            error => error.into(),
        }
    }
}
