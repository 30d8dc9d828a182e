//! Connections with a proof by both ends that they have a secret.
//!
//! The proof is the handshake between node services, with fixed numbers for the two sides.

use super::seal::SessionKeys;
use crate::error::{Error, refused};
use crate::job_nodes::Key;
use crate::transport::tcp::MAX_PENDING;
use crate::transport::tcp::connection::{Reading, configure};
use crate::transport::tcp::handshake::{Side, Versions};
use crate::transport::tcp::pending::{HandshakeStage, HandshakeStep, PendingConnection, choose};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socket_with};
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
    /// The other end has another version of the protocol.
    #[error("it has {}", Versions { theirs: *.theirs })]
    OtherVersion {
        /// Its version.
        theirs: u16,
    },
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
    /// Returns true if the other end has closed the connection before it has read the proof of this
    /// one. Of too many connections in their handshake it closes [some](Acceptor), so another attempt
    /// may succeed.
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

    /// Waits for the first byte of the other end, and leaves it unread. Before, that end may not
    /// have read the proof of this one, and may still close the connection for another one.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn await_first_byte(&self, limit: Duration) -> Result<(), ConnectError> {
        let deadline = Instant::now() + limit;
        loop {
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            match recv(&self.socket, &mut [0; 1], flags) {
                Ok((_, 0)) => return Err(ConnectError::Closed),
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(of_errno(error)),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ConnectError::TimedOut { limit });
            }
            wait(&mut [PollFd::new(&self.socket, PollFlags::IN)], left)?;
        }
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
            HandshakeStep::OtherVersion(theirs) => {
                return Err(ConnectError::OtherVersion { theirs });
            }
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

/// A listening socket, and the connections in their handshake, of which there is a largest number.
///
/// **Strangers exclude no client.** Of too many connections one is closed that has sent no hello,
/// and a client's hello arrives with its connection or soon after it, so strangers that send nothing
/// close each other's. Strangers may send a hello, too: then the choice is random, and a client that
/// tries again gets through with a probability that approaches 1 with the number of its attempts.
pub struct Acceptor {
    listener: TcpListener,
    key: Key,
    pending: Vec<PendingConnection>,
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
        watched.extend(connections.map(|it| PollFd::new(&it.socket, it.interest())));
        wait(&mut watched, limit)?;
        let mut proven = Vec::new();
        // Proofs that have arrived are read before any connection is closed for a new one.
        for connection in std::mem::take(&mut self.pending) {
            self.advance(connection, &mut proven)?;
        }
        self.accept(&mut proven)?;
        Ok(proven)
    }

    /// Advances a handshake, and keeps the connection if it is not complete.
    fn advance(
        &mut self,
        mut connection: PendingConnection,
        proven: &mut Vec<Connection>,
    ) -> Result<(), Error> {
        match connection.advance(ACCEPTING, &self.key)? {
            HandshakeStep::Pending if connection.since.elapsed() < HANDSHAKE_TIME => {
                self.pending.push(connection);
            }
            HandshakeStep::Proven(CONNECTING)
                if configure(&connection.socket, self.unanswered, Reading::Always).is_ok() =>
            {
                proven.extend(Connection::of(connection, &self.key, Side::Accepting));
            }
            // Another secret, another program, too slow, or it cannot be set up: the drop closes it.
            _ => {}
        }
        Ok(())
    }

    /// Accepts new connections, a bounded number at a time: strangers may connect faster than they
    /// are refused.
    fn accept(&mut self, proven: &mut Vec<Connection>) -> Result<(), Error> {
        self.is_full = false;
        for _ in 0..MAX_PENDING {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(_) => {
                    self.is_full = true;
                    break;
                }
            };
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            // A hello that has arrived is answered at once, which keeps the connection.
            self.advance(PendingConnection::accepted(socket.into()), proven)?;
            if self.pending.len() > MAX_PENDING {
                self.drop_one();
            }
        }
        Ok(())
    }

    /// Closes a connection that has sent no hello, otherwise any one; a client connects again.
    fn drop_one(&mut self) {
        let pending = self.pending.iter().enumerate();
        let silent = pending.filter(|(_, one)| matches!(one.stage, HandshakeStage::Accepted));
        let silent = choose(silent.map(|(at, _)| at));
        if let Some(chosen) = silent.or_else(|| choose(0..self.pending.len())) {
            self.pending.remove(chosen);
        }
    }
}
