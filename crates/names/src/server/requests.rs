//! Requests of clients.

use super::connections::{ConnectionNotice, Connections, LogicalConnection, PendingLookup};
use super::records::{ClientId, ProgramId};
use super::relay_request::{Opener, RelayRequest};
use crate::connection::fill_percent;
use crate::table::NameState;
use crate::wire::{
    CloseReason, MAX_CONNECTIONS, NameEntry, Notification, ProgramKey, RING_LINES, Refusal,
    Request, Response,
};
use queues::basic::bytes_for;
use queues::id::QueueName;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use shm::segment::{Backing, Offset, Segment};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::SystemTime;

impl Connections {
    /// Executes a request of a process.
    pub(super) fn handle(
        &mut self,
        client: ClientId,
        pid: u32,
        question: u32,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) {
        if let Err(refusal) = self.execute(client, pid, question, request, descriptors) {
            self.refuse(client, question, refusal);
        }
    }

    fn execute(
        &mut self,
        client: ClientId,
        pid: u32,
        question: u32,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Refusal> {
        match request {
            Request::Add { name, .. } => {
                let (program, key) = self.directory.add(&name, pid)?;
                // A client owns at most one program: the server refuses a second request of this
                // kind, as it refuses to open a second program.
                self.owners.insert(client, program);
                self.answer(client, question, Response::Added { key }, Vec::new());
                return Ok(());
            }
            Request::Open { name, key, started } => {
                let program = self.directory.open(client, &name, key, (pid, started))?;
                return self.welcome(client, question, program);
            }
            Request::Next { after } => {
                let response = self.entry_after(&after).map_or(Response::Done, Response::Entry);
                self.answer(client, question, response, Vec::new());
                return Ok(());
            }
            Request::Listen { key } => return self.listen(client, question, key, descriptors),
            _ => {}
        }
        // All other requests are those of registered processes.
        let from = self.directory.opened_by(client).ok_or(Refusal::NotUnderstood)?;
        match request {
            Request::LookUp { program, waits } => {
                return self.look_up((client, from), question, &program, waits);
            }
            Request::Connect { name } => return self.connect((client, from), question, name),
            Request::OpenRemote { program, node, key } => {
                let local = self.directory.program(from).ok_or(Refusal::NotUnderstood)?;
                let opener = Opener { client, question, local: local.name.clone(), program };
                // The relay answers.
                self.relay_requests.push(RelayRequest::Open { node, key, opener });
                return Ok(());
            }
            Request::Close { connection, dropped } => {
                self.close_by(client, connection, dropped);
                return Ok(());
            }
            Request::Refuse { name } => {
                self.directory.exclude(from, name, true)?;
                self.close_where(CloseReason::Refused, |connection, directory| {
                    connection.to == from && directory.excludes(from, connection.from)
                });
            }
            Request::Admit { name } => self.directory.exclude(from, name, false)?,
            Request::Move { to } => self.directory.move_names(from, &to)?,
            _ => return Err(Refusal::NotUnderstood),
        }
        self.answer(client, question, Response::Done, Vec::new());
        Ok(())
    }

    /// Answers a process that has opened a program, and the look-ups that have waited for it.
    fn welcome(
        &mut self,
        client: ClientId,
        question: u32,
        program: ProgramId,
    ) -> Result<(), Refusal> {
        // The tables of all senders lead to the program already. Connections that they open before
        // the response arrives come after it, in the order of the events.
        let process = self.directory.process(program).ok_or(Refusal::NotUnderstood)?;
        let table = copy(&process.table)?;
        self.answer(client, question, Response::Opened, vec![table]);
        let served = self.waiting.extract_if(.., |waiting| waiting.program == program);
        for PendingLookup { client, question, name, .. } in served.collect::<Vec<_>>() {
            self.answer(client, question, Response::Named { name }, Vec::new());
        }
        Ok(())
    }

    fn look_up(
        &mut self,
        (client, from): (ClientId, ProgramId),
        question: u32,
        program: &str,
        waits: bool,
    ) -> Result<(), Refusal> {
        let program = self.directory.by_name(program).ok_or(Refusal::UnknownProgram)?;
        let name = self.directory.look_up(from, program)?;
        if waits && self.directory.process(program).is_none() {
            // A client that abandoned its request may repeat it: one look-up per process and program
            // is kept.
            self.waiting.retain(|waiting| (waiting.client, waiting.program) != (client, program));
            self.waiting.push(PendingLookup { client, question, program, name });
        } else {
            self.answer(client, question, Response::Named { name }, Vec::new());
        }
        Ok(())
    }

    fn connect(
        &mut self,
        (sender, from): (ClientId, ProgramId),
        question: u32,
        name: QueueName,
    ) -> Result<(), Refusal> {
        // The same state as in the sender's table, computed anew: the request may be older than the
        // last change, and the table is only a copy.
        let source = match self.directory.name_state(from, name)? {
            NameState::Open(source) => source,
            NameState::Unknown => return Err(Refusal::UnknownName),
            NameState::Excluded => return Err(Refusal::Excluded),
            NameState::Gone => return Err(Refusal::ProcessGone),
        };
        let to = self.directory.meaning(from, name).ok_or(Refusal::UnknownName)?;
        let receiver = self.directory.process(to).ok_or(Refusal::UnknownName)?.client;
        if self.directory.program(to).is_none_or(|program| program.is_closed) {
            return Err(Refusal::Closed);
        }
        if self.has_connection(from, name) {
            return Err(Refusal::ConnectionOpen);
        }
        if [sender, receiver].iter().any(|end| self.connections_of(*end) >= MAX_CONNECTIONS) {
            return Err(Refusal::TooManyConnections);
        }
        let (ring, here, there) = create_ring()?;
        let number = self.next_number();
        let answer = Response::Connection(self.offer(number, source, to));
        let notification = Notification::Connected(self.offer(number, source, from));
        // First the receiver, so that it has the connection when the first message arrives.
        self.notify(receiver, notification, (number, ConnectionNotice::Opening), there);
        self.answer(sender, question, answer, here);
        let connection = LogicalConnection { from, name, sender, to, receiver, ring };
        self.connections.insert(number, connection);
        Ok(())
    }

    /// Listens to other nodes at a socket until the client leaves.
    fn listen(
        &mut self,
        client: ClientId,
        question: u32,
        key: ProgramKey,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Refusal> {
        let [socket] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| Refusal::NotUnderstood)?;
        if !sockopt::socket_acceptconn(&socket).is_ok_and(|listens| listens) {
            let why = "the descriptor is no socket that listens".to_owned();
            return Err(Refusal::Invalid { why });
        }
        if !self.listeners.insert(client) {
            return Err(Refusal::NotUnderstood);
        }
        let listener = TcpListener::from(socket);
        // The relay answers when it listens.
        self.relay_requests.push(RelayRequest::Listen { client, question, listener, key });
        Ok(())
    }

    /// Describes the first published name after this one.
    fn entry_after(&self, name: &str) -> Option<NameEntry> {
        let (name, id, program) = self.directory.published_after(name)?;
        let is_its = |connection: &&LogicalConnection| connection.to == id;
        let incoming = || self.connections.values().filter(is_its);
        let since = program.since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Some(NameEntry {
            name: name.to_owned(),
            pid: program.process().map_or(program.pid, |process| process.pid),
            since: since.as_secs(),
            connections: incoming().count() as u32,
            fullest: incoming().map(|connection| fill_percent(&connection.ring)).max().unwrap_or(0),
        })
    }
}

fn copy(of: &impl AsFd) -> Result<OwnedFd, Refusal> {
    of.as_fd().try_clone_to_owned().map_err(Refusal::system)
}

/// Memory and socket of one end.
type RingEnd = Vec<OwnedFd>;

/// Creates a ring, and its descriptors for the sender and the receiver.
fn create_ring() -> Result<(Arc<Segment>, RingEnd, RingEnd), Refusal> {
    let bytes = bytes_for(RING_LINES.into()).map_err(Refusal::system)?;
    let segment = Segment::create(bytes, Backing::Memory).map_err(Refusal::system)?;
    segment.commit(Offset(0), bytes).map_err(Refusal::system)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(Refusal::system)?;
    let here = vec![copy(&segment)?, here];
    let there = vec![copy(&segment)?, there];
    Ok((Arc::new(segment), here, there))
}
