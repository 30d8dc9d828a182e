//! A published name: the port of a program that others connect to.

use crate::connection::{ConnectionError, SendLimit};
use crate::owner::ProgramOwner;
use crate::peer_error::PeerError;
use crate::port::{PortError, PortEvent, PortReceiver, PortSender};
use crate::private_names::REMOTE;
use crate::process::{SERVER_TIMEOUT, add_program, default_name, starter};
use crate::reserved;
use crate::target::check_name;
use crate::wire::{NameError, Refusal, Request};
use queues::id::SourceName;
use std::time::{Duration, Instant};

/// A name that this process has published, and the messages of the programs that are connected with
/// it. Dropping it withdraws the name.
#[derive(Debug)]
pub struct PublishedPort {
    name: String,
    replies: PortSender,
    requests: PortReceiver,
    /// Another program has the name now.
    is_moved: bool,
    /// `None` if the launcher of this process is the owner.
    _owner: Option<ProgramOwner>,
}

/// A program that is connected with a published name, to which a reply goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    source: SourceName,
    /// Generation of the name's destination when the message was received. A name is used again
    /// for another client after the end of the first; no reply for the first may go to it.
    generation: u16,
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
    /// The name has [moved](PublishedPort::move_to), and all clients have gone over.
    Moved,
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
    let server = default_name();
    match reserved::open(&server, check_name(name)?)? {
        Some(port) => Ok(PublishedPort::new(name, port.split(), None)),
        None => publish_at(&server, name, || starter(None)),
    }
}

/// Publishes a name as [`publish`] does, at the name server of this name. `starter` as for
/// [`add_program`].
///
/// # Errors
///
/// As [`publish`].
pub fn publish_at(
    server: &str,
    name: &str,
    starter: impl Fn() -> std::process::Command,
) -> Result<PublishedPort, PeerError> {
    let owner = add_program(server, check_name(name)?, starter)?;
    let port = crate::port::Port::open(server, name, owner.key(), SERVER_TIMEOUT)?;
    Ok(PublishedPort::new(name, port.split(), Some(owner)))
}

impl PublishedPort {
    fn new(
        name: &str,
        (replies, requests): (PortSender, PortReceiver),
        owner: Option<ProgramOwner>,
    ) -> PublishedPort {
        PublishedPort { name: name.to_owned(), replies, requests, is_moved: false, _owner: owner }
    }

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
        // Without a deadline `None` does not occur.
        let event = self.next(None)?.unwrap_or(Next::Moved);
        Ok(self.convert(event))
    }

    /// Receives as [`Self::recv`] does, and blocks at most for `timeout`; then returns `None`.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<PeerEvent<'_>>, PeerError> {
        let next = self.next(Instant::now().checked_add(timeout))?;
        Ok(next.map(|next| self.convert(next)))
    }

    /// Receives as [`Self::recv`] does if there is a message or an end of a connection.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`].
    pub fn try_recv(&mut self) -> Result<Option<PeerEvent<'_>>, PeerError> {
        self.recv_timeout(Duration::ZERO)
    }

    fn next(&mut self, deadline: Option<Instant>) -> Result<Option<Next>, PeerError> {
        loop {
            if self.is_moved {
                // Clients go over when their messages have been received, which a receiver that
                // never sleeps would publish late.
                self.requests.publish_positions();
                if self.requests.connections() == 0 {
                    return Ok(Some(Next::Moved));
                }
            }
            match self.requests.recv(deadline)? {
                // The client has gone over, or has ended.
                Some(PortEvent::Disconnected(_)) if self.is_moved => {}
                event => return Ok(event.map(Next::Event)),
            }
        }
    }

    fn convert(&self, next: Next) -> PeerEvent<'_> {
        match next {
            Next::Moved => PeerEvent::Moved,
            Next::Event(PortEvent::Message(source)) => {
                let generation = self.replies.port().entry(source.into()).generation;
                let client = Client { source, generation };
                PeerEvent::Message { client, bytes: self.requests.bytes() }
            }
            Next::Event(PortEvent::Disconnected(error)) => PeerEvent::Ended(explain(error)),
        }
    }

    /// Sends a message of up to [`MAX_MESSAGE_BYTES`](crate::MAX_MESSAGE_BYTES) (4,088) bytes to a
    /// client. Blocks while the client has not received earlier ones and there is no space; messages
    /// of other clients are not received meanwhile.
    ///
    /// # Errors
    ///
    /// [`PeerError::Ended`] and [`PeerError::Closed`] for a client that has left,
    /// [`PeerError::Oversized`].
    pub fn reply(&mut self, client: Client, bytes: &[u8]) -> Result<(), PeerError> {
        self.send(client, bytes, SendLimit::Until(None)).map(drop)
    }

    /// Sends a message as [`Self::reply`] does if there is space. Returns false if there is none.
    ///
    /// # Errors
    ///
    /// As [`Self::reply`].
    pub fn try_reply(&mut self, client: Client, bytes: &[u8]) -> Result<bool, PeerError> {
        self.send(client, bytes, SendLimit::Immediate)
    }

    fn send(&mut self, client: Client, bytes: &[u8], limit: SendLimit) -> Result<bool, PeerError> {
        self.check(client)?;
        self.replies.send(client.source.into(), 0, bytes, limit).map_err(of_client)
    }

    /// Checks that the name of a client still means that client.
    fn check(&self, client: Client) -> Result<(), PeerError> {
        match client.generation == self.replies.port().entry(client.source.into()).generation {
            true => Ok(()),
            false => Err(PeerError::Ended { name: client_text() }),
        }
    }

    /// Excludes the program of a client: its connections end with [`PeerError::Excluded`], what it
    /// has sent is not received any more, and its process gets no other connection to this name. A
    /// program on another node is excluded only with this connection.
    ///
    /// # Errors
    ///
    /// [`PeerError::Ended`] for a client that has left, [`PeerError::ServerEnded`].
    pub fn refuse(&mut self, client: Client) -> Result<(), PeerError> {
        self.check(client)?;
        let request = Request::Refuse { name: client.source.into() };
        Ok(self.replies.port().change("exclude a program", &request)?)
    }

    /// Ends the exclusion of a program by [`Self::refuse`]. It may connect again.
    ///
    /// # Errors
    ///
    /// As [`Self::refuse`].
    pub fn admit(&mut self, client: Client) -> Result<(), PeerError> {
        self.check(client)?;
        let request = Request::Admit { name: client.source.into() };
        Ok(self.replies.port().change("admit a program", &request)?)
    }

    /// Gives the name to the program that has published `successor`, which then has both. Programs
    /// that connect from now on reach it, and connected clients go over with their next message;
    /// they notice nothing. No message is lost, duplicated or reordered: a client goes over when
    /// this program has received everything that it has sent before.
    ///
    /// So go on receiving until [`PeerEvent::Moved`]: a message that is not received here is lost
    /// with this port, which its client finds as [`PeerError::Ended`] or [`PeerError::Closed`]. A
    /// client that sends nothing does not go over, and does not notice the end of this port.
    ///
    /// # Errors
    ///
    /// [`PeerError::Unknown`] if no program has published `successor`;
    /// [`PeerError::ServerEnded`].
    pub fn move_to(&mut self, successor: &str) -> Result<(), PeerError> {
        let request = Request::Move { to: check_name(successor)?.to_owned() };
        let moved = self.replies.port().change("move the name", &request);
        moved.map_err(|error| match error {
            NameError::Refused { refusal: Refusal::UnknownProgram, .. } => {
                let place = "this node".to_owned();
                PeerError::Unknown { name: successor.to_owned(), place, published: Vec::new() }
            }
            error => error.into(),
        })?;
        self.is_moved = true;
        // The clients of messages that were received go over, whatever this program does next.
        self.requests.publish_positions();
        Ok(())
    }
}

/// Result of a receive, without the data of a message.
enum Next {
    Event(PortEvent),
    Moved,
}

fn client_text() -> String {
    "the client".to_owned()
}

/// Converts the error of a reply.
fn of_client(error: PortError) -> PeerError {
    match error {
        PortError::Connection(error) => PeerError::of_connection(error, client_text),
        // The stand-in of a client on another node receives nothing after the end of the client.
        PortError::Names(NameError::Refused {
            refusal: Refusal::ProcessGone | Refusal::Closed | Refusal::UnknownName,
            ..
        }) => PeerError::Ended { name: client_text() },
        error => error.into(),
    }
}

/// Converts the reason for the end of a client's connection.
fn explain(error: ConnectionError) -> PeerError {
    // The process that stands for clients of other nodes is the name server.
    if let ConnectionError::Gone { peer } = &error
        && peer.program.starts_with(REMOTE)
    {
        return PeerError::ServerEnded;
    }
    let name = peer_text(&error);
    PeerError::of_connection(error, || name)
}

/// Returns the client that an error of its connection names.
fn peer_text(error: &ConnectionError) -> String {
    match error {
        ConnectionError::Gone { peer }
        | ConnectionError::GoneThere { peer }
        | ConnectionError::Closed { peer }
        | ConnectionError::Refused { peer }
        | ConnectionError::NodeLost { peer } => match peer.program.split_once(REMOTE) {
            Some((_, node)) => {
                let node = node.split_once('#').map_or(node, |(node, _)| node);
                format!("a client on {node}")
            }
            None => format!("the client with process {}", peer.pid),
        },
        _ => client_text(),
    }
}
