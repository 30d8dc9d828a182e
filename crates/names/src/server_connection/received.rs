//! Messages of the name server that a process has read from its socket.

use crate::wire::{
    CloseReason, ConnectionOffer, DroppedEnd, Notification, Response, ServerMessage,
};
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;

/// A connection that another process has opened to this one.
#[derive(Debug)]
pub(crate) struct IncomingConnection {
    pub(crate) offer: ConnectionOffer,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// An end of a connection: its number, and the end by the name of its drop.
pub(super) type EndId = (u32, DroppedEnd);

/// Messages of the name server that were read and not used yet.
#[derive(Debug, Default)]
pub(super) struct ReceivedState {
    /// The open requests, with their responses.
    pub(super) responses: HashMap<u32, Option<(Response, Vec<OwnedFd>)>>,
    pub(super) incoming: VecDeque<IncomingConnection>,
    /// The receiving side has been dropped.
    pub(super) has_stopped: bool,
    /// Dropped ends of connections of which the name server has not been notified.
    pub(super) drops: VecDeque<EndId>,
    /// Ends of connections in this process, with the reason why the name server has closed them.
    pub(super) connections: HashMap<EndId, Option<CloseReason>>,
    /// Number of notices about one of them.
    pub(super) notices: u64,
}

impl ReceivedState {
    pub(super) fn store(&mut self, message: ServerMessage, descriptors: Vec<OwnedFd>) {
        match message {
            ServerMessage::Response(number, response) => {
                self.store_response(number, response, descriptors);
            }
            ServerMessage::Notification(Notification::Connected(offer)) => {
                let end = (offer.connection, DroppedEnd::Receiver);
                if self.has_stopped {
                    return self.drops.push_back(end);
                }
                self.connections.insert(end, None);
                self.incoming.push_back(IncomingConnection { offer, descriptors });
            }
            ServerMessage::Notification(Notification::Closed { connection, why }) => {
                // An end that was dropped, and so caused this notice, is already removed.
                for dropped in [DroppedEnd::Sender, DroppedEnd::Receiver] {
                    if let Some(closing) = self.connections.get_mut(&(connection, dropped)) {
                        *closing = Some(why);
                        self.notices += 1;
                    }
                }
            }
        }
    }

    fn store_response(&mut self, number: u32, response: Response, descriptors: Vec<OwnedFd>) {
        let offered = match &response {
            Response::Connection(offer) => Some((offer.connection, DroppedEnd::Sender)),
            _ => None,
        };
        match (self.responses.get_mut(&number), offered) {
            // The request has been abandoned, and nothing was sent over the connection.
            (None, Some(end)) => self.drops.push_back(end),
            (None, None) => {}
            (Some(open), end) => {
                self.connections.extend(end.map(|end| (end, None)));
                *open = Some((response, descriptors));
            }
        }
    }
}
