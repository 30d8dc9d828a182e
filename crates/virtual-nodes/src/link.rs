//! The network that joins the nodes.

use crate::error::Error;
use std::fmt::Debug;

/// Ethernet between the nodes.
pub trait Link: Debug + Send + Sync {
    /// Raises or drops the carrier of a node's interface.
    ///
    /// # Errors
    /// The system refuses the change.
    fn set_carrier(&self, node: usize, up: bool) -> Result<(), Error>;

    /// Returns true once frames from and to the node pass.
    ///
    /// # Errors
    /// The system refuses to return the state.
    fn is_forwarding(&self, node: usize) -> Result<bool, Error>;
}
