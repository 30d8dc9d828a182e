//! The receiving side of a port: messages of all connections to it, one from each in turn. All
//! senders that use the port's receive queue count as one connection.

use super::error::PortError;
use super::event::{PolledEvent, PortEvent, Received};
use super::handle::{Incoming, Port};
use super::queue::{PortQueue, QueueItem};
use crate::connection::{ConnectionError, Receiver};
use crate::names::{NameError, system};
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

/// The receiving side of a port.
#[derive(Debug)]
pub struct PortReceiver {
    port: Arc<Port>,
    connections: Vec<Receiver>,
    /// Connections that succeed one through the receive queue that has not ended yet, with the
    /// number of that one.
    successors: Vec<(u32, Receiver)>,
    /// Present if the process has receive queues.
    queue: Option<PortQueue>,
    /// True if the queue had the last message, so that the connections are polled first.
    is_connections_turn: bool,
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
        let queue = port.port_queue();
        PortReceiver {
            port,
            connections: Vec::new(),
            successors: Vec::new(),
            queue,
            is_connections_turn: false,
            turn: 0,
            bytes: Vec::new(),
            countdown: 1,
            notices: 0,
        }
    }

    /// Returns the port.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Returns the number of connections to the port: each is from one port under one name. A
    /// process can exit after its ports have been moved and this number is 0.
    pub fn connections(&self) -> usize {
        let over_queue = self.queue.as_ref().map_or(0, PortQueue::connections);
        self.connections.len() + self.successors.len() + over_queue + self.port.incoming()
    }

    /// Receives the next message, or the end of a connection. Blocks until there is one.
    ///
    /// # Errors
    ///
    /// [`PortError::Connection`] for a connection that cannot be used, [`NameError::ServerGone`] if
    /// no connection is left and none can be opened, [`PortError::Receive`], [`NameError::System`].
    pub fn recv(&mut self) -> Result<PortEvent<'_>, PortError> {
        loop {
            if let Some(event) = self.wait(None)? {
                return Ok(self.event(event));
            }
        }
    }

    /// Receives as [`Self::recv`] does, and blocks at most for `timeout`; then returns `None`.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<PortEvent<'_>>, PortError> {
        let event = self.wait(Instant::now().checked_add(timeout))?;
        Ok(event.map(|event| self.event(event)))
    }

    /// Receives as [`Self::recv`] does, and blocks at most until `deadline`; then returns `None`.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`].
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<Option<PortEvent<'_>>, PortError> {
        let event = self.wait(Some(deadline))?;
        Ok(event.map(|event| self.event(event)))
    }

    /// Receives as [`Self::recv`] does if there is a message or an end of a connection.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`].
    pub fn try_recv(&mut self) -> Result<Option<PortEvent<'_>>, PortError> {
        let event = self.poll()?;
        Ok(event.map(|event| self.event(event)))
    }

    fn event(&self, event: PolledEvent) -> PortEvent<'_> {
        match event {
            PolledEvent::Message { source, handler, class } => {
                PortEvent::Message(Received { source, handler, class, bytes: &self.bytes })
            }
            PolledEvent::Disconnected(error) => PortEvent::Disconnected(error),
        }
    }

    /// Waits for an event. Returns `None` at the deadline only.
    fn wait(&mut self, deadline: Option<Instant>) -> Result<Option<PolledEvent>, PortError> {
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
            if self.connections() == 0 && self.port.server().is_lost() {
                return Err(NameError::ServerGone.into());
            }
            self.sleep(deadline)?;
        }
    }

    /// Polls the receive queue and every connection once.
    fn poll(&mut self) -> Result<Option<PolledEvent>, PortError> {
        self.countdown -= 1;
        if self.countdown == 0 {
            self.countdown = CHECK_INTERVAL;
            self.take_new_connections()?;
        }
        // After each message of the queue the connections come first, so a busy queue does not
        // starve them.
        if self.is_connections_turn {
            self.is_connections_turn = false;
            if let Some(event) = self.poll_connections() {
                return Ok(Some(event));
            }
        }
        if let Some(event) = self.poll_queue()? {
            self.is_connections_turn = true;
            return Ok(Some(event));
        }
        Ok(self.poll_connections())
    }

    fn poll_queue(&mut self) -> Result<Option<PolledEvent>, PortError> {
        let Some(queue) = &mut self.queue else { return Ok(None) };
        loop {
            let (number, ended) = match queue.poll(&mut self.bytes)? {
                None => return Ok(None),
                Some(QueueItem::Event(event)) => return Ok(Some(event)),
                Some(QueueItem::Ended(number, ended)) => (number, ended),
            };
            for (_, mut connection) in
                self.successors.extract_if(.., |(before, _)| *before == number)
            {
                // A notice to move may have arrived while it waited for its predecessor.
                connection.check_soon();
                self.connections.push(connection);
            }
            // A moved connection continues elsewhere: the program sees no end.
            if !matches!(ended, PolledEvent::Disconnected(ConnectionError::Moved { .. })) {
                return Ok(Some(ended));
            }
        }
    }

    /// Polls every connection once, beginning after the one with the last message.
    fn poll_connections(&mut self) -> Option<PolledEvent> {
        let mut polled = 0;
        while polled < self.connections.len() {
            self.turn = if self.turn + 1 < self.connections.len() { self.turn + 1 } else { 0 };
            let connection = &mut self.connections[self.turn];
            match connection.try_recv(&mut self.bytes) {
                Ok(None) => polled += 1,
                Ok(Some(handler)) => {
                    return Some(PolledEvent::Message {
                        source: connection.source(),
                        handler,
                        class: connection.class(),
                    });
                }
                Err(error) => {
                    // The last connection takes this place. It is polled in this round or in the
                    // next call.
                    self.connections.swap_remove(self.turn);
                    // A moved connection continues elsewhere, without loss.
                    if !matches!(error, ConnectionError::Moved { .. }) {
                        return Some(PolledEvent::Disconnected(error));
                    }
                }
            }
        }
        None
    }

    fn take_new_connections(&mut self) -> Result<(), PortError> {
        loop {
            // Loaded before the connections are taken: another thread may receive at any moment
            // that a connection has arrived and that it is closed. A notice that is counted here
            // concerns a connection that is taken below, if it was not taken before.
            let notices = self.port.server().notices();
            self.take_incoming()?;
            if notices != self.notices {
                self.notices = notices;
                self.connections.iter_mut().for_each(Receiver::check_soon);
                if let Some(queue) = &mut self.queue {
                    queue.check_notices();
                }
            }
            if self.port.server().notices() == notices {
                return Ok(());
            }
        }
    }

    fn take_incoming(&mut self) -> Result<(), PortError> {
        while let Some(incoming) = self.port.accept_incoming()? {
            match (incoming, &mut self.queue) {
                // Messages of the preceding connection are still in the receive queue. The ring is
                // polled only after the last of them, so the sender's order is kept.
                (Incoming::Ring { receiver, after }, Some(queue)) if queue.has(after) => {
                    self.successors.push((after, receiver));
                }
                (Incoming::Ring { receiver, .. }, _) => self.connections.push(receiver),
                (Incoming::Queue(connection), Some(queue)) => queue.add(connection),
                // Dropped here, so that the sender finds the connection closed.
                (Incoming::Queue(_), None) => {}
            }
        }
        Ok(())
    }

    fn sleep(&mut self, deadline: Option<Instant>) -> Result<(), PortError> {
        if let Some(queue) = &mut self.queue
            && queue.announce_sleep()?
        {
            // The queue may hold a slot that is claimed and not published; its sender may need this
            // processor.
            std::thread::yield_now();
            return Ok(());
        }
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
        let server = self.port.server();
        let sockets = self.connections.iter().map(AsFd::as_fd);
        let queue = self.queue.as_ref().and_then(PortQueue::descriptor);
        let all = sockets.chain(queue).chain([server.as_fd()]);
        let mut watched: Vec<PollFd<'_>> =
            all.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
        let watchable = server.watchable(watched.len() - 1);
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
        self.port.stop_receiving();
    }
}
