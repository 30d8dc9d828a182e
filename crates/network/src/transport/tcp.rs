//! Connections over TCP, which every machine has.
//!
//! Every node is connected with every other one. The node with the higher number connects; both
//! prove that they know the job's key (`handshake`). Other connections are refused and counted. A
//! wake-up costs one system call for what has arrived and one for what is sent.
//!
//! The kernel notices a node that does not respond: data must be acknowledged within
//! [`Timeouts::unanswered`], and an idle connection is probed.

mod connect;
pub(crate) mod connection;
pub(crate) mod handshake;
pub(crate) mod pending;
mod unacknowledged;

pub use connect::{Listener, MAX_PENDING};

use super::frame::{Frame, Route};
use super::payloads::{PayloadLocation, Payloads};
use super::poller::Poller;
use super::stream::connection_error::ConnectionError;
use super::{Arrival, Transport};
use crate::error::Error;
use crate::job_nodes::Key;
use connection::Connection;
use interpreter::Packet;
use rustix::event::epoll::EventFlags;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Time-outs of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Time until all nodes are connected.
    pub connecting: Duration,
    /// Time until data, or a probe of an idle connection, is acknowledged.
    pub unanswered: Duration,
}

impl Default for Timeouts {
    /// A minute to connect, fifteen seconds without an acknowledgement.
    fn default() -> Self {
        Timeouts { connecting: Duration::from_secs(60), unanswered: Duration::from_secs(15) }
    }
}

/// One node's connections to the others.
#[derive(Debug)]
pub struct Tcp {
    node: u32,
    addresses: Vec<SocketAddr>,
    /// By node; `None` for this one and for those that are lost.
    connections: Vec<Option<Connection>>,
    /// Number of connections.
    connected: usize,
    poller: Poller,
    /// Nodes to which something was sent since the last flush.
    written: Vec<u32>,
    /// Payloads for nodes that were lost before, to be reported by `flush`.
    dropped: Vec<PayloadLocation>,
    /// Nodes that were lost while sending, to be reported by `wait`.
    lost: Vec<(u32, String)>,
    refused: u64,
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
        let (sockets, refused) =
            connect::connect(listener, node, addresses, key, timeouts.connecting)?;
        let poller = Poller::new()?;
        let mut connections: Vec<Option<Connection>> = addresses.iter().map(|_| None).collect();
        for (other, socket) in sockets {
            let connection = Connection::new(socket, timeouts.unanswered)?;
            // Level-triggered: frames that arrived while other nodes were in their handshake are
            // reported by the first wait.
            poller.add(&connection, u64::from(other), EventFlags::IN)?;
            connections[other as usize] = Some(connection);
        }
        let addresses = addresses.to_vec();
        Ok(Tcp {
            node,
            addresses,
            connected: connections.iter().flatten().count(),
            connections,
            poller,
            written: Vec::new(),
            dropped: Vec::new(),
            lost: Vec::new(),
            refused,
        })
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
            Err(lost) => self.lose(node, &lost, payloads),
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
        // A frame for a lost node is dropped. The loss is an arrival, which ends the runs that need
        // the node.
        if let Some(connection) = self.connections[node as usize].as_mut()
            && connection.queue.push(frame)
        {
            self.written.push(node);
        }
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
            // As in `send`.
            None => self.dropped.push(location),
        }
    }

    fn detach(&mut self, location: PayloadLocation, payload: Option<Vec<u8>>) {
        let payload = payload.map(Arc::new);
        for connection in self.connections.iter_mut().flatten() {
            connection.queue.detach(location, payload.as_ref());
        }
    }

    fn flush(&mut self, payloads: &mut dyn Payloads) {
        self.dropped.drain(..).for_each(|location| payloads.sent(location));
        while let Some(node) = self.written.pop() {
            self.write(node, payloads);
        }
    }

    fn queued(&self, node: u32) -> u64 {
        self.connections[node as usize].as_ref().map_or(0, Connection::queued)
    }

    fn unacknowledged(&self, node: u32) -> u64 {
        self.connections[node as usize].as_ref().map_or(0, Connection::unacknowledged)
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
        let mut writable = Vec::new();
        let mut readable = Vec::new();
        for (number, flags) in self.poller.wait(timeout)? {
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
        arrivals.extend(self.lost.drain(..).map(|(node, why)| Arrival::NodeLost { node, why }));
        Ok(())
    }

    fn poll(
        &mut self,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Error> {
        let is_simple = self.connected <= POLLED && self.lost.is_empty();
        if !is_simple || self.connections.iter().flatten().any(|one| one.queued() > 0) {
            return self.wait(Some(Duration::ZERO), payloads, arrivals);
        }
        // One system call for each connection, where a wait takes one to find the readable ones and
        // one more to read.
        for node in 0..self.connections.len() as u32 {
            self.read(node, payloads, arrivals);
        }
        arrivals.extend(self.lost.drain(..).map(|(node, why)| Arrival::NodeLost { node, why }));
        Ok(())
    }

    fn transferred(&self) -> u64 {
        let connections = self.connections.iter().flatten();
        connections.map(Connection::transferred).fold(0, u64::wrapping_add)
    }

    fn refused(&self) -> u64 {
        self.refused
    }
}
