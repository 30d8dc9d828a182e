//! Results of a receive at a port.

use crate::connection::ConnectionError;
use crate::id::SourceName;
use crate::receive_queues::Class;

/// Result of a receive.
#[derive(Debug)]
pub enum PortEvent<'a> {
    /// A message.
    Message(Received<'a>),
    /// One of the connections has ended. The others continue.
    Disconnected(ConnectionError),
}

/// A received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received<'a> {
    /// Name of the sender, to which a reply goes.
    pub source: SourceName,
    /// Number of the handler.
    pub handler: u8,
    /// Class: a request or a reply.
    pub class: Class,
    /// Data of the message.
    pub bytes: &'a [u8],
}

/// Result of a poll, without the data of a message.
pub(super) enum PolledEvent {
    Message { source: SourceName, handler: u8, class: Class },
    Disconnected(ConnectionError),
}
