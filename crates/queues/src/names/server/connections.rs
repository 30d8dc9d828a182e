//! Requests of processes, and the connections between them.

use super::directory::{Directory, JobId, MemberId, PortId};
use crate::basic::bytes_for;
use crate::id::{NodeName, QueueName, SourceName};
use crate::names::address::{Peer, PortAddress};
use crate::names::config::{MAX_QUEUE_CONNECTIONS, MAX_RING_CONNECTIONS, RING_LINES};
use crate::names::error::Refusal;
use crate::names::table::NameState;
use crate::names::wire::{
    CloseReason, ConnectionOffer, DroppedEnd, Notification, Request, Response, ServerMessage,
    TransportOffer,
};
use crate::receive_queues::Class;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use shm::segment::{Backing, Offset, Segment};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

/// A message to be sent to a process.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) to: MemberId,
    pub(super) bytes: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
    /// The connection that it concerns.
    pub(super) about: Option<(u32, ConnectionNotice)>,
}

/// Subject of an [`Outgoing`] message about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionNotice {
    Opening {
        /// Number of the connection with the preceding messages, or 0.
        after: u32,
    },
    /// The sender has dropped its end, and waits until the receiver has received everything.
    Leaving,
    /// The connection is closed.
    Closing,
    /// No message: the process at the other end closed the connection. A process that has not been
    /// notified of the connection need not be.
    Cancelling,
}

/// Key of a connection. Each has at most one connection, and perhaps an older one through receive
/// queues, from which the receiver still takes messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Route {
    pub(super) from: PortId,
    pub(super) name: QueueName,
    class: Class,
}

#[derive(Debug)]
pub(super) struct LogicalConnection {
    pub(super) route: Route,
    sender: MemberId,
    pub(super) to: PortId,
    pub(super) receiver: MemberId,
    source: SourceName,
    transport: TransportOffer,
    /// The port to which the receiving end moves.
    pub(super) moving: Option<PortId>,
    /// The sender has dropped its end, and the receiver has not yet received all messages.
    is_draining: bool,
}

impl LogicalConnection {
    pub(super) fn has_ring(&self) -> bool {
        matches!(self.transport, TransportOffer::Ring { .. })
    }
}

/// The connections of a route before a new one.
struct PreviousConnection {
    /// The connection that the new one replaces.
    left: Option<u32>,
    /// Number of the connection with the preceding messages, or 0.
    after: u32,
}

/// A look-up that waits until a port is open.
#[derive(Debug)]
struct PendingLookup {
    member: MemberId,
    question: u32,
    place: PortId,
    name: QueueName,
}

/// The directory, the connections, and the messages to be sent.
#[derive(Debug)]
pub(super) struct Connections {
    pub(super) directory: Directory,
    pub(super) connections: HashMap<u32, LogicalConnection>,
    next_connection: u32,
    /// The connection of each route.
    by_route: HashMap<Route, u32>,
    /// The connection of a route before, through receive queues, while it drains.
    draining: HashMap<Route, u32>,
    /// Number of connections through receive queues on which each process sends.
    queue_connections: HashMap<MemberId, usize>,
    waiting: Vec<PendingLookup>,
    outgoing: Vec<Outgoing>,
}

impl Connections {
    pub(super) fn new(node: NodeName) -> Connections {
        Connections {
            directory: Directory::new(node),
            connections: HashMap::new(),
            next_connection: 1,
            by_route: HashMap::new(),
            draining: HashMap::new(),
            queue_connections: HashMap::new(),
            waiting: Vec::new(),
            outgoing: Vec::new(),
        }
    }

    pub(super) fn has_registered(&self, member: MemberId) -> bool {
        self.directory.member(member).is_some()
    }

    /// Takes the messages to be sent.
    pub(super) fn take_dispatches(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.outgoing)
    }

    fn answer(&mut self, to: MemberId, question: u32, answer: Response, descriptors: Vec<OwnedFd>) {
        self.outgoing.push(Outgoing {
            to,
            bytes: ServerMessage::Response(question, answer).encode(),
            descriptors,
            about: None,
        });
    }

    pub(super) fn refuse(&mut self, to: MemberId, question: u32, refusal: Refusal) {
        self.answer(to, question, Response::Refused(refusal), Vec::new());
    }

    pub(super) fn notify(
        &mut self,
        to: MemberId,
        notice: Notification,
        about: Option<(u32, ConnectionNotice)>,
        descriptors: Vec<OwnedFd>,
    ) {
        self.outgoing.push(Outgoing {
            to,
            bytes: ServerMessage::Notification(notice).encode(),
            descriptors,
            about,
        });
    }

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
            _ if self.directory.member(member).is_none() => Err(Refusal::NotUnderstood),
            Request::OpenPort { port } => self.open_port(member, question, port),
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
        let (here, there) = match receive_queues {
            Some(receive_queues) => {
                (vec![copy(&receive_queues.memory)?, copy(&receive_queues.event)?], Vec::new())
            }
            None => create_ring()?,
        };
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
            is_draining: false,
        };
        let number = self.next_connection;
        self.next_connection = number.checked_add(1).unwrap_or(1);
        let answer = Response::Connection(self.offer(number, &connection, receiver));
        let offer = self.offer(number, &connection, member);
        let notice = Notification::ConnectionOpened { port: to.port, position: 0, after, offer };
        // First the receiver, so that it knows the connection when the first message arrives.
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

    /// Returns the number of connections with rings of a process.
    fn ring_connections_of(&self, member: MemberId) -> usize {
        let is_its = |connection: &&LogicalConnection| {
            connection.has_ring() && (connection.sender == member || connection.receiver == member)
        };
        self.connections.values().filter(is_its).count()
    }

    fn offer(
        &self,
        number: u32,
        connection: &LogicalConnection,
        peer: MemberId,
    ) -> ConnectionOffer {
        let peer = match self.directory.member(peer) {
            Some(member) => Peer {
                job: self.directory.job_name(member.job).to_owned(),
                process: member.process,
                pid: member.pid,
            },
            None => Peer { job: String::new(), process: 0, pid: 0 },
        };
        ConnectionOffer {
            connection: number,
            transport: connection.transport,
            class: connection.route.class,
            source: connection.source,
            peer,
        }
    }

    fn insert(&mut self, number: u32, connection: LogicalConnection) {
        if !connection.has_ring() {
            *self.queue_connections.entry(connection.sender).or_default() += 1;
        }
        self.by_route.insert(connection.route, number);
        self.connections.insert(number, connection);
    }

    fn remove(&mut self, number: u32) -> Option<LogicalConnection> {
        let removed = self.connections.remove(&number)?;
        let routes = if removed.is_draining { &mut self.draining } else { &mut self.by_route };
        routes.remove(&removed.route);
        if !removed.has_ring()
            && let Some(connections) = self.queue_connections.get_mut(&removed.sender)
        {
            *connections -= 1;
            if *connections == 0 {
                self.queue_connections.remove(&removed.sender);
            }
        }
        Some(removed)
    }

    /// Closes a connection of which one end was dropped. The other end observes that in the ring;
    /// of a connection through receive queues it is notified.
    fn close_by(&mut self, member: MemberId, number: u32, dropped: DroppedEnd) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let (own, other) = if dropped.is_receiver() {
            (connection.receiver, connection.sender)
        } else {
            (connection.sender, connection.receiver)
        };
        if own != member || connection.is_draining && !dropped.is_receiver() {
            return;
        }
        if connection.has_ring() {
            self.remove(number);
            if !dropped.is_receiver() {
                let about = Some((number, ConnectionNotice::Cancelling));
                self.outgoing.push(Outgoing {
                    to: other,
                    bytes: Vec::new(),
                    descriptors: Vec::new(),
                    about,
                });
            }
            return;
        }
        let about = if dropped.is_receiver() {
            self.remove(number);
            ConnectionNotice::Closing
        } else {
            connection.is_draining = true;
            let route = connection.route;
            self.by_route.remove(&route);
            self.draining.insert(route, number);
            ConnectionNotice::Leaving
        };
        let why = if dropped == DroppedEnd::SenderGoesOn {
            CloseReason::Replaced
        } else {
            CloseReason::Left
        };
        self.notify(
            other,
            Notification::ConnectionClosed { connection: number, why },
            Some((number, about)),
            Vec::new(),
        );
    }

    /// Closes connections and notifies both ends, if their processes are registered.
    pub(super) fn close_where(
        &mut self,
        why: CloseReason,
        is_concerned: impl Fn(&LogicalConnection, &Directory) -> bool,
    ) {
        let concerned = |connection: &&LogicalConnection| is_concerned(connection, &self.directory);
        let mut numbers: Vec<u32> = self
            .connections
            .iter()
            .filter(|(_, connection)| concerned(connection))
            .map(|(&number, _)| number)
            .collect();
        // The newest first: its receiver needs the number of the connection that precedes it
        // until the newer one is removed.
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        for number in numbers {
            let Some(connection) = self.remove(number) else { continue };
            let notice = Notification::ConnectionClosed { connection: number, why };
            // A process that has not been notified of a connection need not be notified of its end.
            let about = Some((number, ConnectionNotice::Closing));
            for end in [connection.sender, connection.receiver] {
                if self.directory.member(end).is_some() {
                    self.notify(end, notice.clone(), about, Vec::new());
                }
            }
        }
    }

    fn close_refused(&mut self) {
        self.close_where(CloseReason::Refused, |connection, directory| {
            directory.owner(connection.to).is_some_and(|(_, open)| !open.accepts(connection.source))
        });
    }

    /// Passes a receiving end, which its owner has returned, to another process.
    fn pass_on(&mut self, member: MemberId, number: u32, position: u64, descriptors: Vec<OwnedFd>) {
        let Some(connection) =
            self.connections.get_mut(&number).filter(|connection| connection.receiver == member)
        else {
            return;
        };
        let target =
            connection.moving.take().and_then(|to| Some((to, self.directory.owner(to)?.0)));
        let (Some((to, receiver)), 2) = (target, descriptors.len()) else {
            // There is no target. The descriptors are closed here, which the sender observes.
            self.remove(number);
            return;
        };
        (connection.to, connection.receiver) = (to, receiver);
        let sender = connection.sender;
        let connection = &self.connections[&number];
        let offer = self.offer(number, connection, sender);
        let notice = Notification::ConnectionOpened { port: to.port, position, after: 0, offer };
        self.notify(
            receiver,
            notice,
            Some((number, ConnectionNotice::Opening { after: 0 })),
            descriptors,
        );
    }

    /// Removes a process that has ended or closed its socket.
    pub(super) fn leave(&mut self, member: MemberId) {
        self.waiting.retain(|waiting| waiting.member != member);
        // The ends are collected first: they are notified before their tables report the exit.
        let gone = self.directory.member(member).is_some();
        self.directory.leave(member);
        if gone {
            self.close_where(CloseReason::Gone, |connection, _| {
                connection.sender == member || connection.receiver == member
            });
        }
    }
}

fn copy(of: &impl AsFd) -> Result<OwnedFd, Refusal> {
    of.as_fd().try_clone_to_owned().map_err(Refusal::system)
}

/// Creates the descriptors of a ring: memory and socket for the sender, and for the receiver.
fn create_ring() -> Result<(Vec<OwnedFd>, Vec<OwnedFd>), Refusal> {
    let bytes = bytes_for(RING_LINES.into()).map_err(Refusal::system)?;
    let segment = Segment::create(bytes, Backing::Memory).map_err(Refusal::system)?;
    segment.commit(Offset(0), bytes).map_err(Refusal::system)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(Refusal::system)?;
    Ok((vec![copy(&segment)?, here], vec![copy(&segment)?, there]))
}
