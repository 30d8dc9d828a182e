//! A connection with a published name.

use crate::connection::{ConnectionError, SendLimit};
use crate::owner::ProgramOwner;
use crate::peer_error::PeerError;
use crate::port::{Port, PortError, PortEvent, PortReceiver, PortSender};
use crate::private_names::private_name;
use crate::process::{SERVER_TIMEOUT, add_program, default_name, published, starter};
use crate::remote::reach;
use crate::target::Target;
use crate::wire::{NameError, Refusal};
use queues::id::QueueName;
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
    name: QueueName,
    sender: PortSender,
    receiver: PortReceiver,
    _owner: ProgramOwner,
}

/// Connects with the program that has published a name: `solver` on this node, `solver@host` or
/// `solver@host:port` on another one.
///
/// The program may have published it a moment ago and still be opening its port, for which the
/// call waits. Without a port, the first of `TRADEWIND_PORTS` is used, or
/// [`NAMES_PORT`](crate::NAMES_PORT). The secret for other nodes is in `TRADEWIND_SECRET`, or in the
/// file that `TRADEWIND_SECRET_FILE` names.
///
/// # Errors
///
/// [`PeerError::InvalidName`], [`PeerError::Unknown`]; [`PeerError::Start`] if the name server
/// cannot be started; [`PeerError::Excluded`]. For another node also [`PeerError::NoSecret`] and
/// [`PeerError::Unreachable`].
pub fn connect(target: &str) -> Result<ConnectedPort, PeerError> {
    connect_at(&default_name(), target, || starter(None))
}

/// Connects as [`connect`] does, through the name server of this name. `starter` as for
/// [`add_program`].
///
/// # Errors
///
/// As [`connect`].
pub fn connect_at(
    server: &str,
    target: &str,
    starter: impl Fn() -> std::process::Command,
) -> Result<ConnectedPort, PeerError> {
    let target = Target::parse(target)?;
    let remote = target.node.as_ref().map(reach).transpose()?;
    // A program of this connection alone: the name server records it for replies.
    let program = private_name()?;
    let owner = add_program(server, &program, starter)?;
    let port = Port::open(server, &program, owner.key(), SERVER_TIMEOUT)?;
    let deadline = Instant::now() + SERVER_TIMEOUT;
    let look_up = || {
        // A program of this node stands for one of another node.
        let program = match &remote {
            Some((node, key)) => port.open_remote(&target.name, node, *key, deadline)?,
            None => target.name.clone(),
        };
        port.look_up(&program, deadline)
    };
    let name = look_up().map_err(|error| explain_lookup(error, &target, server))?;
    let waited = SERVER_TIMEOUT;
    let name = name.ok_or_else(|| PeerError::NotServed { name: target.to_string(), waited })?;
    let (mut sender, receiver) = port.split();
    match sender.connection(name, SendLimit::Until(Some(deadline))) {
        Ok(_) => Ok(ConnectedPort { target, name, sender, receiver, _owner: owner }),
        Err(PortError::Names(error)) => Err(explain_lookup(error, &target, server)),
        Err(error) => Err(error.into()),
    }
}

/// Converts the error of a look-up or of the first connection.
fn explain_lookup(error: NameError, target: &Target, server: &str) -> PeerError {
    let refusal = match error {
        NameError::Refused { refusal, .. } => refusal,
        error => return error.into(),
    };
    let node = || target.node.as_ref().map(ToString::to_string).unwrap_or_default();
    let name = target.name.clone();
    match refusal {
        Refusal::UnknownProgram => {
            let entries = published(server).unwrap_or_default();
            let published = entries.into_iter().map(|entry| entry.name).collect();
            PeerError::Unknown { name, place: "this node".to_owned(), published }
        }
        Refusal::UnknownThere { published } => {
            let published = published.split(", ").filter(|name| !name.is_empty());
            let published = published.map(str::to_owned).collect();
            PeerError::Unknown { name, place: node(), published }
        }
        Refusal::Unreachable { why } => PeerError::Unreachable { node: node(), why },
        Refusal::Excluded => PeerError::Excluded { name: target.to_string() },
        // It ended between the look-up and the connection.
        Refusal::ProcessGone | Refusal::UnknownName | Refusal::Closed => {
            PeerError::Ended { name: target.to_string() }
        }
        refusal => NameError::Refused { action: format!("connect with {target}"), refusal }.into(),
    }
}

impl ConnectedPort {
    /// Returns the name that the program has published, with the node if it is on another one.
    pub fn target(&self) -> String {
        self.target.to_string()
    }

    /// Sends a message of up to [`MAX_MESSAGE_BYTES`](crate::MAX_MESSAGE_BYTES) (4,088) bytes.
    /// Blocks while there is no space. Messages arrive in the order in which they were sent.
    ///
    /// # Errors
    ///
    /// [`PeerError::Ended`], [`PeerError::Closed`], [`PeerError::Excluded`] and
    /// [`PeerError::Oversized`]. Messages that were sent before the other end left may have been
    /// received or not.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), PeerError> {
        self.deliver(bytes, SendLimit::Until(None)).map(drop)
    }

    /// Sends as [`Self::send`] does if there is space. Returns false if there is none.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn try_send(&mut self, bytes: &[u8]) -> Result<bool, PeerError> {
        self.deliver(bytes, SendLimit::Immediate)
    }

    fn deliver(&mut self, bytes: &[u8], limit: SendLimit) -> Result<bool, PeerError> {
        self.sender.send(self.name, 0, bytes, limit).map_err(|error| self.explain_sender(error))
    }

    /// Receives the next message of the program. Blocks until there is one.
    ///
    /// # Errors
    ///
    /// [`PeerError::Ended`], [`PeerError::Closed`], [`PeerError::Excluded`], after all messages that
    /// were sent before.
    pub fn recv(&mut self) -> Result<&[u8], PeerError> {
        while !self.wait(None)? {}
        Ok(self.receiver.bytes())
    }

    /// Receives as [`Self::recv`] does, and blocks at most for `timeout`; then returns `None`.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<&[u8]>, PeerError> {
        let received = self.wait(Instant::now().checked_add(timeout))?;
        Ok(received.then_some(self.receiver.bytes()))
    }

    /// Receives as [`Self::recv`] does if there is a message.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`].
    pub fn try_recv(&mut self) -> Result<Option<&[u8]>, PeerError> {
        self.recv_timeout(Duration::ZERO)
    }

    /// Waits for a message. Returns false at the deadline.
    fn wait(&mut self, deadline: Option<Instant>) -> Result<bool, PeerError> {
        loop {
            let slice = Instant::now() + LIVENESS_INTERVAL;
            let until = deadline.map_or(slice, |deadline| deadline.min(slice));
            if self.take(until)? {
                return Ok(true);
            }
            // The program may never have replied: then only the sending end shows that it has left.
            if let Err(error) = self.sender.check(self.name) {
                // It may have replied after the last poll and left afterwards. From another node its
                // replies may still be on their way to this program's ring.
                let on_their_way =
                    self.target.node.as_ref().map_or(Duration::ZERO, |_| LAST_REPLIES);
                return match self.take(Instant::now() + on_their_way) {
                    Ok(true) => Ok(true),
                    Ok(false) | Err(_) => Err(self.explain_sender(error)),
                };
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
        }
    }

    /// Receives the next message. Returns false if none arrives until `deadline`.
    fn take(&mut self, deadline: Instant) -> Result<bool, PeerError> {
        loop {
            match self.receiver.recv(Some(deadline)) {
                Ok(Some(PortEvent::Message(_))) => return Ok(true),
                Ok(Some(PortEvent::Disconnected(error))) => {
                    // The end of a program that had the name before is none of the name's.
                    let is_former =
                        error.peer().is_some_and(|peer| self.sender.is_elsewhere(self.name, peer));
                    if !is_former {
                        return Err(self.explain(error));
                    }
                }
                Ok(None) => return Ok(false),
                // Without a name server the sending end still shows whether the program is alive.
                Err(PortError::Names(NameError::ServerGone)) => {
                    self.sender.check(self.name).map_err(|error| self.explain_sender(error))?;
                    return Err(PeerError::ServerEnded);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Converts an error of the sending end, which may have opened another connection.
    fn explain_sender(&self, error: PortError) -> PeerError {
        match error {
            PortError::Connection(error) => self.explain(error),
            PortError::Names(NameError::Refused { refusal: Refusal::Excluded, .. }) => {
                PeerError::Excluded { name: self.target() }
            }
            PortError::Names(NameError::Refused { .. }) => PeerError::Ended { name: self.target() },
            PortError::Names(error) => error.into(),
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
