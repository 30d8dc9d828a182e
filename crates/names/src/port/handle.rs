//! The port itself, and its requests to the name server.

use super::error::PortError;
use crate::connection::{Receiver, Sender};
use crate::server_connection::{ConnectionParts, IncomingConnection, ServerConnection};
use crate::table::{DestinationTable, Entry, NameState};
use crate::wire::{DroppedEnd, NameError, ProgramKey, Refusal, Request, Response};
use queues::id::QueueName;
use shm::broker::connect;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time to wait for responses that the name server sends at once.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time to wait for the response that distinguishes a program that no process has opened from a name
/// server that is stopped.
const PROBE: Duration = Duration::from_secs(1);

/// The port of a program. When it and its connections are dropped, another process may open the
/// program.
#[derive(Debug)]
pub(crate) struct Port {
    pub(super) server: Arc<ServerConnection>,
    table: Arc<DestinationTable>,
    program: String,
}

impl Port {
    /// Opens a program at the name server of this name, which may still be starting: the call
    /// retries until `timeout` has passed.
    pub(crate) fn open(
        name_server: &str,
        program: &str,
        key: ProgramKey,
        timeout: Duration,
    ) -> Result<Port, NameError> {
        let deadline = Instant::now() + timeout;
        let server = ServerConnection::new(connect(name_server, timeout)?);
        let started = shm::process::start_time(std::process::id())?;
        let request = Request::Open { name: program.to_owned(), key, started };
        let action = || format!("open {program}");
        let (Response::Opened, descriptors) = server.request(action, &request, deadline)? else {
            return Err(NameError::UnexpectedResponse);
        };
        let [table] =
            <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| NameError::UnexpectedResponse)?;
        let table = Arc::new(DestinationTable::from_fd(table)?);
        Ok(Port { server: Arc::new(server), table, program: program.to_owned() })
    }

    /// Returns the name that this program has for another one. Blocks until a process has opened
    /// that, at most until `deadline`; then returns `None`. [`NameError::NoAnswer`] is returned one
    /// second after the deadline: the name server has that time to respond that only the process is
    /// missing.
    pub(crate) fn look_up(
        &self,
        program: &str,
        deadline: Instant,
    ) -> Result<Option<QueueName>, NameError> {
        let ask = |waits, deadline| {
            let request = Request::LookUp { program: program.to_owned(), waits };
            let action = || format!("give {} a name for {program}", self.program);
            match self.server.request(action, &request, deadline)?.0 {
                Response::Named { name } => Ok(name),
                _ => Err(NameError::UnexpectedResponse),
            }
        };
        match ask(true, deadline) {
            // The server responds to this look-up only when the program is opened. A second one
            // without the wait distinguishes that from a server that is stopped.
            Err(NameError::NoAnswer { .. }) => {
                ask(false, Instant::now() + PROBE)?;
                Ok(None)
            }
            outcome => outcome.map(Some),
        }
    }

    /// Opens a connection with a program on another node. `node` is the host and the port at which
    /// its name server listens, `key` is derived from the secret that both name servers have.
    /// Returns the program of this node that stands for the other one.
    pub(crate) fn open_remote(
        &self,
        program: &str,
        node: &str,
        key: ProgramKey,
        deadline: Instant,
    ) -> Result<String, NameError> {
        let program = program.to_owned();
        let node = node.to_owned();
        let action = format!("open a connection with {program} on {node}");
        let request = Request::OpenRemote { program, node, key };
        match self.server.request(|| action, &request, deadline)?.0 {
            Response::RemoteOpened { program } => Ok(program),
            _ => Err(NameError::UnexpectedResponse),
        }
    }

    /// Returns the entry of a name: one load.
    pub(crate) fn entry(&self, name: QueueName) -> Entry {
        self.table.entry(name)
    }

    /// Opens a connection to the destination of a name. Waits for the name server until `deadline`.
    pub(crate) fn connect(&self, name: QueueName, deadline: Instant) -> Result<Sender, PortError> {
        let entry = self.entry(name);
        let action = || "open a connection".to_owned();
        let refused = |refusal| NameError::Refused { action: action(), refusal };
        match entry.state {
            NameState::Open(_) => {}
            NameState::Unknown => return Err(refused(Refusal::UnknownName).into()),
            NameState::Excluded => return Err(refused(Refusal::Excluded).into()),
            NameState::Gone => return Err(refused(Refusal::ProcessGone).into()),
        }
        let response = self.server.request(action, &Request::Connect { name }, deadline)?;
        let (Response::Connection(offer), descriptors) = response else {
            return Err(NameError::UnexpectedResponse.into());
        };
        let parts = ConnectionParts::new(&self.server, offer, DroppedEnd::Sender, descriptors)?;
        let table = Arc::clone(&self.table);
        Ok(Sender::new(&self.server, table, (name, entry.generation), parts)?)
    }

    /// Accepts the next connection that another process has opened to this port.
    pub(crate) fn accept(&self) -> Result<Option<Receiver>, PortError> {
        self.server.receive();
        let Some(incoming) = self.server.take_incoming() else { return Ok(None) };
        let IncomingConnection { offer, descriptors } = incoming;
        let parts = ConnectionParts::new(&self.server, offer, DroppedEnd::Receiver, descriptors)?;
        Ok(Some(Receiver::new(&self.server, parts)?))
    }

    /// Sends a request that changes the rights or the name of this program.
    pub(crate) fn change(&self, action: &str, request: &Request) -> Result<(), NameError> {
        let deadline = Instant::now() + RESPONSE_TIMEOUT;
        match self.server.request(|| action.to_owned(), request, deadline)?.0 {
            Response::Done => Ok(()),
            _ => Err(NameError::UnexpectedResponse),
        }
    }
}

impl AsFd for Port {
    /// Returns a descriptor that is readable when the name server has sent an unread message, such
    /// as a connection that another process has opened.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.server.as_fd()
    }
}
