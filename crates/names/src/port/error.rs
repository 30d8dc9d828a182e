//! Errors of ports.

use crate::connection::ConnectionError;
use crate::wire::NameError;

/// Reason why an operation on a port failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The name server refused a request or did not respond, or a system call failed.
    #[error(transparent)]
    Names(#[from] NameError),
    /// A connection failed.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}
