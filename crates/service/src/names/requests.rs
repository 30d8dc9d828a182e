//! Requests of clients.

use super::connections::{ConnectionNotice, Connections, LogicalConnection, PendingLookup, Route};
use super::records::{JobId, MemberId, PortId};
use super::relay_request::{Opener, RelayRequest};
use queues::basic::bytes_for;
use queues::connection::fill_percent;
use queues::id::QueueName;
use queues::names::wire::{DroppedEnd, JobEntry, Notification, Request, Response, TransportOffer};
use queues::names::{
    JobConfig, JobKey, MAX_QUEUE_CONNECTIONS, MAX_RING_CONNECTIONS, NameError, NameState,
    PortAddress, RING_LINES, Refusal,
};
use queues::receive_queues::Class;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use shm::segment::{Backing, Offset, Segment};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::SystemTime;

/// The connections of a route before a new one.
struct PreviousConnection {
    /// The connection that the new one replaces.
    left: Option<u32>,
    /// Number of the connection with the preceding messages, or 0.
    after: u32,
}

impl Connections {
    /// Executes a request.
    pub(super) fn handle(
        &mut self,
        member: MemberId,
        pid: u32,
        question: u32,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) {
        let outcome = match request {
            Request::Register { job, process, key, .. } => self
                .directory
                .register(member, &job, process, key, pid)
                .and_then(|job| self.welcome(member, question, job)),
            Request::AddJob { config, .. } => self.add_owned_job(member, pid, question, config),
            Request::NextJob { after } => {
                self.describe_job_after(member, question, &after);
                Ok(())
            }
            Request::SetRight { .. }
            | Request::Revoke { .. }
            | Request::Repoint { .. }
            | Request::MovePort { .. } => self
                .change_owned_job(member, request)
                .map(|()| self.answer(member, question, Response::Done, Vec::new())),
            Request::Listen { key } => self.listen(member, question, key, descriptors),
            // All other requests are those of registered processes.
            _ if self.directory.member(member).is_none() => Err(Refusal::NotUnderstood),
            Request::OpenPort { port } => self.open_port(member, question, port),
            Request::OpenRemote { job, node, key } => {
                self.open_remote(member, question, job, node, key)
            }
            Request::LookUp { address, wait } => self.look_up(member, question, &address, wait),
            Request::OpenConnection { port, name, class, dedicated } => {
                self.open_connection(member, question, port, (name, class), dedicated)
            }
            Request::Accept { port, filter } => {
                self.directory.accept(member, port, filter).map(|()| {
                    self.close_refused();
                    self.answer(member, question, Response::Done, Vec::new());
                })
            }
            Request::CloseConnection { connection, dropped } => {
                self.close_by(member, connection, dropped);
                Ok(())
            }
            Request::HandOver { connection, position } => {
                self.pass_on(member, connection, position, descriptors);
                Ok(())
            }
        };
        if let Err(refusal) = outcome {
            self.refuse(member, question, refusal);
        }
    }

    fn welcome(&mut self, member: MemberId, question: u32, job: JobId) -> Result<(), Refusal> {
        let mut descriptors: Vec<OwnedFd> =
            self.directory.segment(job).map(copy).transpose()?.into_iter().collect();
        if let Some(receive_queues) =
            self.directory.member(member).and_then(|member| member.receive_queues.as_ref())
        {
            descriptors.extend([copy(&receive_queues.memory)?, copy(&receive_queues.event)?]);
        }
        let answer = Response::Registered {
            ports: self.directory.ports(job),
            resident: self.directory.resident(job),
        };
        self.answer(member, question, answer, descriptors);
        Ok(())
    }

    fn open_port(&mut self, member: MemberId, question: u32, port: u16) -> Result<(), Refusal> {
        // From here on the tables of all senders lead to the port. Connections that they open before
        // the response below arrive in the client's socket after it, in the order of the events.
        let place = self.directory.open_port(member, port)?;
        let name = self.directory.name(place.job, place)?;
        let Some((_, open)) = self.directory.owner(place) else { return Err(Refusal::PortNotOpen) };
        let answer = Response::PortOpened { name, queue: open.queue() };
        let descriptors = vec![copy(&open.table)?, copy(&open.sources)?];
        self.answer(member, question, answer, descriptors);
        let (served, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiting: &PendingLookup| waiting.place == place);
        self.waiting = waiting;
        let served: Vec<PendingLookup> = served;
        for PendingLookup { member, question, name, .. } in served {
            self.answer(member, question, Response::Named { name }, Vec::new());
        }
        Ok(())
    }

    fn look_up(
        &mut self,
        member: MemberId,
        question: u32,
        address: &PortAddress,
        wait: bool,
    ) -> Result<(), Refusal> {
        let job = self.directory.member(member).ok_or(Refusal::NotUnderstood)?.job;
        let place = self.directory.place(address)?;
        let name = self.directory.look_up(job, place)?;
        if wait && self.directory.owner(place).is_none() {
            // A client that abandoned its request may repeat it: one look-up per process and port
            // is kept.
            self.waiting.retain(|waiting| (waiting.member, waiting.place) != (member, place));
            self.waiting.push(PendingLookup { member, question, place, name });
        } else {
            self.answer(member, question, Response::Named { name }, Vec::new());
        }
        Ok(())
    }

    fn open_connection(
        &mut self,
        member: MemberId,
        question: u32,
        port: u16,
        (name, class): (QueueName, Class),
        dedicated: bool,
    ) -> Result<(), Refusal> {
        let record = self.directory.member(member).ok_or(Refusal::NotUnderstood)?;
        if !record.ports.contains_key(&port) {
            return Err(Refusal::PortNotOpen);
        }
        let from = PortId { job: record.job, process: record.process, port };
        // The same state as in the sender's table, computed anew: the request may be older than the
        // last change, and the table is only the server's copy of the rules.
        let source = match self.directory.name_state(from, name)? {
            NameState::Open { source, .. } => source,
            NameState::Unknown => return Err(Refusal::UnknownName),
            NameState::Revoked => return Err(Refusal::RevokedName),
            NameState::Gone => return Err(Refusal::ProcessGone),
        };
        let to = self.directory.meaning(from.job, name).ok_or(Refusal::UnknownName)?;
        let (receiver, open) = self.directory.owner(to).ok_or(Refusal::UnknownName)?;
        if !open.accepts(source) {
            return Err(Refusal::SourceRefused);
        }
        let queue = open.queue();
        let route = Route { from, name, class };
        let PreviousConnection { left, after } = self.before(route, dedicated, (to, receiver))?;
        let receive_queues =
            self.directory.member(receiver).and_then(|member| member.receive_queues.as_ref());
        let receive_queues = receive_queues.filter(|_| !dedicated && from.job == to.job);
        let transport = match receive_queues {
            Some(_) => TransportOffer::Queue { member: receiver, port: to.port, queue },
            None => TransportOffer::Ring { lines: RING_LINES },
        };
        let is_too_many = match receive_queues {
            Some(_) => self
                .queue_connections
                .get(&member)
                .is_some_and(|connections| *connections >= MAX_QUEUE_CONNECTIONS),
            None => {
                self.ring_connections_of(member) >= MAX_RING_CONNECTIONS
                    || self.ring_connections_of(receiver) >= MAX_RING_CONNECTIONS
            }
        };
        if is_too_many {
            return Err(Refusal::TooManyConnections);
        }
        let (ring, here, there) = match receive_queues {
            Some(receive_queues) => {
                let here = vec![copy(&receive_queues.memory)?, copy(&receive_queues.event)?];
                (None, here, Vec::new())
            }
            None => create_ring()?,
        };
        // Nothing can fail from here on, so the former connection is closed only for a new one.
        if let Some(left) = left {
            self.close_by(member, left, DroppedEnd::SenderGoesOn);
        }
        let connection = LogicalConnection {
            route,
            sender: member,
            to,
            receiver,
            source,
            transport,
            moving: None,
            ring,
            is_draining: false,
        };
        let number = self.next_number();
        let answer = Response::Connection(self.offer(number, &connection, receiver));
        let offer = self.offer(number, &connection, member);
        let notice = Notification::ConnectionOpened { port: to.port, position: 0, after, offer };
        // First the receiver, so that it has the connection when the first message arrives.
        self.notify(receiver, notice, Some((number, ConnectionNotice::Opening { after })), there);
        self.answer(member, question, answer, here);
        self.insert(number, connection);
        Ok(())
    }

    /// Returns the connections of a route before a new one, or the refusal of the new one.
    fn before(
        &self,
        route: Route,
        dedicated: bool,
        new: (PortId, MemberId),
    ) -> Result<PreviousConnection, Refusal> {
        let left = self.by_route.get(&route).copied();
        // Only a connection through receive queues is replaced, by one with a ring.
        let is_to_leave = |number| {
            dedicated
                && self.connections.get(number).is_some_and(|connection| !connection.has_ring())
        };
        if left.as_ref().is_some_and(|number| !is_to_leave(number)) {
            return Err(Refusal::ConnectionOpen);
        }
        // The messages sent before come first. The same receiver ensures that itself.
        let before = left.or_else(|| self.draining.get(&route).copied());
        match before.and_then(|number| Some((number, self.connections.get(&number)?))) {
            None => Ok(PreviousConnection { left, after: 0 }),
            Some((after, connection))
                if dedicated && (connection.to, connection.receiver) == new =>
            {
                Ok(PreviousConnection { left, after })
            }
            Some(_) => Err(Refusal::Moving),
        }
    }

    /// Adds a job for a client, which owns it until it leaves.
    fn add_owned_job(
        &mut self,
        client: MemberId,
        pid: u32,
        question: u32,
        config: JobConfig,
    ) -> Result<(), Refusal> {
        let (job, key) = self.directory.add_owned_job(config, pid).map_err(refusal_of)?;
        // A client owns at most one job: the server refuses a second request of this kind, as it
        // refuses a second registration.
        self.owners.insert(client, job);
        self.answer(client, question, Response::JobAdded { key }, Vec::new());
        Ok(())
    }

    /// Requests a connection with a job on another node. The relay answers.
    fn open_remote(
        &mut self,
        member: MemberId,
        question: u32,
        job: String,
        node: String,
        key: JobKey,
    ) -> Result<(), Refusal> {
        let record = self.directory.member(member).ok_or(Refusal::NotUnderstood)?;
        let job_name = self.directory.job_name(record.job);
        let client = PortAddress::new(job_name, record.process, 0);
        let opener = Opener { member, question, client, job };
        self.relay_requests.push(RelayRequest::Open { node, key, opener });
        Ok(())
    }

    /// Listens to other nodes at a socket until the client leaves.
    fn listen(
        &mut self,
        client: MemberId,
        question: u32,
        key: JobKey,
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

    /// Describes the first job after this name that admits all others.
    fn describe_job_after(&mut self, client: MemberId, question: u32, name: &str) {
        let Some((job, record)) = self.directory.open_job_after(name) else {
            return self.answer(client, question, Response::Done, Vec::new());
        };
        let is_its = |connection: &&LogicalConnection| connection.to.job == job;
        let incoming = || self.connections.values().filter(is_its);
        let rings = incoming().filter_map(|connection| connection.ring.as_ref());
        let since = record.since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let entry = JobEntry {
            name: record.plan.name.clone(),
            pid: self.directory.program_of(record),
            since: since.as_secs(),
            connections: incoming().count() as u32,
            fullest: rings.map(fill_percent).max().unwrap_or(0),
        };
        self.answer(client, question, Response::Job(entry), Vec::new());
    }

    /// Executes a request of the owner of a job. It concerns that job only: the right to send to
    /// it, its names, and its ports.
    fn change_owned_job(&mut self, client: MemberId, request: Request) -> Result<(), Refusal> {
        let job = *self.owners.get(&client).ok_or(Refusal::NotUnderstood)?;
        // Each operation below is bound to `own`, so an owner cannot name another job's names.
        let own = self.directory.job_name(job).to_owned();
        let outcome = match request {
            Request::SetRight { from, may } => self.set_right(&from, &own, may),
            Request::Revoke { name } => self.revoke(&own, name),
            Request::Repoint { name, to } => self.repoint(&own, name, &to),
            // The target is a port of the same job as the source.
            Request::MovePort { from, to } if from.job == own => self.move_port(&from, &to),
            Request::MovePort { .. } => return Err(Refusal::NoRight),
            _ => return Err(Refusal::NotUnderstood),
        };
        outcome.map_err(refusal_of)
    }
}

/// Converts the error of an operation into the refusal of the request for it.
fn refusal_of(error: NameError) -> Refusal {
    match error {
        NameError::UnknownJob { .. } => Refusal::UnknownJob,
        NameError::JobExists { pid, .. } => Refusal::JobExists { pid },
        NameError::Config { why, .. } => Refusal::Invalid { why: why.to_owned() },
        NameError::UnknownName { .. } | NameError::Address { .. } => {
            Refusal::Invalid { why: error.to_string() }
        }
        error => Refusal::system(error),
    }
}

fn copy(of: &impl AsFd) -> Result<OwnedFd, Refusal> {
    of.as_fd().try_clone_to_owned().map_err(Refusal::system)
}

/// Memory of a ring, if the connection has one, and the descriptors for the sender and the receiver.
type TransportParts = (Option<Arc<Segment>>, Vec<OwnedFd>, Vec<OwnedFd>);

/// Creates a ring, and its descriptors: memory and socket for the sender, and for the receiver.
fn create_ring() -> Result<TransportParts, Refusal> {
    let bytes = bytes_for(RING_LINES.into()).map_err(Refusal::system)?;
    let segment = Segment::create(bytes, Backing::Memory).map_err(Refusal::system)?;
    segment.commit(Offset(0), bytes).map_err(Refusal::system)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(Refusal::system)?;
    let ends = [here, there].map(|socket| Ok(vec![copy(&segment)?, socket]));
    let [here, there] = ends;
    Ok((Some(Arc::new(segment)), here?, there?))
}
