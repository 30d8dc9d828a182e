//! Requests of clients that concern other nodes.

use super::records::MemberId;
use queues::names::{JobKey, PortAddress};
use std::net::TcpListener;

/// A request of a client that concerns other nodes.
#[derive(Debug)]
pub(super) enum RelayRequest {
    /// Opens a connection with a job of the node at this host and port.
    Open { node: String, key: JobKey, opener: Opener },
    /// Accepts connections of other nodes for a client.
    Listen { client: MemberId, question: u32, listener: TcpListener, key: JobKey },
    /// Ends that.
    StopListening { client: MemberId },
}

/// A client that opens a connection with a job of another node.
#[derive(Debug)]
pub(super) struct Opener {
    pub(super) member: MemberId,
    /// Number of its request.
    pub(super) question: u32,
    /// Its port.
    pub(super) client: PortAddress,
    /// Name of the job on the other node.
    pub(super) job: String,
}
