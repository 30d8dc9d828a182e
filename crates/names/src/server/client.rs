//! The connection of the name server to a client, with the messages that the client has not read.

use super::connections::{ConnectionNotice, Outgoing};
use rustix::event::epoll::{self, EventData, EventFlags};
use shm::broker::{BrokerError, Connection};
use shm::process::ProcessHandle;
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

/// Number of queued messages for a process at which the server stops reading from it.
pub(super) const MAX_OUTGOING: usize = 64;

/// Number of queued messages for a process up to which connections that have ended with unread
/// messages are kept for it. Each keeps its ring and two descriptors.
const MAX_UNREAD: usize = 256;

/// A connected process.
#[derive(Debug)]
pub(super) struct ClientConnection {
    pub(super) socket: Connection,
    /// The process, once it has registered.
    pub(super) process: Option<ProcessHandle>,
    /// Messages that did not fit into its socket.
    pub(super) outgoing: VecDeque<Outgoing>,
}

impl ClientConnection {
    pub(super) fn new(socket: Connection) -> ClientConnection {
        ClientConnection { socket, process: None, outgoing: VecDeque::new() }
    }

    /// Queues a message, unless it and one in the queue cancel each other.
    pub(super) fn queue(&mut self, message: Outgoing) {
        let (connection, is_closing, has_unread) = match message.about {
            Some((connection, ConnectionNotice::Closing { has_unread })) => {
                (connection, true, has_unread)
            }
            Some((connection, ConnectionNotice::Cancelling { has_unread })) => {
                (connection, false, has_unread)
            }
            _ => return self.outgoing.push_back(message),
        };
        let opening = Some((connection, ConnectionNotice::Opening));
        let is_unheard = self.outgoing.iter().any(|waiting| waiting.about == opening);
        let is_kept = has_unread && self.outgoing.len() < MAX_UNREAD;
        if is_unheard && !is_kept {
            // A process that has not been notified of a connection need not be notified of its end.
            // So the queue for a process that does not read stays short.
            self.outgoing
                .retain(|waiting| waiting.about.is_none_or(|(about, _)| about != connection));
        } else if is_closing {
            self.outgoing.push_back(message);
        }
    }

    /// Sends queued messages as far as the client reads. `event` identifies its socket in the epoll
    /// set, which reports when the client reads again.
    pub(super) fn flush(&mut self, epoll: &OwnedFd, event: EventData) {
        if self.outgoing.is_empty() {
            return;
        }
        while let Some(message) = self.outgoing.front() {
            let descriptors: Vec<_> = message.descriptors.iter().map(AsFd::as_fd).collect();
            match self.socket.send_message(&message.bytes, &descriptors) {
                Err(BrokerError::NotReading) => break,
                // The process has ended, which its descriptors report; or the message cannot be
                // sent at all.
                Ok(()) | Err(_) => drop(self.outgoing.pop_front()),
            }
        }
        let flags = match self.outgoing.len() {
            0 => EventFlags::IN,
            1..MAX_OUTGOING => EventFlags::IN | EventFlags::OUT,
            _ => EventFlags::OUT,
        };
        let _ = epoll::modify(epoll, &self.socket, event, flags);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shm::broker::{Broker, connect, unguessable_name};
    use std::time::Duration;

    /// Returns the messages queued for a process that does not read, after these notifications.
    fn waiting(sent: &[(u32, ConnectionNotice)]) -> Vec<(u32, ConnectionNotice)> {
        let broker = Broker::bind(&unguessable_name("tradewind-test").expect("random bytes"))
            .expect("a new name");
        let socket = connect(broker.name(), Duration::from_secs(60)).expect("it listens");
        let mut client = ClientConnection::new(socket);
        for &about in sent {
            client.queue(Outgoing {
                to: 0,
                bytes: Vec::new(),
                descriptors: Vec::new(),
                about: Some(about),
            });
        }
        client.outgoing.iter().filter_map(|waiting| waiting.about).collect()
    }

    #[test]
    fn the_queue_of_a_client_that_does_not_read_stays_short() {
        let new = ConnectionNotice::Opening;
        let closing = ConnectionNotice::Closing { has_unread: false };
        let cancelling = ConnectionNotice::Cancelling { has_unread: false };
        assert_eq!(waiting(&[(1, new), (2, new), (1, closing), (2, cancelling)]), []);
        // It has been notified of these connections.
        assert_eq!(waiting(&[(1, closing), (2, cancelling)]), [(1, closing)]);
    }

    #[test]
    fn a_connection_that_has_ended_with_unread_messages_is_opened() {
        let new = ConnectionNotice::Opening;
        let closing = ConnectionNotice::Closing { has_unread: true };
        let cancelling = ConnectionNotice::Cancelling { has_unread: true };
        // Of an orderly end the receiver is notified by the ring itself.
        assert_eq!(waiting(&[(1, new), (1, cancelling)]), [(1, new)]);
        assert_eq!(waiting(&[(1, new), (1, closing)]), [(1, new), (1, closing)]);
        let many: Vec<_> = (0..2 * MAX_UNREAD as u32)
            .flat_map(|number| [(number, new), (number, cancelling)])
            .collect();
        assert_eq!(waiting(&many).len(), MAX_UNREAD - 1, "the rest is cancelled");
    }
}
