//! The port of a program: it sends to other programs by name, and receives from all of them.
//!
//! A port sends to a name over one connection. The other direction is a connection of the other
//! port, so requests and replies never wait for each other.

mod error;
mod handle;
mod receiver;
mod sender;

pub use error::PortError;
pub(crate) use handle::Port;
pub(crate) use receiver::{PortEvent, PortReceiver};
pub(crate) use sender::PortSender;

use std::sync::Arc;

impl Port {
    /// Splits the port into a sender and a receiver.
    pub(crate) fn split(self) -> (PortSender, PortReceiver) {
        let port = Arc::new(self);
        (PortSender::new(Arc::clone(&port)), PortReceiver::new(port))
    }
}
