//! A published name: the port of a program that others connect to.

use super::open_job::{REMOTE, SERVER_TIMEOUT};
use super::peer_error::PeerError;
use super::process::add_published_job;
use super::reserved;
use super::target::check_name;
use queues::connection::ConnectionError;
use queues::id::SourceName;
use queues::names::{JobOwner, NameError, Refusal, TableError};
use queues::port::{Identity, NameClient, PortError, PortEvent, PortReceiver, PortSender};
use std::time::Duration;

/// A name that this process has published, and the messages of the programs that are connected with
/// it. Dropping it withdraws the name.
#[derive(Debug)]
pub struct PublishedPort {
    name: String,
    replies: PortSender,
    requests: PortReceiver,
    _registration: NameClient,
    /// `None` if the launcher of this process is the owner.
    _owner: Option<JobOwner>,
}

/// A program that is connected with a published name, to which a reply goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    source: SourceName,
    /// Generation of the name's destination when the message was received. A name is used again
    /// for another client after the end of the first; no reply for the first may go to it.
    generation: Option<u16>,
}

/// Result of a receive at a published name.
#[derive(Debug)]
pub enum PeerEvent<'a> {
    /// A message.
    Message {
        /// Sender, to which a reply goes.
        client: Client,
        /// Data of the message.
        bytes: &'a [u8],
    },
    /// A connection has ended, for this reason. The others continue.
    Ended(PeerError),
}

/// Publishes a name on this node for the programs of this user.
///
/// The name server is started if there is none. A name that `tradewind run --serve` has published
/// for the job of this process is taken over, by the first rank that publishes it.
///
/// # Errors
///
/// [`PeerError::InvalidName`], [`PeerError::Taken`]; [`PeerError::Start`] if the name server cannot
/// be started.
pub fn publish(name: &str) -> Result<PublishedPort, PeerError> {
    let name = check_name(name)?;
    let (registration, owner) = match reserved::register(name)? {
        Some(registration) => (registration, None),
        None => register(name).map(|(registration, owner)| (registration, Some(owner)))?,
    };
    let (replies, requests) = registration.open_port(0)?.split();
    Ok(PublishedPort {
        name: name.to_owned(),
        replies,
        requests,
        _registration: registration,
        _owner: owner,
    })
}

/// Adds the job of a name and registers this process as its only one.
fn register(name: &str) -> Result<(NameClient, JobOwner), PeerError> {
    let owner = add_published_job(name, None)?;
    let identity = Identity::new(name, 0, owner.key());
    let registration = NameClient::register(owner.name_server(), &identity, SERVER_TIMEOUT)?;
    Ok((registration, owner))
}

impl PublishedPort {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Receives the next message, or the end of a connection. Blocks until there is one.
    ///
    /// # Errors
    ///
    /// [`PeerError::ServerEnded`] if no client is connected and none can connect any more.
    pub fn recv(&mut self) -> Result<PeerEvent<'_>, PeerError> {
        let event = self.requests.recv()?;
        Ok(convert(&self.replies, event))
    }

    /// Receives as [`Self::recv`] does, and blocks at most for `timeout`; then returns `None`.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<PeerEvent<'_>>, PeerError> {
        let event = self.requests.recv_timeout(timeout)?;
        Ok(event.map(|event| convert(&self.replies, event)))
    }

    /// Receives as [`Self::recv`] does if there is a message or an end of a connection.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`].
    pub fn try_recv(&mut self) -> Result<Option<PeerEvent<'_>>, PeerError> {
        let event = self.requests.try_recv()?;
        Ok(event.map(|event| convert(&self.replies, event)))
    }

    /// Sends a message of up to [`MAX_MESSAGE_BYTES`](queues::names::MAX_MESSAGE_BYTES) (4,088)
    /// bytes to a client. Blocks while the client has not received earlier ones and there is no
    /// space; messages of other clients are not received meanwhile.
    ///
    /// # Errors
    ///
    /// [`PeerError::Ended`] and [`PeerError::Closed`] for a client that has left,
    /// [`PeerError::Oversized`].
    pub fn reply(&mut self, client: Client, bytes: &[u8]) -> Result<(), PeerError> {
        self.check(client)?;
        self.replies.reply(client.source, 0, bytes).map_err(of_client)
    }

    /// Sends a message as [`Self::reply`] does if there is space. Returns false if there is none.
    ///
    /// # Errors
    ///
    /// As [`Self::reply`].
    pub fn try_reply(&mut self, client: Client, bytes: &[u8]) -> Result<bool, PeerError> {
        self.check(client)?;
        self.replies.try_reply(client.source, 0, bytes).map_err(of_client)
    }

    fn check(&self, client: Client) -> Result<(), PeerError> {
        match client.generation == generation(&self.replies, client.source) {
            true => Ok(()),
            false => Err(PeerError::Ended { name: client_text() }),
        }
    }
}

fn client_text() -> String {
    "the client".to_owned()
}

/// Converts the error of a reply.
fn of_client(error: PortError) -> PeerError {
    match error {
        PortError::Connection(error) => PeerError::of_connection(error, client_text),
        PortError::Table(TableError::ProcessGone { .. })
        // The stand-in of a client on another node receives nothing after the end of the client.
        | PortError::Names(NameError::Refused {
            refusal: Refusal::ProcessGone | Refusal::SourceRefused,
            ..
        }) => {
            PeerError::Ended { name: client_text() }
        }
        error => error.into(),
    }
}

fn generation(replies: &PortSender, source: SourceName) -> Option<u16> {
    replies.port().lookup(source.into()).ok().map(|destination| destination.generation)
}

fn convert<'a>(replies: &PortSender, event: PortEvent<'a>) -> PeerEvent<'a> {
    match event {
        PortEvent::Message(message) => {
            let source = message.source;
            let client = Client { source, generation: generation(replies, source) };
            PeerEvent::Message { client, bytes: message.bytes }
        }
        PortEvent::Disconnected(error) => {
            // The process that stands for clients of other nodes is the name server.
            if let ConnectionError::Gone { peer } = &error
                && peer.job.starts_with(REMOTE)
            {
                return PeerEvent::Ended(PeerError::ServerEnded);
            }
            let name = peer_text(&error);
            PeerEvent::Ended(PeerError::of_connection(error, || name))
        }
    }
}

/// Returns the client that an error of its connection names.
fn peer_text(error: &ConnectionError) -> String {
    match error {
        ConnectionError::Gone { peer }
        | ConnectionError::GoneThere { peer }
        | ConnectionError::Closed { peer }
        | ConnectionError::NodeLost { peer } => match peer.job.split_once(REMOTE) {
            Some((_, node)) => {
                let node = node.split_once('#').map_or(node, |(node, _)| node);
                format!("a client on {node}")
            }
            None => format!("the client with process {}", peer.pid),
        },
        _ => client_text(),
    }
}
