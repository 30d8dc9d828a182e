//! Connections with a proof by both ends that they have a secret.
//!
//! The proof is the handshake between node services, with fixed numbers for the two sides.

use super::seal::SessionKeys;
use crate::error::{Error, refused};
use crate::job_nodes::Key;
use crate::transport::tcp::MAX_PENDING;
use crate::transport::tcp::connection::{Reading, configure};
use crate::transport::tcp::handshake::Side;
use crate::transport::tcp::pending::{HandshakeStep, PendingConnection};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::fmt;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Numbers of the two sides in the handshake.
const ACCEPTING: u32 = 0;
const CONNECTING: u32 = 1;

/// Time after which an accepted connection that has proven nothing is closed.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// Time before the next attempt to accept a connection if no descriptor is free.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Reason why no connection was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The other end has another secret, or is another program.
    #[error("what listens there has another secret, or is no name server of this version")]
    OtherSecret,
    /// The other end has closed the connection.
    #[error("what listens there has closed the connection")]
    Closed,
    /// Nothing listens there.
    #[error("nothing listens there")]
    NotListening,
    /// No answer within the limit.
    #[error("no answer within {limit:?}")]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// The system refuses.
    #[error("{}", std::io::Error::from(*.0))]
    System(Errno),
    /// Another failure of this node.
    #[error(transparent)]
    Local(#[from] Error),
}

impl ConnectError {
    /// Returns true if the other end has closed the connection before the end of the handshake. Of
    /// many connections in their handshake it closes the oldest ones, so another attempt may
    /// succeed.
    pub fn is_crowded(&self) -> bool {
        matches!(self, ConnectError::Closed | ConnectError::System(Errno::CONNRESET | Errno::PIPE))
    }
}

/// A connection. Its other end has proven that it has the secret.
#[derive(Debug)]
pub struct Connection {
    /// Does not block.
    pub socket: OwnedFd,
    /// Keys for what follows the handshake.
    pub keys: SessionKeys,
}

impl Connection {
    /// Returns the connection after the handshake; `None` before its end.
    fn of(pending: PendingConnection, key: &Key, side: Side) -> Option<Connection> {
        let pair = pending.proven?;
        let [ours, theirs] = match side {
            Side::Connecting => [Side::Connecting, Side::Accepting],
            Side::Accepting => [Side::Accepting, Side::Connecting],
        };
        let [send, receive] = [ours, theirs].map(|side| pair.session_key(key, side));
        Some(Connection { socket: pending.socket, keys: SessionKeys { send, receive } })
    }
}

/// Connects with an address. The returned socket does not block; the kernel reports a node that has
/// not responded for the time `unanswered`.
///
/// # Errors
/// [`ConnectError`].
pub fn connect(
    address: SocketAddr,
    key: &Key,
    limit: Duration,
    unanswered: Duration,
) -> Result<Connection, ConnectError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        socket_with(family, SocketType::STREAM, flags, None).map_err(ConnectError::System)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(of_errno(error)),
    }
    let mut pending = PendingConnection::connecting(socket, ACCEPTING);
    let deadline = Instant::now() + limit;
    loop {
        match pending.advance(CONNECTING, key)? {
            HandshakeStep::Proven(_) => break,
            HandshakeStep::Pending => {}
            HandshakeStep::Refused => return Err(ConnectError::OtherSecret),
            HandshakeStep::Closed | HandshakeStep::Superseded => return Err(ConnectError::Closed),
            HandshakeStep::Failed(error) => return Err(of_errno(error)),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ConnectError::TimedOut { limit });
        }
        wait(&mut [PollFd::new(&pending.socket, pending.interest())], left)?;
    }
    configure(&pending.socket, unanswered, Reading::Always)?;
    Connection::of(pending, key, Side::Connecting).ok_or(ConnectError::OtherSecret)
}

fn of_errno(error: Errno) -> ConnectError {
    if error == Errno::CONNREFUSED {
        ConnectError::NotListening
    } else {
        ConnectError::System(error)
    }
}

fn wait(watched: &mut [PollFd<'_>], limit: Duration) -> Result<(), Error> {
    match poll(watched, Timespec::try_from(limit).ok().as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(refused("wait for another node")(error)),
    }
}

/// A listening socket, and the connections in their handshake.
pub struct Acceptor {
    listener: TcpListener,
    key: Key,
    pending: Vec<(Instant, PendingConnection)>,
    /// No connection can be accepted at the moment, because no descriptor is free.
    is_full: bool,
    unanswered: Duration,
}

/// Omits the key: secrets do not belong into logs.
impl fmt::Debug for Acceptor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Acceptor").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl Acceptor {
    /// Accepts connections at a socket from ends that have this key.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new(listener: TcpListener, key: Key, unanswered: Duration) -> Result<Acceptor, Error> {
        listener.set_nonblocking(true).map_err(refused("listen for other nodes"))?;
        Ok(Acceptor { listener, key, pending: Vec::new(), is_full: false, unanswered })
    }

    /// Waits until a connection makes progress or `wakeup` is readable, and returns the
    /// connections on which the other end has proven that it has the key.
    ///
    /// # Errors
    /// If the system refuses to wait.
    pub fn wait(&mut self, wakeup: BorrowedFd<'_>) -> Result<Vec<Connection>, Error> {
        // A connection that cannot be accepted would make the listener readable at once.
        let (events, limit) = match self.is_full {
            false => (PollFlags::IN, HANDSHAKE_TIME),
            true => (PollFlags::empty(), RETRY_INTERVAL),
        };
        let mut watched = vec![
            PollFd::from_borrowed_fd(wakeup, PollFlags::IN),
            PollFd::new(&self.listener, events),
        ];
        let connections = self.pending.iter();
        watched.extend(connections.map(|(_, it)| PollFd::new(&it.socket, it.interest())));
        wait(&mut watched, limit)?;
        self.accept();
        let now = Instant::now();
        let mut proven = Vec::new();
        for (since, mut connection) in std::mem::take(&mut self.pending) {
            match connection.advance(ACCEPTING, &self.key)? {
                HandshakeStep::Pending if now < since + HANDSHAKE_TIME => {
                    self.pending.push((since, connection));
                }
                HandshakeStep::Proven(CONNECTING)
                    if configure(&connection.socket, self.unanswered, Reading::Always).is_ok() =>
                {
                    proven.extend(Connection::of(connection, &self.key, Side::Accepting));
                }
                // Another secret, another program, too slow, or it cannot be set up: the drop closes
                // it.
                _ => {}
            }
        }
        Ok(proven)
    }

    /// Accepts new connections, a bounded number at a time: strangers may connect faster than they
    /// are refused.
    fn accept(&mut self) {
        self.is_full = false;
        for _ in 0..MAX_PENDING {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(_) => {
                    self.is_full = true;
                    return;
                }
            };
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            if self.pending.len() >= MAX_PENDING {
                // The oldest one; a node connects again.
                self.pending.remove(0);
            }
            self.pending.push((Instant::now(), PendingConnection::accepted(socket.into())));
        }
    }
}
