//! A connection with one node.

use super::incoming::Incoming;
use super::outgoing::Outgoing;
use crate::carrier::Error;
use crate::transport::frame::{Frame, FrameError};
use crate::transport::sleeper::refused;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::sockopt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Why a connection has ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    #[error("its node service has closed the connection")]
    Closed,
    #[error("{}", why(*.0))]
    System(Errno),
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("there is no memory for a message of {0} bytes from there")]
    Memory(u64),
}

fn why(error: Errno) -> String {
    match error {
        Errno::TIMEDOUT => {
            "it has not answered for too long; is the node up, and the network between?".into()
        }
        Errno::CONNRESET | Errno::PIPE => "its node service has ended".into(),
        error => std::io::Error::from(error).to_string(),
    }
}

/// One node's end of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    outgoing: Outgoing,
    incoming: Incoming,
    /// Whether it is watched for room to write.
    is_full: bool,
    /// Whether something was sent since the last write.
    is_written: bool,
}

impl Connection {
    /// Takes a socket whose other end has shown who it is.
    pub(super) fn new(socket: OwnedFd, unanswered: Duration) -> Result<Self, Error> {
        let seconds = Duration::from_secs(unanswered.as_secs().max(1));
        let milliseconds = u32::try_from(unanswered.as_millis()).unwrap_or(u32::MAX).max(1);
        let set = || {
            sockopt::set_tcp_nodelay(&socket, true)?;
            sockopt::set_tcp_user_timeout(&socket, milliseconds)?;
            sockopt::set_socket_keepalive(&socket, true)?;
            sockopt::set_tcp_keepidle(&socket, (seconds / 3).max(Duration::from_secs(1)))?;
            sockopt::set_tcp_keepintvl(&socket, (seconds / 5).max(Duration::from_secs(1)))?;
            sockopt::set_tcp_keepcnt(&socket, 3)
        };
        set().map_err(refused("set up a connection"))?;
        let (outgoing, incoming) = (Outgoing::default(), Incoming::default());
        Ok(Connection { socket, outgoing, incoming, is_full: false, is_written: false })
    }

    /// Puts a frame into the queue; true if it is the first since the last write.
    pub(super) fn send(&mut self, frame: Frame) -> bool {
        self.outgoing.push(frame);
        !std::mem::replace(&mut self.is_written, true)
    }

    pub(super) fn queued(&self) -> u64 {
        self.outgoing.bytes()
    }

    /// Writes what the system takes. `Some` when what is to be watched has changed.
    pub(super) fn write(&mut self) -> Result<Option<EventFlags>, Lost> {
        self.is_written = false;
        let is_empty = self.outgoing.write(self.socket.as_fd())?;
        let was_full = std::mem::replace(&mut self.is_full, !is_empty);
        let interest = if is_empty { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT };
        Ok((was_full == is_empty).then_some(interest))
    }

    /// Reads what has arrived.
    pub(super) fn read(&mut self, take: &mut impl FnMut(Frame)) -> Result<(), Lost> {
        self.incoming.read(self.socket.as_fd(), take)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
