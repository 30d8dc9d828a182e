//! The socket that accepts the connections of other nodes.

use crate::error::{Error, refused};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

/// Name of the step that fails if a socket cannot listen.
const LISTEN: &str = "listen for the job's other nodes";

/// A socket that accepts the connections of the job's other nodes.
#[derive(Debug)]
pub struct Listener {
    pub(super) socket: TcpListener,
    pub(super) address: SocketAddr,
}

impl Listener {
    /// Listens at an address; with port 0 the kernel chooses the port.
    ///
    /// # Errors
    /// If the system refuses: no such address, a port in use.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Listener, Error> {
        Listener::with_socket(TcpListener::bind(address).map_err(refused(LISTEN))?)
    }

    /// Takes a socket that listens already.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn with_socket(socket: TcpListener) -> Result<Listener, Error> {
        socket.set_nonblocking(true).map_err(refused(LISTEN))?;
        let address = socket.local_addr().map_err(refused(LISTEN))?;
        Ok(Listener { socket, address })
    }

    /// Address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
