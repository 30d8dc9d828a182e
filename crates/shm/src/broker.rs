//! Descriptor broker: a local socket through which the node service passes descriptors to ranks.
//!
//! The socket has an abstract name, so there is no file to clean up and the name is released when
//! its owner ends. The first process to bind the name is the service; [`BrokerError::NameTaken`] is
//! the reason for later ones to connect instead. Each side obtains the other's credentials from the
//! kernel and refuses processes of other users. Messages are small and delivered whole
//! (SOCK_SEQPACKET), start with a magic number and a version, and may carry file descriptors both
//! ways (SCM_RIGHTS). No call on the service's side ever blocks on a client that does not read.

use crate::inherited::above_standard;
use error::{MAX_NAME_BYTES, system};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{accept_with, bind, connect as connect_socket, listen, socket_with};
use rustix::time::Timespec;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

mod error;
mod message;
mod peer;

pub use error::{BrokerError, MAX_BYTES, MAX_DESCRIPTORS};
pub use message::Message;
pub use peer::Peer;

/// Returns an unpredictable name, `prefix` and 128 random bits, which a launcher passes to its
/// ranks.
///
/// ```
/// # fn main() -> Result<(), shm::broker::BrokerError> {
/// use shm::broker::unguessable_name;
/// assert_ne!(unguessable_name("tradewind")?, unguessable_name("tradewind")?);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`BrokerError::System`] if the system provides no random bytes.
pub fn unguessable_name(prefix: &str) -> Result<String, BrokerError> {
    let random = crate::random::bytes().map_err(|source| BrokerError::System {
        action: "obtain random bytes from the system",
        source,
    })?;
    Ok(format!("{prefix}-{:032x}", u128::from_ne_bytes(random)))
}

/// Listening side. Dropping it, or the end of its process, releases the name.
///
/// # Examples
///
/// ```
/// use shm::broker::{Broker, connect, unguessable_name};
/// use shm::segment::{Backing, Segment};
/// use std::os::fd::AsFd;
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let name = unguessable_name("tradewind-example")?;
/// let broker = Broker::bind(&name)?;
///
/// let client = connect(&name, Duration::from_secs(10))?;
/// client.send_message(b"the segment, please", &[])?;
///
/// let connection = broker.accept()?.expect("one that has connected");
/// assert_eq!(connection.receive_message(None)?.bytes, b"the segment, please");
/// let segment = Segment::create(4096, Backing::Memory)?;
/// connection.send_message(b"here", &[segment.as_fd()])?;
///
/// let answer = client.receive_message(None)?;
/// let descriptor = answer.descriptors.into_iter().next().expect("one descriptor");
/// assert_eq!(Segment::from_fd(descriptor)?.bytes(), 4096);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Broker {
    listener: OwnedFd,
    name: String,
}

impl Broker {
    /// Binds `name` in the abstract namespace of this network namespace and listens.
    ///
    /// # Errors
    ///
    /// [`BrokerError::NameTaken`] if a process (possibly this one) has bound it,
    /// [`BrokerError::Name`], [`BrokerError::System`].
    pub fn bind(name: &str) -> Result<Broker, BrokerError> {
        let address = address(name)?;
        let listener = socket()?;
        match bind(&listener, &address) {
            Ok(()) => {}
            Err(Errno::ADDRINUSE) => return Err(BrokerError::NameTaken { name: name.to_owned() }),
            Err(error) => return Err(system("bind the node service's name")(error)),
        }
        // All ranks of a node may connect at once. The kernel reduces this to its own limit
        // (net.core.somaxconn).
        listen(&listener, 4096).map_err(system("listen at the node service's name"))?;
        Ok(Broker { listener, name: name.to_owned() })
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Accepts the next pending connection; `None` if there is none. Never blocks; poll the
    /// descriptor for reading to sleep.
    ///
    /// # Errors
    ///
    /// [`BrokerError::OtherUser`] if the client runs as another user; its connection has been
    /// closed, so continue with the next. [`BrokerError::System`].
    pub fn accept(&self) -> Result<Option<Connection>, BrokerError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match accept_with(&self.listener, flags).and_then(above_standard) {
            Ok(socket) => Connection::with_own_user(socket).map(Some),
            // The client may have closed the connection already.
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
            Err(error) => Err(system("accept a connection")(error)),
        }
    }

    /// As [`accept`](Self::accept), but waits for a connection, at most for `timeout`.
    ///
    /// # Errors
    ///
    /// As [`accept`](Self::accept).
    pub fn accept_within(&self, timeout: Duration) -> Result<Option<Connection>, BrokerError> {
        let limit = Timespec::try_from(timeout).ok();
        match poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => self.accept(),
            Err(error) => Err(system("wait for a connection")(error)),
        }
    }
}

impl AsFd for Broker {
    /// Returns the listener, which is readable when a connection is pending.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Connects to the service at `name`. A service that is just starting may bind its name a moment
/// later, so the call retries until `timeout` has passed.
///
/// # Errors
///
/// [`BrokerError::NoService`], [`BrokerError::Busy`], [`BrokerError::OtherUser`] if another user
/// has bound the name, [`BrokerError::Name`], [`BrokerError::System`].
pub fn connect(name: &str, timeout: Duration) -> Result<Connection, BrokerError> {
    let address = address(name)?;
    let started = Instant::now();
    let mut pause = Duration::from_micros(50);
    loop {
        let socket = socket()?;
        let is_busy = match connect_socket(&socket, &address) {
            Ok(()) => return Connection::with_own_user(socket),
            // No listener (yet).
            Err(Errno::CONNREFUSED) => false,
            // The listener's queue is full.
            Err(Errno::AGAIN) => true,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(system("connect to the node service")(error)),
        };
        let Some(left) = timeout.checked_sub(started.elapsed()).filter(|left| !left.is_zero())
        else {
            let name = name.to_owned();
            let waited = timeout;
            return Err(match is_busy {
                true => BrokerError::Busy { name, waited },
                false => BrokerError::NoService { name, waited },
            });
        };
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Connection to a process of the same user.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    peer: Peer,
}

impl Connection {
    fn with_own_user(socket: OwnedFd) -> Result<Connection, BrokerError> {
        let peer = Peer::of(&socket).map_err(system("read the credentials of the other side"))?;
        peer.check(rustix::process::geteuid().as_raw())?;
        Ok(Connection { socket, peer })
    }

    /// Returns the credentials of the process that called [`connect`] or [`Broker::bind`].
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Sends `bytes` (at most [`MAX_BYTES`]) and copies of `descriptors` (at most
    /// [`MAX_DESCRIPTORS`]) as one message. Never blocks.
    ///
    /// # Errors
    ///
    /// [`BrokerError::TooLarge`], [`BrokerError::NotReading`], [`BrokerError::Closed`],
    /// [`BrokerError::System`].
    pub fn send_message(
        &self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), BrokerError> {
        message::send(self.socket.as_fd(), bytes, descriptors)
    }

    /// Receives the next message; waits at most `timeout` (`None`: indefinitely; zero: not at all).
    ///
    /// # Errors
    ///
    /// [`BrokerError::TimedOut`], [`BrokerError::Closed`], [`BrokerError::Truncated`],
    /// [`BrokerError::WrongMagic`], [`BrokerError::WrongVersion`], [`BrokerError::System`]. Close
    /// the connection after a malformed message.
    pub fn receive_message(&self, timeout: Option<Duration>) -> Result<Message, BrokerError> {
        let started = Instant::now();
        loop {
            if let Some(message) = message::receive(self.socket.as_fd())? {
                return Ok(message);
            }
            let left = timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
            if let (Some(waited), Some(Duration::ZERO)) = (timeout, left) {
                return Err(BrokerError::TimedOut { waited });
            }
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(system("wait for a message")(error)),
            }
        }
    }
}

impl AsFd for Connection {
    /// Returns the socket, which is readable when a message waits or the other side has closed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn address(name: &str) -> Result<SocketAddrUnix, BrokerError> {
    let refused = || BrokerError::Name { name: name.to_owned() };
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return Err(refused());
    }
    SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(|_| refused())
}

fn socket() -> Result<OwnedFd, BrokerError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Some are made while the program runs, which may have closed standard input.
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .and_then(above_standard)
        .map_err(system("create a local socket"))
}
