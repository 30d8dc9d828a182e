//! Requests of clients that concern other nodes.

use super::records::ClientId;
use crate::wire::ProgramKey;
use std::net::TcpListener;

/// A request of a client that concerns other nodes.
#[derive(Debug)]
pub(super) enum RelayRequest {
    /// Opens a connection with a program of the node at this host and port.
    Open { node: String, key: ProgramKey, opener: Opener },
    /// Accepts connections of other nodes for a client.
    Listen { client: ClientId, question: u32, listener: TcpListener, key: ProgramKey },
    /// Ends that.
    StopListening { client: ClientId },
}

/// A client that opens a connection with a program of another node.
#[derive(Debug)]
pub(super) struct Opener {
    pub(super) client: ClientId,
    /// Number of its request.
    pub(super) question: u32,
    /// Its program.
    pub(super) local: String,
    /// Name of the program on the other node.
    pub(super) program: String,
}
