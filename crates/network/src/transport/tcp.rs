//! Connections over TCP: what every machine has.
//!
//! Every node is connected with every other, by a connection that the one with the higher number
//! made; both have shown that they know the job's key (`greeting`), whoever has not is turned away
//! and counted. A wake-up costs one call to the system for what arrived and one for what leaves.
//!
//! A node that does not answer is noticed by the kernel: what was sent must be acknowledged within
//! [`Patience::unanswered`], and an idle connection is probed.

mod connection;
mod greeting;
mod incoming;
mod outgoing;
mod setup;

pub use setup::{Listener, STRANGERS};

use super::frame::Frame;
use super::sleeper::Sleeper;
use super::{Arrival, Transport};
use crate::carrier::Error;
use crate::invitation::Key;
use connection::{Connection, Lost};
use rustix::event::epoll::EventFlags;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How long a node may say nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Until it has answered to a connection.
    pub connecting: Duration,
    /// Until what was sent to it is acknowledged, or a probe where nothing was sent.
    pub unanswered: Duration,
}

impl Default for Patience {
    /// A minute to connect; fifteen seconds without an acknowledgement.
    fn default() -> Self {
        Patience { connecting: Duration::from_secs(60), unanswered: Duration::from_secs(15) }
    }
}

/// One node's connections to the others.
#[derive(Debug)]
pub struct Tcp {
    node: u32,
    addresses: Vec<SocketAddr>,
    /// By node; none for this one and for those that are gone.
    connections: Vec<Option<Connection>>,
    sleeper: Sleeper,
    /// Nodes to which something was sent since the last flush.
    written: Vec<u32>,
    /// Nodes found to be gone while sending.
    lost: Vec<(u32, String)>,
    refused: u64,
}

/// Descriptors with a number from here on are bells.
const BELLS: u64 = 1 << 32;

impl Tcp {
    /// Connects with all other nodes, each of which does the same at about the same time.
    ///
    /// # Errors
    /// [`Error::NodeUnreachable`] with the first node that cannot be reached.
    pub fn connect(
        listener: Listener,
        node: u32,
        addresses: &[SocketAddr],
        key: Key,
        patience: Patience,
    ) -> Result<Tcp, Error> {
        let (sockets, refused) =
            setup::connect(listener, node, addresses, key, patience.connecting)?;
        let sleeper = Sleeper::new()?;
        let mut connections: Vec<Option<Connection>> = addresses.iter().map(|_| None).collect();
        for (other, socket) in sockets {
            let connection = Connection::new(socket, patience.unanswered)?;
            sleeper.add(&connection, u64::from(other), EventFlags::IN)?;
            connections[other as usize] = Some(connection);
        }
        let addresses = addresses.to_vec();
        Ok(Tcp {
            node,
            addresses,
            connections,
            sleeper,
            written: Vec::new(),
            lost: Vec::new(),
            refused,
        })
    }

    /// Writes what is in a connection's queue, and has the rest written when there is room.
    fn write(&mut self, node: u32) {
        let Some(connection) = self.connections[node as usize].as_mut() else { return };
        match connection.write() {
            Ok(Some(interest)) => {
                let _ = self.sleeper.change(&*connection, u64::from(node), interest);
            }
            Ok(None) => {}
            Err(lost) => self.lose(node, &lost),
        }
    }

    fn lose(&mut self, node: u32, lost: &Lost) {
        if let Some(connection) = self.connections[node as usize].take() {
            self.sleeper.remove(&connection);
            self.refused += u64::from(matches!(lost, Lost::Frame(_)));
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

    fn watch(&mut self, bell: BorrowedFd<'_>, number: u64) -> Result<(), Error> {
        self.sleeper.add(bell, BELLS.wrapping_add(number), EventFlags::IN | EventFlags::ET)
    }

    fn send(&mut self, node: u32, frame: Frame) {
        if let Some(connection) = self.connections[node as usize].as_mut()
            && connection.send(frame)
        {
            self.written.push(node);
        }
    }

    fn flush(&mut self) {
        while let Some(node) = self.written.pop() {
            self.write(node);
        }
    }

    fn queued(&self, node: u32) -> u64 {
        self.connections[node as usize].as_ref().map_or(0, Connection::queued)
    }

    fn wait(
        &mut self,
        timeout: Option<Duration>,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Error> {
        self.flush();
        let timeout = if self.lost.is_empty() { timeout } else { Some(Duration::ZERO) };
        let mut writable = Vec::new();
        let mut broken = Vec::new();
        for (number, flags) in self.sleeper.wait(timeout)? {
            let Some(node) =
                u32::try_from(number).ok().filter(|node| (*node as usize) < self.connections.len())
            else {
                arrivals.push(Arrival::Bell(number.wrapping_sub(BELLS)));
                continue;
            };
            let Some(connection) = self.connections[node as usize].as_mut() else { continue };
            if flags.contains(EventFlags::OUT) {
                writable.push(node);
            }
            if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                let mut take = |frame| arrivals.push(Arrival::Frame { node, frame });
                if let Err(lost) = connection.read(&mut take) {
                    broken.push((node, lost));
                }
            }
        }
        for (node, lost) in broken {
            self.lose(node, &lost);
        }
        writable.into_iter().for_each(|node| self.write(node));
        arrivals.extend(self.lost.drain(..).map(|(node, why)| Arrival::Gone { node, why }));
        Ok(())
    }

    fn refused(&self) -> u64 {
        self.refused
    }
}
