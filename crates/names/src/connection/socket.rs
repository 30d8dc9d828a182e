//! Sleep and wake-up of the two ends of a connection: over a socket, which is also closed when the
//! other end is.

use crate::server_connection::ServerConnection;
use crate::wire::DroppedEnd;
use queues::basic::ring::{Interrupted, Signal};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::time::Timespec;
use shm::fence;
use shm::wait::SpinPolicy;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Polls before an end sleeps, and the time after which a sleeping end checks the notices of the
/// name server. Another thread may have read them from the server's socket.
pub(super) const POLICY: SpinPolicy =
    SpinPolicy { eager: 0, spins: 100, yields: 0, slice: Duration::from_millis(250) };

/// Sleep on the socket of a connection and on that of the name server.
#[derive(Debug)]
pub(super) struct SocketSleeper {
    socket: OwnedFd,
    server: Arc<ServerConnection>,
    end: (u32, DroppedEnd),
}

impl SocketSleeper {
    pub(super) fn new(
        server: &Arc<ServerConnection>,
        end: (u32, DroppedEnd),
        socket: OwnedFd,
    ) -> SocketSleeper {
        fence::register();
        SocketSleeper { socket, server: Arc::clone(server), end }
    }

    /// Consumes wake-ups. Bounded, because the other end can send them without pause.
    pub(super) fn drain(&self) {
        let mut wakeups = [0u8; 8];
        for _ in 0..16 {
            if recv(&self.socket, &mut wakeups, RecvFlags::DONTWAIT).is_err() {
                return;
            }
        }
    }

    /// Returns true if the other end of the socket is closed.
    fn has_hung_up(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut watched = [PollFd::new(&self.socket, PollFlags::empty())];
        // An error gives no information about the other end.
        poll(&mut watched, Some(&now)).is_ok() && watched[0].revents().contains(PollFlags::HUP)
    }
}

impl Signal for SocketSleeper {
    #[inline]
    fn light(&self) {
        fence::light();
    }

    fn heavy(&self) -> bool {
        fence::heavy()
    }

    fn sleep(&self, _: u64, limit: Duration) -> bool {
        let limit = Timespec::try_from(limit).ok();
        let mut watched = [
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::from_borrowed_fd(self.server.as_fd(), PollFlags::IN),
        ];
        // After a signal or a lack of memory the caller polls again.
        let _ = poll(&mut watched[..self.server.watchable(1)], limit.as_ref());
        let hung_up = watched[0].revents().contains(PollFlags::HUP);
        self.drain();
        self.server.receive();
        hung_up || self.server.closing(self.end).is_some()
    }

    fn wake(&self) {
        // A full socket wakes the other end as well. The flags belong to the call, so the other end
        // cannot make it block.
        let _ = send(&self.socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    fn check(&self) -> Result<(), Interrupted> {
        self.server.receive();
        if self.has_hung_up() || self.server.closing(self.end).is_some() {
            Err(Interrupted)
        } else {
            Ok(())
        }
    }
}

impl AsFd for SocketSleeper {
    /// Returns a descriptor that is readable after a wake-up, or when the other end is closed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
