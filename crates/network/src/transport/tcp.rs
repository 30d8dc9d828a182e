//! Connections over TCP, which every machine has.
//!
//! Up to 17 nodes are all connected from the start. Of more, each is connected with 16 that are
//! near by number and with a few that are far ([`neighbors`]), and with another one when something
//! is to be sent there, or expected from there. Both ends of a connection prove that they know the
//! job's key (`handshake`). Other connections are refused and counted. A wake-up costs one system
//! call for what has arrived and one for what is sent.
//!
//! The kernel notices a node that does not respond: data must be acknowledged within
//! [`Timeouts::unanswered`], and an idle connection is probed. Data between [ranks](Tcp::connect_ranks)
//! may stay unread for any time.

mod capacity;
mod connect;
pub(crate) mod connection;
pub(crate) mod handshake;
mod neighborhood;
pub(crate) mod pending;
mod timeouts;
mod unacknowledged;

pub use connect::{Listener, MAX_PENDING};
pub use neighborhood::neighbors;
pub use timeouts::Timeouts;
pub use unacknowledged::unacknowledged;

use super::frame::{Frame, Route};
use super::payloads::{PayloadLocation, Payloads};
use super::poller::Poller;
use super::stream::connection_error::ConnectionError;
use super::stream::send_queue::SendQueue;
use super::{Arrival, LinkState, Transport};
use crate::error::Error;
use crate::job_nodes::Key;
use connect::{CONNECTING, Connector, Made};
use connection::{Connection, Reading};
use interpreter::Packet;
use rustix::event::epoll::EventFlags;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One node's connections to the others.
#[derive(Debug)]
pub struct Tcp {
    node: u32,
    addresses: Vec<SocketAddr>,
    /// By node; `None` for this one and for those that are not connected.
    connections: Vec<Option<Box<Connection>>>,
    /// Number of connections.
    connected: usize,
    poller: Poller,
    /// Nodes to which something was sent since the last flush.
    written: Vec<u32>,
    /// Payloads for nodes that were lost before, to be reported by `flush`.
    dropped: Vec<PayloadLocation>,
    /// Nodes that were lost while sending, to be reported by `wait`, and what they had sent before.
    lost: Vec<(u32, String)>,
    rest: Vec<Arrival>,
    refused: u64,
    unanswered: Duration,
    /// When the other nodes read.
    reading: Reading,
    /// Present if nodes are connected when they are needed.
    connector: Option<Connector>,
    /// Frames for nodes that are being connected.
    waiting: HashMap<u32, SendQueue>,
}

/// Largest number of connections that are read without asking which of them are readable.
const POLLED: usize = 4;

/// Numbers from here on belong to descriptors of [`Transport::watch`].
const NOTIFIERS: u64 = 1 << 32;

impl Tcp {
    /// Connects with all other nodes, which connect at about the same time.
    ///
    /// # Errors
    /// [`Error::NodeUnreachable`] with the first node that cannot be reached.
    pub fn connect(
        listener: Listener,
        node: u32,
        addresses: &[SocketAddr],
        key: Key,
        timeouts: Timeouts,
    ) -> Result<Tcp, Error> {
        Tcp::connect_all(listener, node, addresses, key, timeouts, Reading::Always)
    }

    /// Connects a rank, as a node of its own, with all other ones, which connect at about the same
    /// time. Ranks read in their calls only, so a rank that does not read counts as lost only once
    /// its system does not answer probes of an idle connection.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_ranks(
        listener: Listener,
        rank: u32,
        addresses: &[SocketAddr],
        key: Key,
        timeouts: Timeouts,
    ) -> Result<Tcp, Error> {
        Tcp::connect_all(listener, rank, addresses, key, timeouts, Reading::InCalls)
    }

    fn connect_all(
        listener: Listener,
        node: u32,
        addresses: &[SocketAddr],
        key: Key,
        timeouts: Timeouts,
        reading: Reading,
    ) -> Result<Tcp, Error> {
        let others = (0..addresses.len() as u32).filter(|other| *other != node);
        let connector =
            connect::connect(listener, node, addresses, key, timeouts.connecting, others)?;
        Tcp::over(connector, node, timeouts, reading).map(|(tcp, _)| tcp)
    }

    /// The sockets of all connections.
    pub fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        self.connections.iter().flatten().map(|connection| connection.as_fd()).collect()
    }

    /// Makes the connections hold `wanted` bytes in each direction while neither end reads, and
    /// returns how many they hold, which may be fewer.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn enlarge(&self, wanted: u64) -> Result<u64, Error> {
        let connections = self.connections.iter().flatten();
        capacity::enlarge(connections.map(|connection| connection.as_fd()), wanted)
    }

    /// Connects with the [`neighbors`], and with other nodes when they are needed.
    ///
    /// # Errors
    /// [`Error::NodeUnreachable`] with the first neighbour that cannot be reached.
    pub fn connect_neighbors(
        listener: Listener,
        node: u32,
        addresses: &[SocketAddr],
        key: Key,
        timeouts: Timeouts,
    ) -> Result<Tcp, Error> {
        let nodes = addresses.len() as u32;
        let others = neighbors(node, nodes);
        if others.len() + 1 >= nodes as usize {
            return Tcp::connect(listener, node, addresses, key, timeouts);
        }
        let others = others.into_iter();
        let connector =
            connect::connect(listener, node, addresses, key, timeouts.connecting, others)?;
        let (mut tcp, mut connector) = Tcp::over(connector, node, timeouts, Reading::Always)?;
        connector.watch(&tcp.poller, timeouts.unanswered)?;
        tcp.connector = Some(connector);
        Ok(tcp)
    }

    /// Takes the connections that a connector has made. Nodes that are no neighbours may be among
    /// them, because they were faster.
    fn over(
        mut connector: Connector,
        node: u32,
        timeouts: Timeouts,
        reading: Reading,
    ) -> Result<(Tcp, Connector), Error> {
        let addresses = connector.addresses.clone();
        let mut tcp = Tcp {
            node,
            connections: addresses.iter().map(|_| None).collect(),
            addresses,
            connected: 0,
            poller: Poller::new()?,
            written: Vec::new(),
            dropped: Vec::new(),
            lost: Vec::new(),
            rest: Vec::new(),
            refused: std::mem::take(&mut connector.refused),
            unanswered: timeouts.unanswered,
            reading,
            connector: None,
            waiting: HashMap::new(),
        };
        for (other, socket) in connector.take_made() {
            tcp.adopt(other, socket)?;
        }
        Ok((tcp, connector))
    }

    /// Takes a connection, and what waits for it.
    fn adopt(&mut self, node: u32, socket: OwnedFd) -> Result<(), Error> {
        // The poller may watch its handshake.
        self.poller.remove(&socket);
        let queue = self.waiting.remove(&node).unwrap_or_default();
        let connection = Connection::new(socket, queue, self.unanswered, self.reading)?;
        // Level-triggered: frames that arrived before are reported by the next wait.
        self.poller.add(&connection, u64::from(node), EventFlags::IN)?;
        self.connections[node as usize] = Some(Box::new(connection));
        self.connected += 1;
        self.written.push(node);
        Ok(())
    }

    /// Makes progress with the connections that are needed.
    fn connect_more(
        &mut self,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Error> {
        let Some(connector) = self.connector.as_mut() else { return Ok(()) };
        let Made { connected, failed } = connector.progress(&self.poller)?;
        for (node, socket) in connected {
            self.adopt(node, socket)?;
            arrivals.push(Arrival::Connected { node });
        }
        for (node, why) in failed {
            self.drop_waiting(node);
            self.lost.push((node, why));
        }
        self.flush(payloads);
        Ok(())
    }

    /// Drops what waits for the connection with a node.
    fn drop_waiting(&mut self, node: u32) {
        if let Some(mut queue) = self.waiting.remove(&node) {
            self.dropped.extend(queue.locations());
        }
    }

    /// The queue of a node that is not connected; `None` if it cannot be connected any more.
    fn waiting_queue(&mut self, node: u32) -> Option<&mut SendQueue> {
        let connector = self.connector.as_mut().filter(|one| one.may_connect(node))?;
        connector.want(node);
        Some(self.waiting.entry(node).or_default())
    }

    /// Writes a connection's queue, and watches for space if the system does not take all of it.
    fn write(&mut self, node: u32, payloads: &mut dyn Payloads) {
        let Some(connection) = self.connections[node as usize].as_mut() else { return };
        match connection.write(payloads) {
            Ok(Some(interest)) => {
                // If the system refuses, the next send writes the rest of the queue.
                let _ = self.poller.change(&*connection, u64::from(node), interest);
            }
            Ok(None) => {}
            Err(lost) => {
                // The connection reports its end to the next call, which may be a write. What the
                // node sent before comes first.
                connection.shut_down();
                while connection.read(node, payloads, &mut self.rest).is_ok() {}
                self.lose(node, &lost, payloads);
            }
        }
    }

    /// Reads what has arrived over a connection, and its end.
    fn read(&mut self, node: u32, payloads: &mut dyn Payloads, arrivals: &mut Vec<Arrival>) {
        let Some(connection) = self.connections[node as usize].as_mut() else { return };
        // The frames that a node sent before its connection ended come first.
        if let Err(lost) = connection.read(node, payloads, arrivals) {
            self.lose(node, &lost, payloads);
        }
    }

    /// Reports the nodes that were lost, behind what they had sent before.
    fn report_lost(&mut self, arrivals: &mut Vec<Arrival>) {
        arrivals.append(&mut self.rest);
        arrivals.extend(self.lost.drain(..).map(|(node, why)| Arrival::NodeLost { node, why }));
    }

    /// Closes the connection with a node, which is not reported.
    pub(super) fn disconnect(&mut self, node: u32) {
        if let Some(connection) = self.connections[node as usize].take() {
            self.connected -= 1;
            self.poller.remove(&connection);
        }
    }

    fn lose(&mut self, node: u32, lost: &ConnectionError, payloads: &mut dyn Payloads) {
        if let Some(mut connection) = self.connections[node as usize].take() {
            connection.locations().into_iter().for_each(|location| payloads.sent(location));
            self.connected -= 1;
            self.poller.remove(&connection);
            self.refused += u64::from(matches!(lost, ConnectionError::Frame(_)));
            // Reported by the next `wait`: the caller may be in the middle of its sends.
            self.lost.push((node, lost.to_string()));
        }
    }
}

impl AsFd for Tcp {
    /// Returns a descriptor that is readable while [`wait`](Transport::wait) would not sleep.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

impl Transport for Tcp {
    fn node(&self) -> u32 {
        self.node
    }

    fn nodes(&self) -> u32 {
        self.addresses.len() as u32
    }

    fn address(&self, node: u32) -> String {
        self.addresses.get(node as usize).map_or_else(String::new, SocketAddr::to_string)
    }

    fn watch(&mut self, descriptor: BorrowedFd<'_>, number: u64) -> Result<(), Error> {
        // Edge-triggered: the counter of a notifier is never read, so a level would wake the agent
        // for ever.
        self.poller.add(descriptor, NOTIFIERS.wrapping_add(number), EventFlags::IN | EventFlags::ET)
    }

    fn send(&mut self, node: u32, frame: Frame) {
        if let Some(connection) = self.connections[node as usize].as_mut() {
            if connection.queue.push(frame) {
                self.written.push(node);
            }
        } else if let Some(queue) = self.waiting_queue(node) {
            queue.push(frame);
        }
        // Otherwise the node is lost, and the frame is dropped. The loss is an arrival, which ends
        // the runs that need the node.
    }

    fn send_in_place(
        &mut self,
        node: u32,
        route: Route,
        packet: Packet,
        location: PayloadLocation,
        bytes: u64,
    ) {
        match self.connections[node as usize].as_mut() {
            Some(connection) => {
                if connection.queue.push_in_place(route, packet, location, bytes as usize) {
                    self.written.push(node);
                }
            }
            None => match self.waiting_queue(node) {
                Some(queue) => {
                    queue.push_in_place(route, packet, location, bytes as usize);
                }
                // As in `send`.
                None => self.dropped.push(location),
            },
        }
    }

    fn detach(&mut self, location: PayloadLocation, payload: Option<Vec<u8>>) {
        let payload = payload.map(Arc::new);
        for connection in self.connections.iter_mut().flatten() {
            connection.queue.detach(location, payload.as_ref());
        }
        for queue in self.waiting.values_mut() {
            queue.detach(location, payload.as_ref());
        }
    }

    fn flush(&mut self, payloads: &mut dyn Payloads) {
        self.dropped.drain(..).for_each(|location| payloads.sent(location));
        while let Some(node) = self.written.pop() {
            self.write(node, payloads);
        }
    }

    fn queued(&self, node: u32) -> u64 {
        match &self.connections[node as usize] {
            Some(connection) => connection.queued(),
            None => self.waiting.get(&node).map_or(0, SendQueue::bytes),
        }
    }

    fn unacknowledged(&self, node: u32) -> u64 {
        let connection = self.connections[node as usize].as_ref();
        connection.map_or_else(|| self.queued(node), |connection| connection.unacknowledged())
    }

    fn wait(
        &mut self,
        timeout: Option<Duration>,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Error> {
        self.flush(payloads);
        // A connection that broke while sending raises no event any more. Its loss must not wait
        // for one.
        let timeout = if self.lost.is_empty() { timeout } else { Some(Duration::ZERO) };
        let due = self.connector.as_ref().and_then(Connector::deadline);
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let timeout = left.into_iter().chain(timeout).min();
        let mut connects = false;
        let mut writable = Vec::new();
        let mut readable = Vec::new();
        for (number, flags) in self.poller.wait(timeout)? {
            if number == CONNECTING {
                connects = true;
                continue;
            }
            let Some(node) =
                u32::try_from(number).ok().filter(|node| (*node as usize) < self.connections.len())
            else {
                arrivals.push(Arrival::Notified(number.wrapping_sub(NOTIFIERS)));
                continue;
            };
            if flags.contains(EventFlags::OUT) {
                writable.push(node);
            }
            // An ended connection is read as well: the reads return what arrived before the end,
            // and then its cause.
            if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                readable.push(node);
            }
        }
        readable.into_iter().for_each(|node| self.read(node, payloads, arrivals));
        writable.into_iter().for_each(|node| self.write(node, payloads));
        if connects || due.is_some_and(|due| due <= Instant::now()) {
            self.connect_more(payloads, arrivals)?;
        }
        self.report_lost(arrivals);
        Ok(())
    }

    fn poll(
        &mut self,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Error> {
        let is_complete = self.connector.is_none();
        let is_simple = is_complete && self.connected <= POLLED && self.lost.is_empty();
        if !is_simple || self.connections.iter().flatten().any(|one| one.queued() > 0) {
            return self.wait(Some(Duration::ZERO), payloads, arrivals);
        }
        // One system call for each connection, where a wait takes one to find the readable ones and
        // one more to read.
        for node in 0..self.connections.len() as u32 {
            self.read(node, payloads, arrivals);
        }
        self.report_lost(arrivals);
        Ok(())
    }

    fn transferred(&self) -> u64 {
        let connections = self.connections.iter().flatten();
        connections.map(|connection| connection.transferred()).fold(0, u64::wrapping_add)
    }

    fn refused(&self) -> u64 {
        self.refused + self.connector.as_ref().map_or(0, |connector| connector.refused)
    }

    fn is_sparse(&self) -> bool {
        self.connector.is_some()
    }

    fn link(&self, node: u32) -> LinkState {
        if self.connections[node as usize].is_some() {
            LinkState::Open
        } else if self.waiting.contains_key(&node) {
            LinkState::Pending
        } else {
            LinkState::Absent
        }
    }

    fn has_answered(&self, node: u32) -> bool {
        let is_open = self.connections.get(node as usize).is_some_and(Option::is_some);
        !is_open && self.connector.as_ref().is_some_and(|connector| connector.has_answered(node))
    }

    fn require(&mut self, node: u32) {
        if let Some(connector) = self.connector.as_mut().filter(|one| one.may_connect(node)) {
            connector.want(node);
        }
    }

    fn abandon(&mut self, node: u32) {
        if let Some(connector) = self.connector.as_mut() {
            connector.abandon(node);
        }
        self.drop_waiting(node);
    }
}
