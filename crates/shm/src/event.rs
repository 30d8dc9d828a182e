//! Events: descriptors (eventfd) that connect queues to epoll or an async runtime, and the word by
//! which a receiver requests one notification.

use crate::sync::{AtomicU32, Ordering};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Eventfd, shared by all clones. It is readable from a notification until it is
/// [cleared](Event::clear).
///
/// The receiver passes the descriptor to the senders (see [`crate::broker`]), which notify through
/// it.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let event = shm::event::Event::new()?;
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

/// Condition under which a queue notifies the event of its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notify {
    /// A message arrives.
    Arrival,
    /// Half of the queue is full.
    HalfFull,
}

const ARRIVAL: u32 = 1;
const HALF_FULL: u32 = 2;
const ONE_REQUEST: u32 = 4;

/// Word that requests one notification of an event, borrowed from shared memory. Zero is no
/// request. The bits above the request number it, so that a sender that serves one request does not
/// clear the next.
#[derive(Debug, Clone, Copy)]
pub struct EventRequest<'a>(pub &'a AtomicU32);

impl EventRequest<'_> {
    /// Requests one notification. The receiver must then check, after a barrier, whether the
    /// condition already holds.
    pub fn request(self, when: Notify) {
        let bit = if when == Notify::Arrival { ARRIVAL } else { HALF_FULL };
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            // The number advances: the exchange in `notify_receiver` of a sender that has just
            // served an earlier request then fails and leaves this one.
            let after = (seen & !(ARRIVAL | HALF_FULL)).wrapping_add(ONE_REQUEST) | bit;
            // SeqCst: precedes the check of the condition.
            match self.0.compare_exchange_weak(seen, after, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Cancels the request.
    pub fn cancel(self) {
        self.0.fetch_and(!(ARRIVAL | HALF_FULL), Ordering::Relaxed);
    }

    /// Calls `write` if a notification is requested. Called after sending a message and a barrier.
    #[inline(always)]
    pub fn serve(self, is_half_full: impl FnOnce() -> bool, write: impl FnOnce()) {
        // SeqCst: follows the exchange that published the message in the total order of such
        // accesses. Either this load sees the request, or the receiver's check sees the message.
        let seen = self.0.load(Ordering::SeqCst);
        if seen & (ARRIVAL | HALF_FULL) != 0 {
            self.notify_receiver(seen, is_half_full, write);
        }
    }

    #[cold]
    fn notify_receiver(self, seen: u32, is_half_full: impl FnOnce() -> bool, write: impl FnOnce()) {
        if seen & ARRIVAL == 0 && !is_half_full() {
            return;
        }
        // The write comes first: a sender stopped in between leaves the request to the next one.
        write();
        // Relaxed: publishes nothing.
        let done = seen & !(ARRIVAL | HALF_FULL);
        let _ = self.0.compare_exchange(seen, done, Ordering::Relaxed, Ordering::Relaxed);
    }
}
