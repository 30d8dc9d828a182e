//! Messages of the name server that a process has read from its socket.

use super::super::wire::{
    CloseReason, ConnectionOffer, DroppedEnd, Notification, Response, ServerMessage,
};
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;

/// A connection that another process has opened to a port of this one.
#[derive(Debug)]
pub(crate) struct IncomingConnection {
    /// Position in the ring at which to start reading.
    pub(crate) position: u64,
    /// Number of the connection with the preceding messages, or 0.
    pub(crate) after: u32,
    pub(crate) offer: ConnectionOffer,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// An end of a connection: its number, and true for the receiving end.
pub(super) type EndId = (u32, bool);

/// Notices of the name server about a connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionStatus {
    pub(super) closing: Option<CloseReason>,
    pub(super) is_to_move: bool,
}

/// Messages of the name server that were read and not used yet.
#[derive(Debug, Default)]
pub(super) struct ReceivedState {
    /// The open requests, with their responses.
    pub(super) responses: HashMap<u32, Option<(Response, Vec<OwnedFd>)>>,
    pub(super) incoming: HashMap<u16, VecDeque<IncomingConnection>>,
    /// Ports with a dropped receiving side.
    pub(super) closed_ports: HashSet<u16>,
    /// Dropped ends of connections of which the name server has not been notified.
    pub(super) drops: VecDeque<(u32, DroppedEnd)>,
    /// Ends of connections in this process.
    pub(super) connections: HashMap<EndId, ConnectionStatus>,
    /// Number of notices about one of them.
    pub(super) notices: u64,
}

impl ReceivedState {
    pub(super) fn store(&mut self, message: ServerMessage, descriptors: Vec<OwnedFd>) {
        match message {
            ServerMessage::Response(number, response) => {
                self.store_response(number, response, descriptors)
            }
            ServerMessage::Notification(notification) => match notification {
                Notification::ConnectionOpened { port, position, after, offer } => {
                    if self.closed_ports.contains(&port) {
                        return self.drops.push_back((offer.connection, DroppedEnd::Receiver));
                    }
                    self.connections.insert((offer.connection, true), ConnectionStatus::default());
                    let incoming = IncomingConnection { position, after, offer, descriptors };
                    self.incoming.entry(port).or_default().push_back(incoming);
                }
                Notification::ConnectionClosed { connection, why } => {
                    // An end that was dropped, and so caused this notice, is already removed.
                    for end in [(connection, false), (connection, true)] {
                        self.note(end, |status| status.closing = Some(why));
                    }
                }
                Notification::MoveConnection { connection } => {
                    self.note((connection, true), |status| status.is_to_move = true);
                }
            },
        }
    }

    fn store_response(&mut self, number: u32, response: Response, descriptors: Vec<OwnedFd>) {
        match (self.responses.get_mut(&number), &response) {
            // The request has been abandoned, and nothing was sent over the connection.
            (None, Response::Connection(offer)) => {
                self.drops.push_back((offer.connection, DroppedEnd::SenderGoesOn))
            }
            (None, _) => {}
            (Some(open), _) => {
                if let Response::Connection(offer) = &response {
                    let end = (offer.connection, false);
                    self.connections.insert(end, ConnectionStatus::default());
                }
                *open = Some((response, descriptors));
            }
        }
    }

    fn note(&mut self, end: EndId, change: impl FnOnce(&mut ConnectionStatus)) {
        if let Some(status) = self.connections.get_mut(&end) {
            change(status);
            self.notices += 1;
        }
    }
}
