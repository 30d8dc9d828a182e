//! The connection of a process to the name server, shared by its port and the port's connections.
//!
//! Any thread may read from the socket and stores the message in the shared [`ReceivedState`],
//! where the thread that waits for it finds it. Drops never block: notifications that the server
//! does not read at once are queued and sent before the next request.

mod received;

pub(crate) use self::received::IncomingConnection;
use self::received::{EndId, ReceivedState};
use crate::error::system;
use crate::wire::{
    CloseReason, ConnectionOffer, DroppedEnd, NameError, Request, Response, ServerMessage,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;
use shm::broker::{BrokerError, Connection};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest sleep of a thread that waits for a response. Another thread may have read it from the
/// socket.
const SLICE: Duration = Duration::from_millis(10);

/// Time to wait for a name server that does not read.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Descriptors of a connection with a ring.
#[derive(Debug)]
pub(crate) struct ConnectionParts {
    pub(crate) offer: ConnectionOffer,
    pub(crate) memory: OwnedFd,
    pub(crate) socket: OwnedFd,
}

impl ConnectionParts {
    /// Takes both descriptors. If one is missing, the connection is dropped.
    pub(crate) fn new(
        server: &ServerConnection,
        offer: ConnectionOffer,
        dropped: DroppedEnd,
        descriptors: Vec<OwnedFd>,
    ) -> Result<ConnectionParts, NameError> {
        match <[OwnedFd; 2]>::try_from(descriptors) {
            Ok([memory, socket]) => Ok(ConnectionParts { offer, memory, socket }),
            Err(_) => {
                server.forget_connection(offer.connection, dropped);
                Err(BrokerError::Truncated { missing: "descriptors", bytes: Vec::new() }.into())
            }
        }
    }
}

/// The connection to the name server.
#[derive(Debug)]
pub(crate) struct ServerConnection {
    socket: Connection,
    received: Mutex<ReceivedState>,
    next_request: AtomicU32,
    /// True if the name server has ended.
    lost: AtomicBool,
}

impl ServerConnection {
    pub(crate) fn new(socket: Connection) -> ServerConnection {
        let lost = AtomicBool::new(false);
        ServerConnection {
            socket,
            received: Mutex::default(),
            next_request: AtomicU32::new(1),
            lost,
        }
    }

    /// Returns the process number of the name server, if it is visible here.
    pub(crate) fn server_pid(&self) -> Option<u32> {
        self.socket.peer().pid
    }

    fn received(&self) -> MutexGuard<'_, ReceivedState> {
        // Every change under the lock is complete, so a poisoned lock protects valid data.
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_lost(&self) -> bool {
        // Relaxed: the flag publishes no other data.
        self.lost.load(Ordering::Relaxed)
    }

    /// Returns the number of descriptors to watch, of which this one is the last. The socket of a
    /// server that has ended is always readable, so it is left out.
    pub(crate) fn watchable(&self, others: usize) -> usize {
        others + usize::from(!self.is_lost())
    }

    /// Reads all messages of the name server that have arrived, and sends the queued notifications.
    /// Never blocks.
    pub(crate) fn receive(&self) {
        if self.is_lost() {
            return;
        }
        // The lock is held across the reads, so that messages are stored in the order of their
        // arrival.
        let mut received = self.received();
        self.read_all(&mut received);
        // A server that does not read is notified later.
        let _ = self.send_drops(&mut received);
    }

    fn read_all(&self, received: &mut ReceivedState) {
        while !self.is_lost() {
            match self.socket.receive_message(Some(Duration::ZERO)) {
                Ok(message) => match ServerMessage::decode(&message.bytes) {
                    Some(decoded) => received.store(decoded, message.descriptors),
                    None => self.lost.store(true, Ordering::Relaxed),
                },
                Err(BrokerError::TimedOut { .. }) => return,
                // This process has no free descriptors. A connection is stored all the same, so
                // that its drop is sent to the name server.
                Err(BrokerError::Truncated { bytes, .. }) => {
                    if let Some(
                        decoded @ (ServerMessage::Response(_, Response::Connection(_))
                        | ServerMessage::Notification(_)),
                    ) = ServerMessage::decode(&bytes)
                    {
                        received.store(decoded, Vec::new());
                    }
                }
                Err(_) => self.lost.store(true, Ordering::Relaxed),
            }
        }
    }

    /// Notifies the name server of dropped ends, as long as it reads.
    fn send_drops(&self, received: &mut ReceivedState) -> Result<(), BrokerError> {
        while let Some(&(connection, dropped)) = received.drops.front() {
            let request = Request::Close { connection, dropped };
            self.socket.send_message(&request.encode(0), &[])?;
            received.drops.pop_front();
        }
        Ok(())
    }

    /// Sends a request and waits for the response until `deadline`. `action` completes the error
    /// text "the name server refuses to …".
    pub(crate) fn request(
        &self,
        action: impl FnOnce() -> String,
        request: &Request,
        deadline: Instant,
    ) -> Result<(Response, Vec<OwnedFd>), NameError> {
        self.request_with(action, request, &[], deadline)
    }

    /// Sends a request as [`Self::request`] does, with descriptors.
    pub(crate) fn request_with(
        &self,
        action: impl FnOnce() -> String,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Result<(Response, Vec<OwnedFd>), NameError> {
        let started = Instant::now();
        // Relaxed: the numbers only have to differ.
        let number = self.next_request.fetch_add(1, Ordering::Relaxed);
        self.received().responses.insert(number, None);
        let sent = self.send(request, number, descriptors, deadline);
        let outcome = sent.and_then(|()| self.wait_for_response(number, started, deadline));
        let late = self.received().responses.remove(&number).flatten();
        match (outcome, late) {
            (Ok((Response::Refused(refusal), _)), _) => {
                Err(NameError::Refused { action: action(), refusal })
            }
            // The response arrived after the deadline: the connection it offers is dropped.
            (Err(error), Some((Response::Connection(offer), _))) => {
                self.forget_connection(offer.connection, DroppedEnd::Sender);
                Err(error)
            }
            (outcome, _) => outcome,
        }
    }

    fn wait_for_response(
        &self,
        number: u32,
        started: Instant,
        deadline: Instant,
    ) -> Result<(Response, Vec<OwnedFd>), NameError> {
        loop {
            self.receive();
            let response = self.received().responses.get_mut(&number).and_then(Option::take);
            if let Some(response) = response {
                return Ok(response);
            }
            if self.is_lost() {
                return Err(NameError::ServerGone);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(NameError::NoAnswer { waited: started.elapsed() });
            }
            self.watch(PollFlags::IN, left.min(SLICE))?;
        }
    }

    pub(crate) fn watch(&self, flags: PollFlags, limit: Duration) -> Result<(), NameError> {
        let mut watched = [PollFd::new(&self.socket, flags)];
        match poll(&mut watched, Timespec::try_from(limit).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(system("wait for the name server")(error)),
        }
    }

    /// Sends a request. Waits for a name server that does not read, until `deadline` at most.
    fn send(
        &self,
        request: &Request,
        number: u32,
        descriptors: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Result<(), NameError> {
        let bytes = request.encode(number);
        // A message is sent in whole or not at all, so a retry never repeats a part of it.
        let started = Instant::now();
        let deadline = deadline.min(started + SEND_TIMEOUT);
        loop {
            match self.try_to_send(&bytes, descriptors) {
                Ok(()) => return Ok(()),
                Err(BrokerError::NotReading) if Instant::now() < deadline => {
                    // The server stops reading from a process with a full receive buffer. Reading
                    // that buffer here ends a mutual wait.
                    self.receive();
                    let left = deadline.saturating_duration_since(Instant::now());
                    self.watch(PollFlags::OUT, left.min(SLICE))?;
                }
                Err(BrokerError::NotReading) => {
                    return Err(NameError::NoAnswer { waited: started.elapsed() });
                }
                Err(BrokerError::Closed) => return Err(NameError::ServerGone),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a message after the queued notifications: a connection can be opened on a route only
    /// after the server was notified of the drop of the former one.
    fn try_to_send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), BrokerError> {
        // If the drops cannot be sent, the message is not sent either: the socket keeps the order
        // of messages, and the server relies on it.
        self.send_drops(&mut self.received())?;
        self.socket.send_message(bytes, descriptors)
    }

    /// Takes the next connection that was opened to this process, as far as received.
    pub(crate) fn take_incoming(&self) -> Option<IncomingConnection> {
        self.received().incoming.pop_front()
    }

    /// Returns the number of connections that were opened to this process and not taken.
    pub(crate) fn incoming(&self) -> usize {
        self.receive();
        self.received().incoming.len()
    }

    /// Closes the receiving side.
    pub(crate) fn stop_receiving(&self) {
        let mut received = self.received();
        // The mark is set and the connections are taken under one lock. A connection that arrives
        // later finds the mark in `ReceivedState::store` and is dropped there, so none is left
        // without a receiver.
        received.has_stopped = true;
        let incoming = std::mem::take(&mut received.incoming);
        received
            .drops
            .extend(incoming.into_iter().map(|end| (end.offer.connection, DroppedEnd::Receiver)));
        drop(received);
        self.receive();
    }

    /// Returns the number of notices about connections of this process so far.
    pub(crate) fn notices(&self) -> u64 {
        self.received().notices
    }

    /// Returns the reason for which the name server has closed a connection, if it has.
    pub(crate) fn closing(&self, end: EndId) -> Option<CloseReason> {
        self.received().connections.get(&end).copied().flatten()
    }

    /// Removes a dropped end. Never blocks: the name server is notified when it reads. A server
    /// that never reads observes the exit of this process.
    pub(crate) fn forget_connection(&self, connection: u32, dropped: DroppedEnd) {
        let mut received = self.received();
        received.connections.remove(&(connection, dropped));
        // After the end of the name server there is no process to notify. The queue is filled under
        // the lock that `try_to_send` takes, so a later request follows this drop.
        if !self.is_lost() {
            received.drops.push_back((connection, dropped));
            let _ = self.send_drops(&mut received);
        }
    }
}

impl AsFd for ServerConnection {
    /// Returns a descriptor that is readable when the name server has sent an unread message.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Peer;
    use queues::id::{QueueName, SourceName};
    use shm::broker::{Broker, connect, unguessable_name};

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// Creates a connection and returns it with the name server's side.
    fn connected_pair() -> (ServerConnection, Connection) {
        let broker = Broker::bind(&unguessable_name("tradewind-test").expect("random bytes"))
            .expect("a new name");
        let socket = connect(broker.name(), TIMEOUT).expect("it listens");
        let names = broker.accept().expect("it can").expect("a client");
        (ServerConnection::new(socket), names)
    }

    fn offer(question: u32, connection: u32) -> Vec<u8> {
        let peer = Peer { program: "program".to_owned(), pid: 1 };
        let source = SourceName::new(3).expect("small");
        let offer = ConnectionOffer { connection, source, peer };
        ServerMessage::Response(question, Response::Connection(offer)).encode()
    }

    /// Requests a connection, to which there is no response before the deadline.
    fn request_without_response(server: &ServerConnection) {
        let name = QueueName::new(3).expect("small");
        let answer = server.request(String::new, &Request::Connect { name }, Instant::now());
        assert!(matches!(answer, Err(NameError::NoAnswer { .. })), "{answer:?}");
    }

    fn next_request(names: &Connection) -> (u32, Request) {
        let message = names.receive_message(Some(TIMEOUT)).expect("a message");
        Request::decode(&message.bytes).expect("a request")
    }

    #[test]
    fn a_connection_offered_too_late_is_dropped() {
        let (server, names) = connected_pair();
        request_without_response(&server);
        let (question, _) = next_request(&names);
        names.send_message(&offer(question, 7), &[]).expect("it reads");
        server.receive();
        let given_back = Request::Close { connection: 7, dropped: DroppedEnd::Sender };
        assert_eq!(next_request(&names), (0, given_back));
        assert!(server.received().connections.is_empty());
    }

    #[test]
    fn a_drop_does_not_wait_for_a_server_that_does_not_read() {
        let (server, names) = connected_pair();
        let dropped = DroppedEnd::Sender;
        let full = (0..).find(|&connection| {
            server.forget_connection(connection, dropped);
            !server.received().drops.is_empty()
        });
        let last = full.expect("it reads nothing") + 3;
        (last - 2..=last).for_each(|connection| server.forget_connection(connection, dropped));
        // Earlier messages come first.
        request_without_response(&server);
        for connection in 0..=last {
            assert_eq!(next_request(&names), (0, Request::Close { connection, dropped }));
            server.receive();
        }
        request_without_response(&server);
        assert!(matches!(next_request(&names).1, Request::Connect { .. }));
    }
}
