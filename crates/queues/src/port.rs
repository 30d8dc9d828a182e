//! Ports: messages to names, within a job and between jobs that need not trust each other.
//!
//! A process registers at the [name server](crate::names) ([`NameClient::register`]), opens its
//! ports ([`NameClient::open_port`]) and splits each into a sender and a receiver
//! ([`Port::split`]).
//!
//! A port sends to a name over one connection for requests ([`PortSender::send`]) and one for
//! replies ([`PortSender::reply`]), which never wait for each other. A message has up to
//! [`MAX_MESSAGE_BYTES`](crate::names::MAX_MESSAGE_BYTES) bytes. Between jobs a connection has a
//! ring. If a job has a segment, each of its processes also has
//! [receive queues](crate::receive_queues), one for each of its ports, of which
//! [`JobConfig::resident`](crate::names::JobConfig::resident) have rings at a time. Within such a
//! job messages of up to [`LINE_DATA`](crate::cache_line::LINE_DATA) bytes pass through them, and
//! the connection is only a record of the name server. The first longer message to a name opens a
//! connection with a ring, which carries all later messages; the receiver takes the messages in its
//! receive queue first. A process to which more than 255 others send gets connections with rings
//! from the rest. The program does not notice the difference. Receive queues lie in memory of their
//! own, which only the processes of the job can map. It exists until the last of them unmaps it; a
//! process that replaces a dead one has a new one.
//!
//! The page of `service::names` has an example.

mod client;
mod error;
mod event;
mod handle;
mod queue;
mod receiver;
mod sender;
mod split;

pub use crate::receive_queues::Class;
pub use client::{Identity, NameClient};
pub use error::PortError;
pub use event::{PortEvent, Received};
pub use handle::Port;
pub use receiver::PortReceiver;
pub use sender::PortSender;
