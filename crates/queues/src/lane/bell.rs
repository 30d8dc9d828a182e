//! Sleeping at an end of a lane, and waking the other end: over a socket, which also tells when
//! that is gone.

use crate::basic::UNCERTAIN;
use crate::basic::ring::{Bell, Interrupted, Seen};
use crate::fence;
use crate::post::control::Control;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::time::Timespec;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an end sleeps before it looks what the post office says. Another thread may have taken
/// that from the socket.
const SLICE: Duration = Duration::from_millis(250);

/// Sleeping on a socket, and on what the post office says.
#[derive(Debug)]
pub(super) struct SocketBell {
    socket: OwnedFd,
    control: Arc<Control>,
    /// The lane's number, and whether this is the receiving end.
    end: (u32, bool),
}

impl SocketBell {
    pub(super) fn new(control: &Arc<Control>, end: (u32, bool), socket: OwnedFd) -> SocketBell {
        fence::register();
        SocketBell { socket, control: Arc::clone(control), end }
    }

    /// Takes what has been rung. Bounded, because the other end can ring all the time.
    pub(super) fn drain(&self) {
        let mut rings = [0u8; 8];
        for _ in 0..16 {
            if recv(&self.socket, &mut rings, RecvFlags::DONTWAIT).is_err() {
                return;
            }
        }
    }

    /// Whether the other end of the socket is closed.
    fn has_hung_up(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut watched = [PollFd::new(&self.socket, PollFlags::empty())];
        // An error says nothing about the other end.
        poll(&mut watched, Some(&now)).is_ok() && watched[0].revents().contains(PollFlags::HUP)
    }
}

impl Bell for SocketBell {
    #[inline]
    fn light(&self) {
        fence::light();
    }

    fn heavy(&self) -> bool {
        fence::heavy()
    }

    fn sleep(&self, seen: Seen, deadline: Option<Instant>) -> Result<(), Interrupted> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let slice = if seen.certain { SLICE } else { UNCERTAIN };
        let limit = Timespec::try_from(left.map_or(slice, |left| left.min(slice))).ok();
        let mut watched = [
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN),
        ];
        // Interrupted by a signal or out of memory: look again.
        let _ = poll(&mut watched[..self.control.watchable(1)], limit.as_ref());
        let hung_up = watched[0].revents().contains(PollFlags::HUP);
        self.drain();
        self.control.hear();
        if hung_up || self.control.has_notice(self.end) { Err(Interrupted) } else { Ok(()) }
    }

    fn ring(&self) {
        // A full socket wakes as well. These flags go with the call: the other end cannot change
        // them.
        let _ = send(&self.socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    fn check(&self) -> Result<(), Interrupted> {
        self.control.hear();
        if self.has_hung_up() || self.control.has_notice(self.end) {
            Err(Interrupted)
        } else {
            Ok(())
        }
    }
}

impl AsFd for SocketBell {
    /// Readable when something has been rung, or the other end is gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
