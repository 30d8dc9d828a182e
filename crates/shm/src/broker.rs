//! The node service's door: a local socket where ranks ask for descriptors and get them.
//!
//! The socket has an abstract name, so there is no file to clean up and the name ends with its
//! owner: whoever binds it first is the service ([`BrokerError::NameTaken`] tells the others that
//! they are clients). Each side asks the kernel who the other is, and talks to processes of its own
//! user only. Messages are small and whole (SOCK_SEQPACKET), carry a magic number and a version,
//! and may carry file descriptors both ways (SCM_RIGHTS). No call of the service's side ever blocks
//! on a client that does not read.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{accept_with, bind, connect as connect_socket, listen, socket_with};
use rustix::time::Timespec;

mod message;
mod peer;

pub use message::{MAX_BYTES, MAX_DESCRIPTORS, Message};
pub use peer::Peer;

/// What can go wrong at the door.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// Someone has bound this name: connect to it instead.
    #[error("the name {name} is taken: a node service runs already; connect to it")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The name is empty or too long.
    #[error("{name:?} cannot name a node service: 1 to {} bytes are allowed", MAX_NAME_BYTES)]
    Name {
        /// The name.
        name: String,
    },
    /// Nobody listens there, or nobody accepted in time.
    #[error(
        "no node service answers at {name} within {waited:?}: start one, or look whether it has ended"
    )]
    NoService {
        /// The name.
        name: String,
        /// How long this process tried.
        waited: Duration,
    },
    /// The other side belongs to another user.
    #[error(
        "refused: the other process runs as user {theirs} and this one as user {ours}; run all ranks as one user"
    )]
    OtherUser {
        /// The other side's effective user number.
        theirs: u32,
        /// This process's effective user number.
        ours: u32,
    },
    /// The other side has closed the connection or has ended.
    #[error("the other side has closed the connection")]
    Closed,
    /// Nothing came in time.
    #[error("no message came within {waited:?}")]
    TimedOut {
        /// How long this process waited.
        waited: Duration,
    },
    /// The other side lets its messages pile up.
    #[error("the other side does not read its messages: its queue is full")]
    NotReading,
    /// More than a message holds.
    #[error(
        "a message of {bytes} bytes and {descriptors} descriptors is too large: at most {MAX_BYTES} and {MAX_DESCRIPTORS}"
    )]
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// Its descriptors.
        descriptors: usize,
    },
    /// A message arrived in part.
    #[error(
        "a message came without its {missing}: raise the limit on open files if descriptors are missing (`ulimit -n`)"
    )]
    Truncated {
        /// What did not arrive: `bytes` or `descriptors`.
        missing: &'static str,
        /// Its bytes, if these did.
        bytes: Vec<u8>,
    },
    /// The message does not begin as messages of this protocol do.
    #[error("a message began with {found:#010x}: something else than tradewind uses this socket")]
    WrongMagic {
        /// The first four bytes.
        found: u32,
    },
    /// The other side speaks another version.
    #[error(
        "the other side speaks version {theirs} of the protocol and this one version {ours}: use one tradewind on the node"
    )]
    WrongVersion {
        /// The version in the message.
        theirs: u16,
        /// The version of this library.
        ours: u16,
    },
    /// Any other refusal of the system.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// The longest name of an abstract socket: 108 bytes less the leading zero.
const MAX_NAME_BYTES: usize = 107;

/// A name that nobody can guess: `prefix` and 128 random bits. For jobs whose launcher can tell its
/// ranks the name.
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
/// [`BrokerError::System`] if the system gives no random bytes.
pub fn unguessable_name(prefix: &str) -> Result<String, BrokerError> {
    let random = crate::random::bytes().map_err(|source| BrokerError::System {
        action: "get random bytes from the system",
        source,
    })?;
    Ok(format!("{prefix}-{:032x}", u128::from_ne_bytes(random)))
}

/// The listening side. The name is free again when it is dropped or its process ends, however it
/// ends.
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
    /// Binds `name` in this network namespace's abstract names and listens.
    ///
    /// # Errors
    ///
    /// [`BrokerError::NameTaken`] if another process (or this one) has it, [`BrokerError::Name`],
    /// [`BrokerError::System`].
    pub fn bind(name: &str) -> Result<Broker, BrokerError> {
        let address = address(name)?;
        let listener = socket()?;
        match bind(&listener, &address) {
            Ok(()) => {}
            Err(Errno::ADDRINUSE) => return Err(BrokerError::NameTaken { name: name.to_owned() }),
            Err(error) => return Err(system("bind the node service's name")(error)),
        }
        // All ranks of a node may knock at once; the kernel cuts this to its own limit
        // (net.core.somaxconn).
        listen(&listener, 4096).map_err(system("listen at the node service's name"))?;
        Ok(Broker { listener, name: name.to_owned() })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next connection that waits, `None` if none does. Never blocks; poll the descriptor for
    /// reading to sleep.
    ///
    /// # Errors
    ///
    /// [`BrokerError::OtherUser`] if the one at the door runs as another user: it has been turned
    /// away, go on with the next. [`BrokerError::System`].
    pub fn accept(&self) -> Result<Option<Connection>, BrokerError> {
        match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => Connection::with_own_user(socket).map(Some),
            // Whoever knocked may have gone again.
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
            Err(error) => Err(system("accept a connection")(error)),
        }
    }
}

impl AsFd for Broker {
    /// Readable when a connection waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Connects to the service at `name`. A service that is just starting may bind its name a moment
/// later, so this tries again until `timeout` has passed.
///
/// # Errors
///
/// [`BrokerError::NoService`], [`BrokerError::OtherUser`] if another user has bound the name,
/// [`BrokerError::Name`], [`BrokerError::System`].
pub fn connect(name: &str, timeout: Duration) -> Result<Connection, BrokerError> {
    let address = address(name)?;
    let started = Instant::now();
    let mut pause = Duration::from_micros(50);
    loop {
        let socket = socket()?;
        match connect_socket(&socket, &address) {
            Ok(()) => return Connection::with_own_user(socket),
            // Nobody listens (yet), or more knock than the listener's queue holds.
            Err(Errno::CONNREFUSED | Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(system("connect to the node service")(error)),
        }
        let Some(left) = timeout.checked_sub(started.elapsed()).filter(|left| !left.is_zero())
        else {
            return Err(BrokerError::NoService { name: name.to_owned(), waited: timeout });
        };
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// One end of a conversation with a process of the same user.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    peer: Peer,
}

impl Connection {
    fn with_own_user(socket: OwnedFd) -> Result<Connection, BrokerError> {
        let peer = Peer::of(&socket).map_err(system("ask who connects"))?;
        peer.check(rustix::process::geteuid().as_raw())?;
        Ok(Connection { socket, peer })
    }

    /// Who is at the other end: the process that called [`connect`] or [`Broker::bind`].
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

    /// The next message; waits for it at most `timeout` (`None`: for ever; zero: not at all).
    ///
    /// # Errors
    ///
    /// [`BrokerError::TimedOut`], [`BrokerError::Closed`], [`BrokerError::Truncated`],
    /// [`BrokerError::WrongMagic`], [`BrokerError::WrongVersion`], [`BrokerError::System`]. After a
    /// malformed message close the connection.
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
    /// Readable when a message waits or the other side has closed.
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
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(system("make a local socket"))
}

fn system(action: &'static str) -> impl Fn(Errno) -> BrokerError {
    move |error| BrokerError::System { action, source: error.into() }
}
