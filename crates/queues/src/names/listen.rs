//! Permission of the name server to accept connections of other nodes.

use super::error::NameError;
use super::key::JobKey;
use super::server_connection::ServerConnection;
use super::wire::{Request, Response};
use rustix::event::PollFlags;
use shm::broker::Connection;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Interval at which [`ListenPermission::wait`] checks for the end of the server.
const INTERVAL: Duration = Duration::from_secs(1);

/// Lets the name server accept connections of other nodes as long as it exists.
#[derive(Debug)]
pub struct ListenPermission {
    server: ServerConnection,
}

impl ListenPermission {
    /// Passes a listening socket to the name server, which accepts connections of nodes that have
    /// the key.
    ///
    /// # Errors
    ///
    /// [`NameError::Refused`], [`NameError::NoAnswer`], [`NameError::ServerGone`].
    pub fn grant(
        socket: Connection,
        listener: BorrowedFd<'_>,
        key: JobKey,
        deadline: Instant,
    ) -> Result<ListenPermission, NameError> {
        let server = ServerConnection::new(socket);
        let action = || "listen to other nodes".to_owned();
        match server.request_with(action, &Request::Listen { key }, &[listener], deadline)?.0 {
            Response::Done => Ok(ListenPermission { server }),
            _ => Err(NameError::UnexpectedResponse),
        }
    }

    /// Waits for the end of the name server.
    pub fn wait(&self) {
        while !self.server.is_lost() {
            // A failure to wait shows the end of the server in the next round at the latest.
            let _ = self.server.watch(PollFlags::IN, INTERVAL);
            self.server.receive();
        }
    }
}
