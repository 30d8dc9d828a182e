//! Reasons for the end of a connection.

use crate::transport::frame::FrameError;
use rustix::io::Errno;

/// A reason why a connection has ended, as the end of a sentence about the other node.
#[derive(Debug, thiserror::Error)]
pub(in crate::transport) enum ConnectionError {
    #[error("its node service has closed the connection")]
    Closed,
    #[error("{}", why(*.0))]
    System(Errno),
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("there is no memory for a message of {0} bytes from there")]
    Memory(u64),
}

fn why(error: Errno) -> String {
    match error {
        Errno::TIMEDOUT => {
            "it has not answered for too long; is the node up, and the network between?".into()
        }
        Errno::CONNRESET | Errno::PIPE => "its node service has ended".into(),
        error => std::io::Error::from(error).to_string(),
    }
}
