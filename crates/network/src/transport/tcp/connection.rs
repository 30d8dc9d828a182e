//! A connection with one node.

use super::unacknowledged::unacknowledged;
use crate::error::{Error, refused};
use crate::transport::Arrival;
use crate::transport::payloads::{PayloadLocation, Payloads};
use crate::transport::stream::connection_error::ConnectionError;
use crate::transport::stream::receive_buffer::ReceiveBuffer;
use crate::transport::stream::send_queue::SendQueue;
use rustix::event::epoll::EventFlags;
use rustix::net::{Shutdown, shutdown, sockopt};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// One node's end of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    pub(super) queue: SendQueue,
    buffer: ReceiveBuffer,
    /// True while the socket is watched for space to write.
    is_full: bool,
}

/// Times at which the other end of a connection reads what has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// At once, always.
    Always,
    /// In its calls only. Between them its system may refuse more data for any time.
    InCalls,
}

/// Makes a socket send at once, and report a node that does not respond within a time.
pub(crate) fn configure(
    socket: &OwnedFd,
    unanswered: Duration,
    reading: Reading,
) -> Result<(), Error> {
    let seconds = Duration::from_secs(unanswered.as_secs().max(1));
    // The limit covers data that the other system answers for, but has no space for (tcp(7)), so
    // without it such data waits. 0 is none.
    let milliseconds = match reading {
        Reading::Always => u32::try_from(unanswered.as_millis()).unwrap_or(u32::MAX).max(1),
        Reading::InCalls => 0,
    };
    let set = || {
        sockopt::set_tcp_nodelay(socket, true)?;
        // The first limit is for data that is not acknowledged, the others are for probes of an
        // idle connection: 1/3 of the time before the first, then three within 3/5.
        sockopt::set_tcp_user_timeout(socket, milliseconds)?;
        sockopt::set_socket_keepalive(socket, true)?;
        sockopt::set_tcp_keepidle(socket, (seconds / 3).max(Duration::from_secs(1)))?;
        sockopt::set_tcp_keepintvl(socket, (seconds / 5).max(Duration::from_secs(1)))?;
        sockopt::set_tcp_keepcnt(socket, 3)
    };
    set().map_err(refused("set up a connection"))
}

impl Connection {
    /// Wraps a socket after the handshake, and what is to be sent. System calls do not block.
    pub(super) fn new(
        socket: OwnedFd,
        queue: SendQueue,
        unanswered: Duration,
        reading: Reading,
    ) -> Result<Self, Error> {
        configure(&socket, unanswered, reading)?;
        let buffer = ReceiveBuffer::default();
        Ok(Connection { socket, queue, buffer, is_full: false })
    }

    /// Number of bytes of long messages that were sent and received.
    pub(super) fn transferred(&self) -> u64 {
        self.queue.transferred().wrapping_add(self.buffer.transferred())
    }

    /// Locations of the payloads in the queue.
    pub(super) fn locations(&mut self) -> Vec<PayloadLocation> {
        self.queue.locations()
    }

    /// Number of bytes in the queue.
    pub(super) fn queued(&self) -> u64 {
        self.queue.bytes()
    }

    /// Number of bytes in the queue, and of those that the other node's system has not
    /// acknowledged.
    pub(super) fn unacknowledged(&self) -> u64 {
        self.queue.bytes() + unacknowledged(self.socket.as_fd())
    }

    /// Writes as much as the system takes. Returns the events to watch for if they have changed.
    pub(super) fn write(
        &mut self,
        payloads: &mut dyn Payloads,
    ) -> Result<Option<EventFlags>, ConnectionError> {
        let is_empty = self.queue.write(&mut self.socket.as_fd(), payloads)?;
        let was_full = std::mem::replace(&mut self.is_full, !is_empty);
        // OUT only while the queue is not empty: a socket with space is always writable and would
        // wake the agent for ever.
        let interest = if is_empty { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT };
        Ok((was_full == is_empty).then_some(interest))
    }

    /// Reads what has arrived from this node and passes on every complete frame.
    pub(super) fn read(
        &mut self,
        node: u32,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), ConnectionError> {
        self.buffer.read(&mut self.socket.as_fd(), node, payloads, arrivals)
    }
}

impl Connection {
    /// Ends the connection in both directions, for every copy of the socket. What has arrived can
    /// still be read.
    pub(super) fn shut_down(&self) {
        // It fails only if the connection has ended.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

impl Drop for Connection {
    /// A node service may have a copy of the socket, so its close alone would end nothing.
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
