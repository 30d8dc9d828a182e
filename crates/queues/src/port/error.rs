//! Errors of ports.

use crate::connection::ConnectionError;
use crate::error::{CreateError, RecvError};
use crate::names::{NameError, PortAddress, TableError};
use std::time::Duration;

/// Reason why an operation on a port failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The name server refused a request or did not respond, or a system call failed.
    #[error(transparent)]
    Names(#[from] NameError),
    /// The name server responds, but the port was not opened in time.
    #[error("{address} has not been opened within {waited:.1?}: is it running?")]
    NotOpen {
        /// The port.
        address: PortAddress,
        /// Time that this process waited.
        waited: Duration,
    },
    /// The name has no destination.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A connection failed.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// This process's receive queues could not be created.
    #[error(transparent)]
    Queues(#[from] CreateError),
    /// This process's receive queues are corrupt.
    #[error(transparent)]
    Receive(#[from] RecvError),
}
