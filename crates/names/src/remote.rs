//! Connections of a program with name servers of other nodes, and permission for those to connect
//! with the one of this node.

use crate::owner::ListenPermission;
use crate::peer_error::PeerError;
use crate::process::{SERVER_TIMEOUT, with_default_server};
use crate::target::RemoteNode;
use crate::wire::ProgramKey;
use launch::LaunchError;
use launch::environment::{Environment, Lookup};
use launch::process_manager::shared_secret;
use launch::store::SharedSecret;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Instant;

/// Port of name servers without `TRADEWIND_PORTS`. With it, the first free one of the range.
pub const NAMES_PORT: u16 = 7411;

/// Permission for other nodes to connect with programs of this one. Dropping it ends it; open
/// connections continue.
#[derive(Debug)]
pub struct Listening {
    address: SocketAddr,
    permission: ListenPermission,
}

impl Listening {
    /// Returns the address at which the name server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the end of the name server.
    pub fn wait(&self) {
        self.permission.wait();
    }
}

/// Lets programs of this user on other nodes connect with those that have published a name here.
/// The name server, which is started if there is none, listens at the address, and accepts nodes
/// that have the secret. Without a port it is the first free one of `TRADEWIND_PORTS`, or
/// [`NAMES_PORT`]. `command` is the `tradewind` command that starts the server, unless
/// `TRADEWIND_COMMAND` names one.
///
/// # Errors
///
/// [`PeerError::Listen`] for an address that this node does not have, or a port in use;
/// [`PeerError::Start`].
pub fn listen(
    ip: IpAddr,
    port: Option<u16>,
    secret: &SharedSecret,
    command: &Path,
) -> Result<Listening, PeerError> {
    let ports = Environment.ports().map_err(PeerError::Environment)?;
    let bound = match (port, ports.count()) {
        (Some(port), _) => TcpListener::bind((ip, port)),
        (None, None) => TcpListener::bind((ip, NAMES_PORT)),
        (None, Some(_)) => ports.bind(|port| TcpListener::bind((ip, port))),
    };
    let refused = |source| {
        let port = port.or(ports.count().is_none().then_some(NAMES_PORT));
        let address = port.map_or(ip.to_string(), |port| SocketAddr::new(ip, port).to_string());
        PeerError::Listen { address, source }
    };
    let listener = bound.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let key = ProgramKey::new(secret.names_key());
    let deadline = Instant::now() + SERVER_TIMEOUT;
    let permission = with_default_server(Some(command), deadline, |socket| {
        ListenPermission::grant(socket, listener.as_fd(), key, deadline)
    })?;
    Ok(Listening { address, permission })
}

/// Returns the host and port of another node's name server, and the key for it.
pub(crate) fn reach(node: &RemoteNode) -> Result<(String, ProgramKey), PeerError> {
    let secret = shared_secret(&Environment).map_err(|error| match error {
        LaunchError::Store(launch::store::Error::NoSecret) => {
            PeerError::NoSecret { node: node.to_string() }
        }
        error => PeerError::Environment(error),
    })?;
    let ports = Environment.ports().map_err(PeerError::Environment)?;
    let port = node.port.or(ports.first()).unwrap_or(NAMES_PORT);
    let node = RemoteNode { host: node.host.clone(), port: Some(port) };
    Ok((node.to_string(), ProgramKey::new(secret.names_key())))
}
