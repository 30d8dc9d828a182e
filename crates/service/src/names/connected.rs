//! A connection with a published name.

use super::open_job::{PRIVATE, SERVER_TIMEOUT, open_job};
use super::peer_error::PeerError;
use super::process::{add_job, published};
use super::remote::reach;
use super::target::Target;
use queues::connection::{ConnectionError, Sender};
use queues::names::{JobOwner, NameError, PortAddress, Refusal};
use queues::port::{Class, Identity, NameClient, PortError, PortEvent, PortReceiver};
use std::time::{Duration, Instant};

/// Longest time for which a receive waits before it checks that the other end is alive.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(250);

/// Time within which the name server passes on the next reply of a program on another node that has
/// ended.
const LAST_REPLIES: Duration = Duration::from_secs(1);

/// A connection with a program that has published a name. Dropping it ends the connection.
#[derive(Debug)]
pub struct ConnectedPort {
    target: Target,
    sender: Sender,
    receiver: PortReceiver,
    /// The last received message.
    bytes: Vec<u8>,
    _registration: NameClient,
    _owner: JobOwner,
}

/// Connects with the program that has published a name: `solver` on this node, `solver@host` or
/// `solver@host:port` on another one.
///
/// The program may have published it a moment ago and still be opening its port, for which the
/// call waits. Without a port, the first of `TRADEWIND_PORTS` is used, or
/// [`NAMES_PORT`](super::NAMES_PORT). The secret for other nodes is in `TRADEWIND_SECRET`, or in the
/// file that `TRADEWIND_SECRET_FILE` names.
///
/// # Errors
///
/// [`PeerError::InvalidName`], [`PeerError::Unknown`]; [`PeerError::Start`] if the name server
/// cannot be started. For another node also [`PeerError::NoSecret`] and
/// [`PeerError::Unreachable`].
pub fn connect(target: &str) -> Result<ConnectedPort, PeerError> {
    let target = Target::parse(target)?;
    let remote = target.node.as_ref().map(reach).transpose()?;
    // A job of this connection alone: its name server records it for the rights and for replies.
    let job = private_name()?;
    let owner = add_job(&open_job(&job, 1), SERVER_TIMEOUT)?;
    let identity = Identity::new(&job, 0, owner.key());
    let registration = NameClient::register(owner.name_server(), &identity, SERVER_TIMEOUT)?;
    let port = registration.open_port(0)?;
    let deadline = Instant::now() + SERVER_TIMEOUT;
    let open = || {
        // A job of this node stands for a program of another one.
        let job = match &remote {
            Some((node, key)) => registration.open_remote(&target.name, node, *key, deadline)?,
            None => target.name.clone(),
        };
        let address = PortAddress::new(&job, 0, 0);
        let name = registration.look_up_open(&address, deadline)?;
        port.open_connection(name, Class::Request)
    };
    let sender = open().map_err(|error| explain_lookup(error, &target, owner.name_server()))?;
    let (_, receiver) = port.split();
    Ok(ConnectedPort {
        target,
        sender,
        receiver,
        bytes: Vec::new(),
        _registration: registration,
        _owner: owner,
    })
}

/// Returns an unused name for the job of a connection.
pub(super) fn private_name() -> Result<String, NameError> {
    let random: [u8; 16] =
        shm::random::bytes().map_err(queues::names::system("get random bytes from the system"))?;
    let number = u64::from_ne_bytes(*random.first_chunk().unwrap_or(&[0; 8]));
    Ok(format!("{PRIVATE}{}.{number:016x}", std::process::id()))
}

/// Converts the error of a look-up.
fn explain_lookup(error: PortError, target: &Target, server: &str) -> PeerError {
    match error {
        PortError::Names(NameError::Refused { refusal: Refusal::UnknownJob, .. }) => {
            let jobs = published(server).unwrap_or_default();
            let published = jobs.into_iter().map(|job| job.name).collect();
            let place = "this node".to_owned();
            PeerError::Unknown { name: target.name.clone(), place, published }
        }
        PortError::Names(NameError::Refused {
            refusal: Refusal::UnknownThere { published },
            ..
        }) => {
            let published = published.split(", ").filter(|name| !name.is_empty());
            let published = published.map(str::to_owned).collect();
            let place = target.node.as_ref().map(ToString::to_string).unwrap_or_default();
            PeerError::Unknown { name: target.name.clone(), place, published }
        }
        PortError::Names(NameError::Refused { refusal: Refusal::Unreachable { why }, .. }) => {
            let node = target.node.as_ref().map(ToString::to_string).unwrap_or_default();
            PeerError::Unreachable { node, why }
        }
        PortError::NotOpen { waited, .. } => {
            PeerError::NotServed { name: target.to_string(), waited }
        }
        // It ended between the look-up and the connection.
        PortError::Names(NameError::Refused {
            refusal: Refusal::ProcessGone | Refusal::UnknownName,
            ..
        })
        | PortError::Table(_) => PeerError::Ended { name: target.to_string() },
        error => error.into(),
    }
}

impl ConnectedPort {
    /// Returns the name that the program has published, with the node if it is on another one.
    pub fn target(&self) -> String {
        self.target.to_string()
    }

    /// Sends a message of up to [`MAX_MESSAGE_BYTES`](queues::names::MAX_MESSAGE_BYTES) (4,088)
    /// bytes. Blocks while there is no space. Messages arrive in the order in which they were sent.
    ///
    /// # Errors
    ///
    /// [`PeerError::Ended`], [`PeerError::Closed`] and [`PeerError::Oversized`]. Messages that were
    /// sent before the other end left may have been received or not.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), PeerError> {
        self.sender.send(0, bytes).map_err(|error| self.explain(error))
    }

    /// Sends as [`Self::send`] does if there is space. Returns false if there is none.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn try_send(&mut self, bytes: &[u8]) -> Result<bool, PeerError> {
        self.sender.try_send(0, bytes).map_err(|error| self.explain(error))
    }

    /// Receives the next message of the program. Blocks until there is one.
    ///
    /// # Errors
    ///
    /// [`PeerError::Ended`], [`PeerError::Closed`], after all messages that were sent before.
    pub fn recv(&mut self) -> Result<&[u8], PeerError> {
        while !self.wait(None)? {}
        Ok(&self.bytes)
    }

    /// Receives as [`Self::recv`] does, and blocks at most for `timeout`; then returns `None`.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<&[u8]>, PeerError> {
        let received = self.wait(Instant::now().checked_add(timeout))?;
        Ok(received.then_some(&self.bytes))
    }

    /// Receives as [`Self::recv`] does if there is a message.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`].
    pub fn try_recv(&mut self) -> Result<Option<&[u8]>, PeerError> {
        self.recv_timeout(Duration::ZERO)
    }

    /// Waits for a message and stores it. Returns false at the deadline.
    fn wait(&mut self, deadline: Option<Instant>) -> Result<bool, PeerError> {
        loop {
            let slice = Instant::now() + LIVENESS_INTERVAL;
            let until = deadline.map_or(slice, |deadline| deadline.min(slice));
            if self.take(until)? {
                return Ok(true);
            }
            // The program may never have replied: then only the sending end shows that it has left.
            if let Err(error) = self.sender.check() {
                // It may have replied after the last poll and left afterwards. From another node its
                // replies may still be on their way to this program's ring.
                let on_their_way =
                    self.target.node.as_ref().map_or(Duration::ZERO, |_| LAST_REPLIES);
                return match self.take(Instant::now() + on_their_way) {
                    Ok(true) => Ok(true),
                    Ok(false) | Err(_) => Err(self.explain(error)),
                };
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
        }
    }

    /// Stores the next message. Returns false if none arrives until `deadline`.
    fn take(&mut self, deadline: Instant) -> Result<bool, PeerError> {
        match self.receiver.recv_deadline(deadline) {
            Ok(Some(PortEvent::Message(message))) => {
                self.bytes.clear();
                self.bytes.extend_from_slice(message.bytes);
                Ok(true)
            }
            Ok(Some(PortEvent::Disconnected(error))) => Err(self.explain(error)),
            Ok(None) => Ok(false),
            // Without a name server the sending end still shows whether the program is alive.
            Err(PortError::Names(NameError::ServerGone)) => {
                self.sender.check().map_err(|error| self.explain(error))?;
                Err(PeerError::ServerEnded)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn explain(&self, error: ConnectionError) -> PeerError {
        // The process that stands for a program of another node is the name server.
        if self.target.node.is_some() && matches!(error, ConnectionError::Gone { .. }) {
            return PeerError::ServerEnded;
        }
        PeerError::of_connection(error, || self.target())
    }
}
