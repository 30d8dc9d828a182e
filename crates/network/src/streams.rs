//! Streams of messages between two processes on different nodes, many over one TCP connection.
//!
//! A stream carries messages in both directions, complete and in order. Each direction has a credit
//! of its own: a sender may be [`WINDOW`] bytes ahead of the receiver. So the receiver of one stream
//! that stops receiving stops its own sender only, and both processes hold a bounded number of
//! bytes for it.
//!
//! - [`authentication`] makes the connection: both ends prove that they have a secret, by the
//!   handshake of the [transport](crate::transport::tcp) between node services.
//! - [`seal`] binds every frame to the secret and to its place in the connection.
//! - [`frame`] is the encoding of what is sent over it.
//! - [`multiplexer`] is the state of one end, without input and output: the caller moves bytes
//!   between it and a socket.

pub mod authentication;
pub mod frame;
pub mod multiplexer;
mod output;
pub mod seal;

/// Largest number of bytes of a stream that were sent and not received, headers included.
pub const WINDOW: usize = 64 << 10;
/// Length of the longest message of a stream.
pub const MAX_PAYLOAD: usize = 4096;
/// Largest number of streams of a connection.
pub const MAX_STREAMS: usize = 4096;
