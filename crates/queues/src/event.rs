//! Event descriptor (eventfd) that connects queues to epoll or an async runtime.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

pub use crate::bell::Notify;

/// Eventfd, shared by all clones. It is readable from a notification until it is
/// [cleared](Event::clear).
///
/// The receiver passes the descriptor to the senders (see [`shm::broker`]), which notify through
/// it.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let event = queues::event::Event::new()?;
/// event.notify();
/// assert!(event.clear());
/// assert!(!event.clear(), "no notification since");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Event {
    file: Arc<OwnedFd>,
}

impl Event {
    /// Creates an event that is not readable.
    ///
    /// # Errors
    /// Returns the system's error when the process or the machine has no descriptors left.
    pub fn new() -> std::io::Result<Event> {
        let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Event { file: Arc::new(file) })
    }

    /// Wraps a descriptor received from another process.
    #[must_use]
    pub fn from_fd(file: OwnedFd) -> Event {
        Event { file: Arc::new(file) }
    }

    /// Makes the event readable.
    pub fn notify(&self) {
        // Fails only when the descriptor is no eventfd, or when its count is at the limit, in which
        // case it is readable already.
        while rustix::io::write(&self.file, &1u64.to_ne_bytes()) == Err(Errno::INTR) {}
    }

    /// Clears the event; returns whether it was readable.
    pub fn clear(&self) -> bool {
        let mut count = [0; 8];
        loop {
            match rustix::io::read(&self.file, &mut count) {
                Err(Errno::INTR) => {}
                other => return other.is_ok_and(|bytes| bytes == count.len()),
            }
        }
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
