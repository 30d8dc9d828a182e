//! The receiving side of a port: messages of all connections to it, one from each in turn.

use super::error::PortError;
use super::handle::Port;
use crate::connection::{ConnectionError, Receiver};
use crate::error::system;
use crate::wire::NameError;
use queues::id::SourceName;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;
use shm::sync::spin_loop;
use shm::wait::UNCERTAIN_SLICE;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of polls after which the notices of the name server are checked.
const CHECK_INTERVAL: u32 = 256;

/// Number of polls before the first sleep.
const SPINS: u32 = 100;

/// Longest sleep before the notices of the name server are checked. Another thread may have read
/// them from the server's socket.
const SLICE: Duration = Duration::from_millis(250);

/// Result of a receive.
#[derive(Debug)]
pub(crate) enum PortEvent {
    /// A message from this source, which [`PortReceiver::bytes`] returns.
    Message(SourceName),
    /// One of the connections has ended. The others continue.
    Disconnected(ConnectionError),
}

/// The receiving side of a port.
#[derive(Debug)]
pub(crate) struct PortReceiver {
    port: Arc<Port>,
    connections: Vec<Receiver>,
    /// Index of the connection with the last message.
    turn: usize,
    bytes: Vec<u8>,
    /// Polls until the next check of the notices.
    countdown: u32,
    /// Number of notices that have been processed.
    notices: u64,
}

impl PortReceiver {
    pub(super) fn new(port: Arc<Port>) -> PortReceiver {
        PortReceiver {
            port,
            connections: Vec::new(),
            turn: 0,
            bytes: Vec::new(),
            countdown: 1,
            notices: 0,
        }
    }

    /// Returns the number of connections to the port.
    pub(crate) fn connections(&self) -> usize {
        self.connections.len() + self.port.server.incoming()
    }

    /// Returns the last received message.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Publishes to all senders what has been received.
    pub(crate) fn publish_positions(&mut self) {
        self.connections.iter_mut().for_each(Receiver::publish_position);
    }

    /// Receives the next message, or the end of a connection. Blocks until there is one, at most
    /// until `deadline`; then returns `None`.
    ///
    /// # Errors
    ///
    /// [`PortError::Connection`] for a connection that cannot be used, [`NameError::ServerGone`] if
    /// no connection is left and none can be opened, [`NameError::System`].
    pub(crate) fn recv(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Option<PortEvent>, PortError> {
        // A message under way arrives sooner than a thread falls asleep and wakes up.
        for _ in 0..SPINS {
            if let Some(event) = self.poll()? {
                return Ok(Some(event));
            }
            spin_loop();
        }
        loop {
            self.take_new_connections()?;
            if let Some(event) = self.poll()? {
                return Ok(Some(event));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
            // Connections work without the name server. Without both, no message can arrive any
            // more.
            if self.connections() == 0 && self.port.server.is_lost() {
                return Err(NameError::ServerGone.into());
            }
            self.sleep(deadline)?;
        }
    }

    /// Polls every connection once, beginning after the one with the last message.
    fn poll(&mut self) -> Result<Option<PortEvent>, PortError> {
        self.countdown -= 1;
        if self.countdown == 0 {
            self.countdown = CHECK_INTERVAL;
            self.take_new_connections()?;
        }
        let mut polled = 0;
        while polled < self.connections.len() {
            self.turn = if self.turn + 1 < self.connections.len() { self.turn + 1 } else { 0 };
            let connection = &mut self.connections[self.turn];
            match connection.try_recv(&mut self.bytes) {
                Ok(None) => polled += 1,
                Ok(Some(_)) => return Ok(Some(PortEvent::Message(connection.source()))),
                Err(error) => {
                    // The last connection takes this place. It is polled in the next call.
                    self.connections.swap_remove(self.turn);
                    return Ok(Some(PortEvent::Disconnected(error)));
                }
            }
        }
        Ok(None)
    }

    fn take_new_connections(&mut self) -> Result<(), PortError> {
        loop {
            // Loaded before the connections are taken: another thread may receive at any moment
            // that a connection has arrived and that it is closed. A notice that is counted here
            // concerns a connection that is taken below, if it was not taken before.
            let notices = self.port.server.notices();
            while let Some(connection) = self.port.accept()? {
                self.connections.push(connection);
            }
            if notices != self.notices {
                self.notices = notices;
                self.connections.iter_mut().for_each(Receiver::check_soon);
            }
            if self.port.server.notices() == notices {
                return Ok(());
            }
        }
    }

    fn sleep(&mut self, deadline: Option<Instant>) -> Result<(), PortError> {
        // First all announcements, then one barrier, then the last polls: a sender either sees its
        // announcement or its message is seen here.
        self.connections.iter_mut().for_each(Receiver::announce_sleep);
        // One heavy barrier is enough for all announcements, because all precede it. With no
        // connection there is no sender to miss, and the server's socket wakes this thread.
        let certain = self.connections.last_mut().is_none_or(|connection| connection.arm());
        if self.connections.iter_mut().any(Receiver::is_ready) {
            self.connections.iter().for_each(Receiver::cancel_sleep);
            return Ok(());
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let slice = if certain { SLICE } else { UNCERTAIN_SLICE };
        let woken = self.sleep_on_sockets(left.map_or(slice, |left| left.min(slice)))?;
        for (connection, woken) in self.connections.iter_mut().zip(woken) {
            // Only a woken connection has bytes in its socket to consume; for the others one store is
            // enough. A late wake-up of those stays in the socket and ends the next sleep early.
            if woken { connection.disarm() } else { connection.cancel_sleep() }
        }
        Ok(())
    }

    /// Sleeps on all descriptors. Returns for each connection whether it was woken.
    fn sleep_on_sockets(&self, limit: Duration) -> Result<Vec<bool>, PortError> {
        let server = &self.port.server;
        let all = self.connections.iter().map(AsFd::as_fd).chain([server.as_fd()]);
        let mut watched: Vec<PollFd<'_>> =
            all.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
        let watchable = server.watchable(self.connections.len());
        match poll(&mut watched[..watchable], Timespec::try_from(limit).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(watched[..self.connections.len()]
                .iter()
                .map(|connection| !connection.revents().is_empty())
                .collect()),
            Err(error) => Err(system("sleep until a message arrives")(error).into()),
        }
    }
}

impl Drop for PortReceiver {
    fn drop(&mut self) {
        self.port.server.stop_receiving();
    }
}
