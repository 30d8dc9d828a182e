//! The connections between processes, and the messages to be sent to them.

use super::directory::Directory;
use super::records::{JobId, MemberId, PortId};
use super::relay_request::RelayRequest;
use queues::connection::fill_percent;
use queues::id::{NodeName, QueueName, SourceName};
use queues::names::wire::{
    CloseReason, ConnectionOffer, DroppedEnd, Notification, Response, ServerMessage, SourceFilter,
    TransportOffer,
};
use queues::names::{Peer, Refusal};
use queues::receive_queues::Class;
use shm::segment::Segment;
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

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
    Closing {
        /// Its ring holds messages that the receiver has not received.
        has_unread: bool,
    },
    /// No message: the process at the other end closed the connection. A process that has not been
    /// notified of the connection need not be, unless there are messages for it.
    Cancelling {
        /// As in `Closing`.
        has_unread: bool,
    },
}

/// Key of a connection. Each has at most one connection, and perhaps an older one through receive
/// queues, from which the receiver still takes messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Route {
    pub(super) from: PortId,
    pub(super) name: QueueName,
    pub(super) class: Class,
}

#[derive(Debug)]
pub(super) struct LogicalConnection {
    pub(super) route: Route,
    pub(super) sender: MemberId,
    pub(super) to: PortId,
    pub(super) receiver: MemberId,
    pub(super) source: SourceName,
    pub(super) transport: TransportOffer,
    /// Memory of the ring, to observe its fill.
    pub(super) ring: Option<Arc<Segment>>,
    /// The port to which the receiving end moves.
    pub(super) moving: Option<PortId>,
    /// The sender has dropped its end, and the receiver has not yet received all messages.
    pub(super) is_draining: bool,
}

impl LogicalConnection {
    pub(super) fn has_ring(&self) -> bool {
        matches!(self.transport, TransportOffer::Ring { .. })
    }

    /// Returns true if the ring holds messages that have not been received.
    fn has_unread(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| fill_percent(ring) > 0)
    }
}

/// A look-up that waits until a port is open.
#[derive(Debug)]
pub(super) struct PendingLookup {
    pub(super) member: MemberId,
    pub(super) question: u32,
    pub(super) place: PortId,
    pub(super) name: QueueName,
}

/// The directory, the connections, and the messages to be sent.
#[derive(Debug)]
pub(super) struct Connections {
    pub(super) directory: Directory,
    pub(super) connections: HashMap<u32, LogicalConnection>,
    /// Jobs of connected owners.
    pub(super) owners: HashMap<MemberId, JobId>,
    next_connection: u32,
    /// The connection of each route.
    pub(super) by_route: HashMap<Route, u32>,
    /// The connection of a route before, through receive queues, while it drains.
    pub(super) draining: HashMap<Route, u32>,
    /// Number of connections through receive queues on which each process sends.
    pub(super) queue_connections: HashMap<MemberId, usize>,
    pub(super) waiting: Vec<PendingLookup>,
    /// Clients for which the server listens to other nodes.
    pub(super) listeners: HashSet<MemberId>,
    /// Number of connections with name servers of other nodes.
    pub(super) links: usize,
    pub(super) relay_requests: Vec<RelayRequest>,
    outgoing: Vec<Outgoing>,
}

impl Connections {
    pub(super) fn new(node: NodeName) -> Connections {
        Connections {
            directory: Directory::new(node),
            connections: HashMap::new(),
            owners: HashMap::new(),
            next_connection: 1,
            by_route: HashMap::new(),
            draining: HashMap::new(),
            queue_connections: HashMap::new(),
            waiting: Vec::new(),
            listeners: HashSet::new(),
            links: 0,
            relay_requests: Vec::new(),
            outgoing: Vec::new(),
        }
    }

    /// Returns true if a client is a registered process or owns a job.
    pub(super) fn has_registered(&self, client: MemberId) -> bool {
        self.directory.member(client).is_some() || self.owners.contains_key(&client)
    }

    /// Returns true if a process is registered, the owner of a job is connected, or the server
    /// listens to other nodes or is connected with one.
    pub(super) fn is_used(&self) -> bool {
        self.directory.has_members()
            || !self.owners.is_empty()
            || !self.listeners.is_empty()
            || self.links > 0
    }

    /// Takes the messages to be sent.
    pub(super) fn take_dispatches(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.outgoing)
    }

    pub(super) fn answer(
        &mut self,
        to: MemberId,
        question: u32,
        answer: Response,
        descriptors: Vec<OwnedFd>,
    ) {
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

    /// Returns the number of connections with rings of a process.
    pub(super) fn ring_connections_of(&self, member: MemberId) -> usize {
        let is_its = |connection: &&LogicalConnection| {
            connection.has_ring() && (connection.sender == member || connection.receiver == member)
        };
        self.connections.values().filter(is_its).count()
    }

    pub(super) fn offer(
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

    /// Returns the number of the next connection. Zero stands for none.
    pub(super) fn next_number(&mut self) -> u32 {
        let number = self.next_connection;
        self.next_connection = number.checked_add(1).unwrap_or(1);
        number
    }

    pub(super) fn insert(&mut self, number: u32, connection: LogicalConnection) {
        if !connection.has_ring() {
            *self.queue_connections.entry(connection.sender).or_default() += 1;
        }
        self.by_route.insert(connection.route, number);
        self.connections.insert(number, connection);
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<LogicalConnection> {
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
    pub(super) fn close_by(&mut self, member: MemberId, number: u32, dropped: DroppedEnd) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let (own, other) = if dropped.is_receiver() {
            (connection.receiver, connection.sender)
        } else {
            (connection.sender, connection.receiver)
        };
        // A client may name any connection. It can only close its own ends, and a sender only once.
        if own != member || connection.is_draining && !dropped.is_receiver() {
            return;
        }
        if connection.has_ring() {
            // The other end observes the closed socket, after the messages that are in the ring.
            let has_unread = connection.has_unread();
            self.remove(number);
            if !dropped.is_receiver() {
                let about = Some((number, ConnectionNotice::Cancelling { has_unread }));
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
            ConnectionNotice::Closing { has_unread: false }
        } else {
            // The receiver may still have messages of it. The connection leaves its route, so that
            // the sender can open another; it stays in `draining`, which orders the two.
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
            // Messages of a process that has ended are still received; those of a revoked
            // connection are not.
            let has_unread = why == CloseReason::Gone && connection.has_unread();
            let about = Some((number, ConnectionNotice::Closing { has_unread }));
            for end in [connection.sender, connection.receiver] {
                if self.directory.member(end).is_some() {
                    self.notify(end, notice.clone(), about, Vec::new());
                }
            }
        }
    }

    pub(super) fn close_refused(&mut self) {
        self.close_where(CloseReason::Refused, |connection, directory| {
            directory.owner(connection.to).is_some_and(|(_, open)| !open.accepts(connection.source))
        });
    }

    /// Passes a receiving end, which its owner has returned, to another process.
    pub(super) fn pass_on(
        &mut self,
        member: MemberId,
        number: u32,
        position: u64,
        descriptors: Vec<OwnedFd>,
    ) {
        let Some(connection) =
            self.connections.get_mut(&number).filter(|connection| connection.receiver == member)
        else {
            return;
        };
        let target =
            connection.moving.take().and_then(|to| Some((to, self.directory.owner(to)?.0)));
        // A client that moves no connection, or sends other descriptors, loses its own end only.
        let (Some((to, receiver)), 2) = (target, descriptors.len()) else {
            // There is no target. The descriptors are closed here, which the sender observes.
            self.remove(number);
            return;
        };
        // The sender is not notified: its ring and its socket stay the same, and the new receiver
        // continues at `position`. A wrong position harms the job of both receivers only.
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

    /// Closes the connections of a job.
    pub(super) fn close_job(&mut self, job: &str, why: CloseReason) {
        if let Some(job) = self.directory.job(job) {
            self.close_where(why, |connection, _| {
                connection.route.from.job == job || connection.to.job == job
            });
        }
    }

    /// Closes the connections to a job, which has one port, and refuses new ones. Its own
    /// connections to others continue.
    pub(super) fn stop_receiving(&mut self, job: &str, why: CloseReason) {
        let Some(job) = self.directory.job(job) else { return };
        self.close_where(why, |connection, _| connection.to.job == job);
        let port = PortId { job, process: 0, port: 0 };
        if let Some((member, _)) = self.directory.owner(port)
            && let Err(refusal) = self.directory.accept(member, 0, SourceFilter::Nothing)
        {
            log::warn!("a program may send to one that has ended: {refusal}");
        }
    }

    /// Removes a client that has ended or closed its socket.
    pub(super) fn leave(&mut self, client: MemberId) {
        if self.listeners.remove(&client) {
            self.relay_requests.push(RelayRequest::StopListening { client });
        }
        self.waiting.retain(|waiting| waiting.member != client);
        // First the tables, then the notices: a sender that is notified of the end finds it in its
        // table too, and opens no connection to the former process.
        let job = self.directory.leave(client);
        if let Some(job) = job {
            self.close_where(CloseReason::Gone, |connection, _| {
                connection.sender == client || connection.receiver == client
            });
            if self.directory.remove_if_unused(job) {
                self.refuse_lookups(job);
            }
        }
        // Processes of the job may outlive its owner; the last of them removes the job above.
        if let Some(job) = self.owners.remove(&client)
            && self.directory.release_job(job)
        {
            self.refuse_lookups(job);
        }
    }

    /// Answers the look-ups that wait for ports of a job that has been removed.
    fn refuse_lookups(&mut self, job: JobId) {
        let lookups = self.waiting.extract_if(.., |waiting| waiting.place.job == job);
        for PendingLookup { member, question, .. } in lookups.collect::<Vec<_>>() {
            self.refuse(member, question, Refusal::UnknownJob);
        }
    }
}
