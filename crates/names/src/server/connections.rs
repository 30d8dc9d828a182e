//! The connections between processes, and the messages to be sent to them.

use super::directory::Directory;
use super::records::{ClientId, ProgramId};
use super::relay_request::RelayRequest;
use crate::connection::fill_percent;
use crate::wire::{
    CloseReason, ConnectionOffer, DroppedEnd, Notification, Peer, Refusal, Response, ServerMessage,
};
use queues::id::{QueueName, SourceName};
use shm::segment::Segment;
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A message to be sent to a process.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) to: ClientId,
    pub(super) bytes: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
    /// The connection that it concerns.
    pub(super) about: Option<(u32, ConnectionNotice)>,
}

/// Subject of an [`Outgoing`] message about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionNotice {
    Opening,
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

#[derive(Debug)]
pub(super) struct LogicalConnection {
    pub(super) from: ProgramId,
    /// The receiver, as the sender names it. There is one connection for each name.
    pub(super) name: QueueName,
    pub(super) sender: ClientId,
    pub(super) to: ProgramId,
    pub(super) receiver: ClientId,
    /// Memory of the ring, to observe its fill.
    pub(super) ring: Arc<Segment>,
}

impl LogicalConnection {
    /// Returns true if the ring holds messages that have not been received.
    fn has_unread(&self) -> bool {
        fill_percent(&self.ring) > 0
    }
}

/// A look-up that waits until a program is opened.
#[derive(Debug)]
pub(super) struct PendingLookup {
    pub(super) client: ClientId,
    pub(super) question: u32,
    pub(super) program: ProgramId,
    pub(super) name: QueueName,
}

/// The directory, the connections, and the messages to be sent.
#[derive(Debug, Default)]
pub(super) struct Connections {
    pub(super) directory: Directory,
    pub(super) connections: HashMap<u32, LogicalConnection>,
    /// Programs of connected owners.
    pub(super) owners: HashMap<ClientId, ProgramId>,
    last_connection: u32,
    pub(super) waiting: Vec<PendingLookup>,
    /// Clients for which the server listens to other nodes.
    pub(super) listeners: HashSet<ClientId>,
    /// Number of connections with name servers of other nodes.
    pub(super) links: usize,
    pub(super) relay_requests: Vec<RelayRequest>,
    outgoing: Vec<Outgoing>,
}

impl Connections {
    /// Returns true if a client has opened a program or owns one.
    pub(super) fn has_registered(&self, client: ClientId) -> bool {
        self.directory.opened_by(client).is_some() || self.owners.contains_key(&client)
    }

    /// Returns true if a process has opened a program, the owner of one is connected, or the server
    /// listens to other nodes or is connected with one.
    pub(super) fn is_used(&self) -> bool {
        self.directory.has_processes()
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
        to: ClientId,
        question: u32,
        answer: Response,
        descriptors: Vec<OwnedFd>,
    ) {
        let bytes = ServerMessage::Response(question, answer).encode();
        self.outgoing.push(Outgoing { to, bytes, descriptors, about: None });
    }

    pub(super) fn refuse(&mut self, to: ClientId, question: u32, refusal: Refusal) {
        self.answer(to, question, Response::Refused(refusal), Vec::new());
    }

    pub(super) fn notify(
        &mut self,
        to: ClientId,
        notification: Notification,
        about: (u32, ConnectionNotice),
        descriptors: Vec<OwnedFd>,
    ) {
        let bytes = ServerMessage::Notification(notification).encode();
        self.outgoing.push(Outgoing { to, bytes, descriptors, about: Some(about) });
    }

    /// Returns the number of connections of a process.
    pub(super) fn connections_of(&self, client: ClientId) -> usize {
        let is_its = |connection: &&LogicalConnection| {
            connection.sender == client || connection.receiver == client
        };
        self.connections.values().filter(is_its).count()
    }

    /// Returns true if there is a connection to a name of a program.
    pub(super) fn has_connection(&self, from: ProgramId, name: QueueName) -> bool {
        let mut all = self.connections.values();
        all.any(|connection| (connection.from, connection.name) == (from, name))
    }

    pub(super) fn offer(
        &self,
        connection: u32,
        source: SourceName,
        peer: ProgramId,
    ) -> ConnectionOffer {
        let program = self.directory.program(peer);
        let peer = Peer {
            program: program.map_or_else(String::new, |program| program.name.clone()),
            pid: self.directory.process(peer).map_or(0, |process| process.pid),
        };
        ConnectionOffer { connection, source, peer }
    }

    /// Returns the number of the next connection.
    pub(super) fn next_number(&mut self) -> u32 {
        self.last_connection = self.last_connection.wrapping_add(1);
        self.last_connection
    }

    /// Closes a connection of which one end was dropped. The other end observes that in the ring.
    pub(super) fn close_by(&mut self, client: ClientId, number: u32, dropped: DroppedEnd) {
        let Some(connection) = self.connections.get(&number) else { return };
        let (own, other) = match dropped {
            DroppedEnd::Receiver => (connection.receiver, connection.sender),
            DroppedEnd::Sender => (connection.sender, connection.receiver),
        };
        // A client may name any connection. It can only close its own ends.
        if own != client {
            return;
        }
        // The other end observes the closed socket, after the messages that are in the ring.
        let has_unread = connection.has_unread();
        self.connections.remove(&number);
        if dropped == DroppedEnd::Sender {
            let about = Some((number, ConnectionNotice::Cancelling { has_unread }));
            let descriptors = Vec::new();
            self.outgoing.push(Outgoing { to: other, bytes: Vec::new(), descriptors, about });
        }
    }

    /// Closes connections and notifies both ends, if their processes are registered.
    pub(super) fn close_where(
        &mut self,
        why: CloseReason,
        is_concerned: impl Fn(&LogicalConnection, &Directory) -> bool,
    ) {
        let concerned =
            |_: &u32, connection: &mut LogicalConnection| is_concerned(connection, &self.directory);
        let closed: Vec<_> = self.connections.extract_if(concerned).collect();
        for (number, connection) in closed {
            // Messages of a process that has ended are still received; those of an excluded one are
            // not.
            let has_unread = why == CloseReason::Gone && connection.has_unread();
            let about = (number, ConnectionNotice::Closing { has_unread });
            for end in [connection.sender, connection.receiver] {
                if self.directory.opened_by(end).is_some() {
                    let notification = Notification::Closed { connection: number, why };
                    self.notify(end, notification, about, Vec::new());
                }
            }
        }
    }

    /// Closes the connections of a program.
    pub(super) fn close_program(&mut self, program: &str, why: CloseReason) {
        if let Some(id) = self.directory.by_name(program) {
            self.close_where(why, |connection, _| connection.from == id || connection.to == id);
        }
    }

    /// Closes the connections to a program, and refuses new ones. Its own connections to others
    /// continue.
    pub(super) fn stop_receiving(&mut self, program: &str, why: CloseReason) {
        if let Some(id) = self.directory.by_name(program) {
            self.directory.close(id);
            self.close_where(why, |connection, _| connection.to == id);
        }
    }

    /// Removes a client that has ended or closed its socket.
    pub(super) fn leave(&mut self, client: ClientId) {
        if self.listeners.remove(&client) {
            self.relay_requests.push(RelayRequest::StopListening { client });
        }
        self.waiting.retain(|waiting| waiting.client != client);
        // First the tables, then the notices: a sender that is notified of the end finds it in its
        // table too, and opens no connection to the former process.
        if let Some((program, is_removed)) = self.directory.leave(client) {
            self.close_where(CloseReason::Gone, |connection, _| {
                connection.sender == client || connection.receiver == client
            });
            if is_removed {
                self.refuse_lookups(program);
            }
        }
        // The process of a program may outlive its owner; its end removes the program above.
        if let Some(program) = self.owners.remove(&client)
            && self.directory.release(program)
        {
            self.refuse_lookups(program);
        }
    }

    /// Answers the look-ups that wait for a program that has been removed.
    fn refuse_lookups(&mut self, program: ProgramId) {
        let lookups = self.waiting.extract_if(.., |waiting| waiting.program == program);
        for PendingLookup { client, question, .. } in lookups.collect::<Vec<_>>() {
            self.refuse(client, question, Refusal::UnknownProgram);
        }
    }
}
