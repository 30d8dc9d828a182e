//! The sending side of a port: it sends to any name, over connections that it opens on demand.

use super::error::PortError;
use super::handle::{Port, RESPONSE_TIMEOUT};
use crate::cache_line::LINE_DATA;
use crate::connection::{ConnectionError, SendLimit, Sender};
use crate::id::{QueueName, SourceName};
use crate::names::{NameError, Refusal};
use crate::receive_queues::Class;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Shortest time for which a send waits for the name server when a connection has to be opened.
/// Without it a program that only uses `try_send` would never get one.
const MIN_CONNECT_TIME: Duration = Duration::from_millis(250);

/// The sending side of a port.
#[derive(Debug)]
pub struct PortSender {
    port: Arc<Port>,
    connections: HashMap<(QueueName, Class), Sender>,
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

impl PortSender {
    pub(super) fn new(port: Arc<Port>) -> PortSender {
        PortSender { port, connections: HashMap::new() }
    }

    /// Returns the port.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Sends a message of up to [`MAX_MESSAGE_BYTES`](crate::names::MAX_MESSAGE_BYTES) (4,088)
    /// bytes to one of the receiver's handlers. Blocks while there is no space, and while messages
    /// of this port to the name are not yet received at the former destination of the name.
    ///
    /// # Errors
    ///
    /// [`PortError::Table`] for a name without a destination, [`NameError::Refused`],
    /// [`NameError::ServerGone`], [`NameError::NoAnswer`], [`PortError::Connection`], in which
    /// [`ConnectionError::Oversized`] is a message that is too long. A failed connection is opened
    /// again by the next message; by the same one, if the name has another destination by now.
    pub fn send(&mut self, name: QueueName, handler: u8, bytes: &[u8]) -> Result<(), PortError> {
        self.deliver((name, Class::Request), handler, bytes, SendLimit::Until(None)).map(drop)
    }

    /// Sends as [`Self::send`] does, and blocks at most for `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Self::send_deadline`].
    pub fn send_timeout(
        &mut self,
        name: QueueName,
        handler: u8,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<(), PortError> {
        let limit = SendLimit::Until(Instant::now().checked_add(timeout));
        self.deliver((name, Class::Request), handler, bytes, limit).map(drop)
    }

    /// Sends as [`Self::send`] does, and blocks at most until `deadline`. If a connection has to be
    /// opened first, it waits a quarter of a second for the name server in any case.
    ///
    /// # Errors
    ///
    /// As [`Self::send`], and [`ConnectionError::TimedOut`]; [`NameError::NoAnswer`] if the name
    /// server did not respond in time.
    pub fn send_deadline(
        &mut self,
        name: QueueName,
        handler: u8,
        bytes: &[u8],
        deadline: Instant,
    ) -> Result<(), PortError> {
        let limit = SendLimit::Until(Some(deadline));
        self.deliver((name, Class::Request), handler, bytes, limit).map(drop)
    }

    /// Sends as [`Self::send`] does if there is space. Returns false if there is none, or if a
    /// connection has to be opened and the name server does not respond within a quarter of a
    /// second.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn try_send(
        &mut self,
        name: QueueName,
        handler: u8,
        bytes: &[u8],
    ) -> Result<bool, PortError> {
        self.deliver((name, Class::Request), handler, bytes, SendLimit::Immediate)
    }

    /// Sends a reply to the sender of a message, as [`Self::send`] does. Requests to that port
    /// never delay it.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn reply(&mut self, to: SourceName, handler: u8, bytes: &[u8]) -> Result<(), PortError> {
        self.deliver((to.into(), Class::Reply), handler, bytes, SendLimit::Until(None)).map(drop)
    }

    /// Replies as [`Self::reply`] does, and blocks as [`Self::send_deadline`] does.
    ///
    /// # Errors
    ///
    /// As [`Self::send_deadline`].
    pub fn reply_deadline(
        &mut self,
        to: SourceName,
        handler: u8,
        bytes: &[u8],
        deadline: Instant,
    ) -> Result<(), PortError> {
        let limit = SendLimit::Until(Some(deadline));
        self.deliver((to.into(), Class::Reply), handler, bytes, limit).map(drop)
    }

    /// Replies as [`Self::reply`] does if there is space. Returns false as [`Self::try_send`] does.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn try_reply(
        &mut self,
        to: SourceName,
        handler: u8,
        bytes: &[u8],
    ) -> Result<bool, PortError> {
        self.deliver((to.into(), Class::Reply), handler, bytes, SendLimit::Immediate)
    }

    /// Closes the connections to a name. Messages sent to it later may overtake earlier ones.
    pub fn close(&mut self, name: QueueName) {
        self.connections.remove(&(name, Class::Request));
        self.connections.remove(&(name, Class::Reply));
    }

    /// Returns a connection for a message of this many bytes, opened if necessary.
    fn connection(
        &mut self,
        to: (QueueName, Class),
        bytes: usize,
        limit: SendLimit,
    ) -> Result<&mut Sender, PortError> {
        let dedicated = bytes > LINE_DATA;
        let is_outdated = |sender: &Sender| sender.is_over_queue() && sender.is_outdated();
        if dedicated && self.connections.get(&to).is_some_and(is_outdated) {
            // Earlier messages have to be received at the former destination before anything goes
            // to the new one; the name server refuses a new connection until then.
            self.connections.remove(&to).into_iter().for_each(Sender::replace);
        }
        match self.connections.entry(to) {
            Entry::Occupied(mut current) if dedicated && current.get().is_over_queue() => {
                // The receiver takes the messages in its receive queue before those of the new
                // connection, so the order of this sender is kept.
                let new = self.port.open_sender(to, dedicated, connect_deadline(limit))?;
                current.insert(new).replace();
                Ok(current.into_mut())
            }
            Entry::Occupied(current) => Ok(current.into_mut()),
            Entry::Vacant(vacant) => {
                Ok(vacant.insert(self.port.open_sender(to, dedicated, connect_deadline(limit))?))
            }
        }
    }

    fn deliver(
        &mut self,
        to: (QueueName, Class),
        handler: u8,
        bytes: &[u8],
        limit: SendLimit,
    ) -> Result<bool, PortError> {
        loop {
            let error = match self.connection(to, bytes.len(), limit) {
                Ok(connection) => match connection.send_limited(handler, bytes, limit) {
                    Ok(sent) => return Ok(sent),
                    Err(error) => error,
                },
                Err(
                    error @ PortError::Names(NameError::Refused {
                        refusal: Refusal::Moving, ..
                    }),
                ) => match limit {
                    SendLimit::Immediate => return Ok(false),
                    SendLimit::Until(Some(deadline)) if Instant::now() >= deadline => {
                        return Err(error);
                    }
                    // The name is moving: the receiver first takes what this port has sent to the
                    // former destination. The server reports the end of that, so no polling is
                    // needed.
                    SendLimit::Until(deadline) => {
                        self.port.server().wait_for_notice(deadline)?;
                        continue;
                    }
                },
                Err(PortError::Names(NameError::NoAnswer { .. }))
                    if matches!(limit, SendLimit::Immediate) =>
                {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            // The connection remains usable: only this message was refused, or its time is over.
            if !error.is_final() {
                return Err(error.into());
            }
            // A failed connection has not accepted the message, so it may be sent again. That is
            // done if the name has another destination now: another process has replaced the
            // receiver.
            match self.connections.remove(&to) {
                Some(connection)
                    if matches!(error, ConnectionError::Moved { .. })
                        || connection.is_outdated() =>
                {
                    connection.replace()
                }
                _ => return Err(error.into()),
            }
        }
    }
}
