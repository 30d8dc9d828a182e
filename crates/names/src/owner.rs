//! Sessions with a name server that open no port: a program's name, the list of the published names,
//! and the permission to accept connections of other nodes.

use crate::server_connection::ServerConnection;
use crate::wire::{NameEntry, NameError, ProgramKey, Request, Response};
use rustix::event::PollFlags;
use shm::broker::Connection;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Interval at which [`ListenPermission::wait`] checks for the end of the server.
const INTERVAL: Duration = Duration::from_secs(1);

/// A program that this process has added to a name server. It exists until this value has been
/// dropped and the process that has opened it has ended; then its name is free for another one.
#[derive(Debug)]
pub struct ProgramOwner {
    server: ServerConnection,
    key: ProgramKey,
}

impl ProgramOwner {
    /// Adds a program, over a connection to a name server.
    ///
    /// # Errors
    ///
    /// [`NameError::Refused`], [`NameError::NoAnswer`], [`NameError::ServerGone`].
    pub fn add(
        socket: Connection,
        name: &str,
        deadline: Instant,
    ) -> Result<ProgramOwner, NameError> {
        let server = ServerConnection::new(socket);
        let started = shm::process::start_time(std::process::id())?;
        let request = Request::Add { name: name.to_owned(), started };
        match server.request(|| format!("add {name}"), &request, deadline)?.0 {
            Response::Added { key } => Ok(ProgramOwner { server, key }),
            _ => Err(NameError::UnexpectedResponse),
        }
    }

    /// Returns the key that admits a process to the program.
    pub fn key(&self) -> ProgramKey {
        self.key
    }

    /// Returns the process number of the name server; `None` if it is in a process namespace that
    /// this process cannot see.
    pub fn server_pid(&self) -> Option<u32> {
        self.server.server_pid()
    }
}

/// Returns the published names, in their order.
///
/// # Errors
///
/// [`NameError::Refused`], [`NameError::NoAnswer`], [`NameError::ServerGone`].
pub(crate) fn published_names(
    socket: Connection,
    deadline: Instant,
) -> Result<Vec<NameEntry>, NameError> {
    let server = ServerConnection::new(socket);
    let mut entries: Vec<NameEntry> = Vec::new();
    loop {
        // One name a message, because a message has a maximum length. The name leads to the next
        // one also if it is withdrawn meanwhile.
        let after = entries.last().map(|entry| entry.name.clone()).unwrap_or_default();
        let action = || "list the names".to_owned();
        match server.request(action, &Request::Next { after }, deadline)?.0 {
            Response::Entry(entry) => entries.push(entry),
            Response::Done => return Ok(entries),
            _ => return Err(NameError::UnexpectedResponse),
        }
    }
}

/// Lets the name server accept connections of other nodes as long as it exists.
#[derive(Debug)]
pub(crate) struct ListenPermission {
    server: ServerConnection,
}

impl ListenPermission {
    /// Passes a listening socket to the name server, which accepts connections of nodes that have
    /// the key.
    ///
    /// # Errors
    ///
    /// [`NameError::Refused`], [`NameError::NoAnswer`], [`NameError::ServerGone`].
    pub(crate) fn grant(
        socket: Connection,
        listener: BorrowedFd<'_>,
        key: ProgramKey,
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
    pub(crate) fn wait(&self) {
        while !self.server.is_lost() {
            // A failure to wait shows the end of the server in the next round at the latest.
            let _ = self.server.watch(PollFlags::IN, INTERVAL);
            self.server.receive();
        }
    }
}
