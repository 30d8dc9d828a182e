//! Split of a port into its two sides.

use super::handle::Port;
use super::receiver::PortReceiver;
use super::sender::PortSender;
use std::sync::Arc;

impl Port {
    /// Splits the port into a sender and a receiver. Each may move to a thread of its own.
    pub fn split(self) -> (PortSender, PortReceiver) {
        let port = Arc::new(self);
        (PortSender::new(Arc::clone(&port)), PortReceiver::new(port))
    }
}
