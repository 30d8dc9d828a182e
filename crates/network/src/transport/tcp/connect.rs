//! Connects every node with every other one.
//!
//! Each node connects to those with lower numbers and accepts the others. Anyone can connect, so
//! the other end of an accepted connection is a stranger until the handshake has proven that it
//! knows the job's key.

use super::pending::{HandshakeStage, HandshakeStep, PendingConnection};
use crate::error::{Error, refused};
use crate::job_nodes::Key;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Largest number of accepted connections in their handshake, besides those of all other
/// nodes. The oldest one is closed for the next.
pub const MAX_PENDING: usize = 128;
/// Time before the next attempt if the network has no route, or the system no descriptor.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Name of the step that fails if a socket cannot listen.
const LISTEN: &str = "listen for the job's other nodes";

/// A socket that accepts the connections of the job's other nodes.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens at an address; with port 0 the kernel chooses the port.
    ///
    /// # Errors
    /// If the system refuses: no such address, a port in use.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Listener, Error> {
        Listener::with_socket(TcpListener::bind(address).map_err(refused(LISTEN))?)
    }

    /// Takes a socket that listens already.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn with_socket(socket: TcpListener) -> Result<Listener, Error> {
        socket.set_nonblocking(true).map_err(refused(LISTEN))?;
        let address = socket.local_addr().map_err(refused(LISTEN))?;
        Ok(Listener { socket, address })
    }

    /// Address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

struct Mesh<'a> {
    listener: Listener,
    node: u32,
    addresses: &'a [SocketAddr],
    key: Key,
    pending: Vec<PendingConnection>,
    connected: Vec<Option<OwnedFd>>,
    /// Nodes to connect to once more, with the time of the attempt.
    retries: Vec<(Instant, u32)>,
    /// The last node that closed a connection: it had too many pending ones, or another program
    /// has its address.
    closed: Option<u32>,
    /// No connection is accepted until this time, because no descriptor is left.
    is_full_until: Option<Instant>,
    refused: u64,
    waited: Duration,
}

/// Connects with all other nodes. Returns the sockets, and the number of connections that were
/// refused.
pub(super) fn connect(
    listener: Listener,
    node: u32,
    addresses: &[SocketAddr],
    key: Key,
    limit: Duration,
) -> Result<(Vec<(u32, OwnedFd)>, u64), Error> {
    let connected = addresses.iter().map(|_| None).collect();
    let mut mesh = Mesh {
        listener,
        node,
        addresses,
        key,
        pending: Vec::new(),
        connected,
        retries: Vec::new(),
        closed: None,
        is_full_until: None,
        refused: 0,
        waited: limit,
    };
    let deadline = Instant::now() + limit;
    // One side of each pair connects, so no pair has two connections.
    (0..node).try_for_each(|to| mesh.begin(to))?;
    while mesh.missing().is_some() {
        if Instant::now() >= deadline {
            return Err(mesh.timeout());
        }
        mesh.wait(deadline)?;
        mesh.accept();
        mesh.advance()?;
        let now = Instant::now();
        while let Some(due) = mesh.retries.iter().position(|(at, _)| *at <= now) {
            let (_, to) = mesh.retries.swap_remove(due);
            mesh.begin(to)?;
        }
    }
    let sockets =
        (0..).zip(mesh.connected).filter_map(|(node, socket)| Some((node, socket?))).collect();
    Ok((sockets, mesh.refused))
}

impl Mesh<'_> {
    fn missing(&self) -> Option<u32> {
        (0..)
            .zip(&self.connected)
            .find(|(node, socket)| *node != self.node && socket.is_none())
            .map(|(node, _)| node)
    }

    fn timeout(&self) -> Error {
        let node = self.missing().unwrap_or(self.node);
        let seconds = self.waited.as_secs_f64();
        let why = if self.closed == Some(node) {
            format!(
                "it has closed every connection for {seconds} s; does the job's node service listen there?"
            )
        } else if node > self.node {
            // It connects with this node, so the port that must be open is here.
            format!(
                "it has not connected with {} on this node within {seconds} s; does its node service run, and does this node's \
                 firewall let the port through?",
                self.listener.address
            )
        } else {
            format!(
                "no connection within {seconds} s; does the job's node service run there, and does its firewall let the port \
                 through?"
            )
        };
        self.unreachable(node, why)
    }

    fn unreachable(&self, node: u32, why: String) -> Error {
        Error::NodeUnreachable { node, address: self.addresses[node as usize].to_string(), why }
    }

    /// Begins to connect to a node.
    fn begin(&mut self, to: u32) -> Result<(), Error> {
        let address = self.addresses[to as usize];
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match socket_with(family, SocketType::STREAM, flags, None) {
            Ok(socket) => socket,
            // Pending connections of strangers may have taken them.
            Err(Errno::MFILE | Errno::NFILE) if self.drop_oldest_unproven() => {
                self.retries.push((Instant::now(), to));
                return Ok(());
            }
            Err(error) => return Err(refused("make a socket for another node")(error)),
        };
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {
                self.pending.push(PendingConnection::connecting(socket, to));
                Ok(())
            }
            Err(error) => self.failed(to, error),
        }
    }

    fn failed(&mut self, to: u32, error: Errno) -> Result<(), Error> {
        match error {
            // A node publishes its address only once it listens, so it has ended.
            Errno::CONNREFUSED => {
                Err(self
                    .unreachable(to, "nothing listens there: its node service has ended".into()))
            }
            Errno::NETUNREACH
            | Errno::HOSTUNREACH
            | Errno::TIMEDOUT
            | Errno::AGAIN
            | Errno::CONNRESET => {
                self.retries.push((Instant::now() + RETRY_INTERVAL, to));
                Ok(())
            }
            error => Err(self.unreachable(to, std::io::Error::from(error).to_string())),
        }
    }

    /// Sleeps until a connection makes progress, a new one arrives, or it is time for an attempt.
    fn wait(&self, deadline: Instant) -> Result<(), Error> {
        let times = self.retries.iter().map(|(at, _)| *at).chain(self.is_full_until);
        let end = times.chain([deadline]).min().unwrap_or(deadline);
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
        // A connection that cannot be accepted would make the listener readable at once.
        let events = if self.is_full_until.is_none() { PollFlags::IN } else { PollFlags::empty() };
        let mut watched = vec![PollFd::new(&self.listener.socket, events)];
        watched.extend(
            self.pending
                .iter()
                .map(|connection| PollFd::new(&connection.socket, connection.interest())),
        );
        match poll(&mut watched, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(refused("wait for the job's other nodes")(error)),
        }
    }

    /// Accepts new connections, a bounded number at a time: strangers may connect faster than they
    /// are refused.
    fn accept(&mut self) {
        self.is_full_until = self.is_full_until.filter(|until| *until > Instant::now());
        let most = MAX_PENDING + self.addresses.len();
        for _ in 0..MAX_PENDING {
            let socket = match self.listener.socket.accept() {
                Ok((socket, _)) => socket,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::MFILE | Errno::NFILE) if self.drop_oldest_unproven() => continue,
                    Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                        self.is_full_until = Some(Instant::now() + RETRY_INTERVAL);
                        return;
                    }
                    Some(Errno::CONNABORTED | Errno::INTR) => continue,
                    _ => return,
                },
            };
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            if self.pending.iter().filter(|connection| connection.stage.is_unproven()).count()
                >= most
            {
                self.drop_oldest_unproven();
            }
            self.pending.push(PendingConnection::accepted(socket.into()));
        }
    }

    /// Closes the oldest connection that has not proven to be a node; a node connects again. False
    /// if there is none.
    fn drop_oldest_unproven(&mut self) -> bool {
        let Some(first) = self.pending.iter().position(|connection| connection.stage.is_unproven())
        else {
            return false;
        };
        self.pending.remove(first);
        self.refused += 1;
        true
    }

    /// Advances every pending handshake as far as possible.
    fn advance(&mut self) -> Result<(), Error> {
        for mut connection in std::mem::take(&mut self.pending) {
            let step = connection.advance(self.node, &self.key)?;
            match (step, connection.stage) {
                (HandshakeStep::Pending, _) => self.pending.push(connection),
                (HandshakeStep::Proven(node), _) => match self.connected.get_mut(node as usize) {
                    // A node that is connected stays on its first connection; a second one is
                    // refused.
                    Some(entry @ None) if node != self.node => *entry = Some(connection.socket),
                    _ => self.refused += 1,
                },
                (HandshakeStep::Failed(error), HandshakeStage::Connecting { to }) => {
                    self.failed(to, error)?
                }
                (HandshakeStep::Closed, HandshakeStage::HelloSent { to, .. }) => {
                    self.closed = Some(to);
                    self.retries.push((Instant::now() + RETRY_INTERVAL, to));
                }
                (HandshakeStep::Refused, HandshakeStage::HelloSent { to, .. }) => {
                    let why =
                        "what listens there is not this job's node service; is the address right?"
                            .into();
                    return Err(self.unreachable(to, why));
                }
                (HandshakeStep::Failed(_) | HandshakeStep::Refused | HandshakeStep::Closed, _) => {
                    self.refused += 1
                }
            }
        }
        Ok(())
    }
}
