//! The sending side of a port: it sends to any name, over connections that it opens on demand.

use super::error::PortError;
use super::handle::{Port, RESPONSE_TIMEOUT};
use crate::connection::{ConnectionError, SendLimit, Sender};
use crate::wire::{NameError, Peer};
use queues::id::QueueName;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Shortest time for which a send waits for the name server when a connection has to be opened.
/// Without it a program that only uses `try_send` would never get one.
const MIN_CONNECT_TIME: Duration = Duration::from_millis(250);

/// The sending side of a port.
#[derive(Debug)]
pub(crate) struct PortSender {
    port: Arc<Port>,
    connections: HashMap<QueueName, Sender>,
}

impl PortSender {
    pub(super) fn new(port: Arc<Port>) -> PortSender {
        PortSender { port, connections: HashMap::new() }
    }

    /// Returns the port.
    pub(crate) fn port(&self) -> &Port {
        &self.port
    }

    /// Sends a message of up to [`MAX_MESSAGE_BYTES`](crate::MAX_MESSAGE_BYTES) bytes to one of the
    /// receiver's handlers. Blocks while there is no space, and while messages to the name have not
    /// been received at its former destination. If a connection has to be opened, it waits a quarter
    /// of a second for the name server in any case. Returns false if the limit is immediate, and it
    /// would have blocked.
    ///
    /// # Errors
    ///
    /// [`PortError::Names`] for a name without a destination; [`PortError::Connection`], in which
    /// [`ConnectionError::Oversized`] is a message that is too long. A failed connection is opened
    /// again by the next message; by the same one, if the name has another destination by now.
    pub(crate) fn send(
        &mut self,
        name: QueueName,
        handler: u8,
        bytes: &[u8],
        limit: SendLimit,
    ) -> Result<bool, PortError> {
        loop {
            let outcome = match self.connection(name, limit) {
                Ok(connection) => connection.send(handler, bytes, limit),
                Err(PortError::Names(NameError::NoAnswer { .. }))
                    if matches!(limit, SendLimit::Immediate) =>
                {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            match outcome {
                Ok(is_sent) => return Ok(is_sent),
                // The connection remains usable: only this message was refused, or its time is over.
                Err(error) if !error.is_final() => return Err(error.into()),
                // The message was not accepted. It is sent to the other destination that the name
                // has now.
                Err(ConnectionError::Moved { .. }) => drop(self.connections.remove(&name)),
                Err(error) => {
                    self.connections.remove(&name);
                    return Err(error.into());
                }
            }
        }
    }

    /// Checks that the receiver at a name is alive. Connects with the one that has the name now.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub(crate) fn check(&mut self, name: QueueName) -> Result<(), PortError> {
        let checked = self.connections.get_mut(&name).map(Sender::check);
        if let Some(checked) = checked
            && !matches!(checked, Err(ConnectionError::Moved { .. }))
        {
            return Ok(checked?);
        }
        self.connections.remove(&name);
        match self.connection(name, SendLimit::Immediate) {
            // A later check or message tries again.
            Err(PortError::Names(NameError::NoAnswer { .. })) => Ok(()),
            connected => connected.map(drop),
        }
    }

    /// Returns true if a name does not lead, or no longer, to this program.
    pub(crate) fn is_elsewhere(&self, name: QueueName, peer: &Peer) -> bool {
        let connection = self.connections.get(&name);
        // Not only the process: a process may publish several names.
        connection.is_none_or(|sender| sender.peer() != peer || sender.is_outdated())
    }

    /// Opens the connection to a name, unless it is open.
    pub(crate) fn connection(
        &mut self,
        name: QueueName,
        limit: SendLimit,
    ) -> Result<&mut Sender, PortError> {
        match self.connections.entry(name) {
            Entry::Occupied(current) => Ok(current.into_mut()),
            Entry::Vacant(vacant) => {
                Ok(vacant.insert(self.port.connect(name, connect_deadline(limit))?))
            }
        }
    }
}

/// Returns the deadline for opening a connection.
fn connect_deadline(limit: SendLimit) -> Instant {
    let now = Instant::now();
    let soonest = now + MIN_CONNECT_TIME;
    let latest = now + RESPONSE_TIMEOUT;
    match limit {
        SendLimit::Immediate => soonest,
        SendLimit::Until(deadline) => {
            deadline.map_or(latest, |deadline| deadline.clamp(soonest, latest))
        }
    }
}
