//! An eventfd by which a queue tells epoll or an async runtime that something has come.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

pub use crate::bell::Notify;

/// An eventfd, shared by all who hold a clone. It is readable from a notification until it is
/// [cleared](Event::clear).
///
/// Its maker passes the descriptor to the senders (see [`shm::broker`]); they notify with it.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let event = queues::event::Event::new()?;
/// event.notify();
/// assert!(event.clear());
/// assert!(!event.clear(), "nothing since");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Event {
    file: Arc<OwnedFd>,
}

impl Event {
    /// A new one that is not readable.
    ///
    /// # Errors
    /// The system's reason, when the process or the machine has no descriptors left.
    pub fn new() -> std::io::Result<Event> {
        let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Event { file: Arc::new(file) })
    }

    /// The one behind a descriptor that another process has passed on.
    #[must_use]
    pub fn from_fd(file: OwnedFd) -> Event {
        Event { file: Arc::new(file) }
    }

    /// Makes it readable.
    pub fn notify(&self) {
        // It can only fail when the descriptor is no eventfd, or the count is at its limit and so
        // readable anyway.
        while rustix::io::write(&self.file, &1u64.to_ne_bytes()) == Err(Errno::INTR) {}
    }

    /// Makes it not readable; gives whether it was.
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
