//! Sleep of a rank's threads until the program wakes them.

use crate::memory::layout::{SLEEPING, WAKEUP_BYTES};
use crate::memory::mapping::Mapping;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Size of a page: the two positions of a ring lie on one each.
const PAGE: usize = 4096;

/// Ring buffer of messages without content: each signals that a run may be complete.
///
/// One thread of the rank polls the ring and wakes the others. If several threads polled it, one
/// could consume the message for which another is about to sleep.
#[derive(Debug)]
pub(crate) struct RingWakeup {
    ring: OwnedFd,
    consumer: Mapping,
    producer: Mapping,
    /// True while a thread polls the ring.
    has_poller: Mutex<bool>,
    poller_returned: Condvar,
}

impl RingWakeup {
    pub(crate) fn new(ring: OwnedFd) -> io::Result<Self> {
        // Layout of a ring buffer: the consumer's position, which alone is writable here; the
        // producer's position; the data, mapped twice in a row.
        let consumer = Mapping::new(&ring, 0, PAGE, true)?;
        let producer = Mapping::new(&ring, PAGE as u64, PAGE + 2 * WAKEUP_BYTES, false)?;
        let has_poller = Mutex::new(false);
        Ok(RingWakeup { ring, consumer, producer, has_poller, poller_returned: Condvar::new() })
    }

    /// Sleeps until a run is complete, or until the limit. May return early.
    pub(crate) fn sleep(
        &self,
        memory: &Mapping,
        limit: Duration,
        is_complete: impl Fn() -> bool,
    ) -> io::Result<()> {
        let mut has_poller = self.has_poller.lock().unwrap_or_else(PoisonError::into_inner);
        if *has_poller {
            // The poller may have consumed a message already and not have armed the wake-up again,
            // so this thread arms it, too. It holds the lock, so the poller cannot return and
            // notify between this check and the wait.
            if self.arm(memory, is_complete) {
                return Ok(());
            }
            let waited = self.poller_returned.wait_timeout(has_poller, limit);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            return Ok(());
        }
        // The role of the poller is taken under the lock, so at most one thread has it. The lock is
        // released for the poll: other threads can then arm the wake-up and wait for the poller.
        *has_poller = true;
        drop(has_poller);
        let outcome = self.poll(memory, limit, is_complete);
        // The role is free before the notification, also after an error: one of the woken threads
        // that still waits becomes the next poller.
        *self.has_poller.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.poller_returned.notify_all();
        outcome
    }

    /// Arms the wake-up: the program sends a message for the next completion. Returns true if the
    /// run is complete already.
    fn arm(&self, memory: &Mapping, is_complete: impl Fn() -> bool) -> bool {
        memory.word(SLEEPING).store(1, Ordering::Relaxed);
        // Store, fence, load here; exchange of the run's state in `end_run` (a full barrier), then
        // load of `sleeping` in the program. In every order, the program sees that a thread sleeps
        // or this thread sees that the run is complete, so no wake-up is lost.
        fence(Ordering::SeqCst);
        is_complete()
    }

    /// Polls the ring until a message arrives, or until the limit.
    fn poll(
        &self,
        memory: &Mapping,
        limit: Duration,
        is_complete: impl Fn() -> bool,
    ) -> io::Result<()> {
        if self.arm(memory, is_complete) {
            return Ok(());
        }
        let limit =
            Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.ring, PollFlags::IN)], Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        // Consumes all messages up to the position read here. A message that arrives afterwards
        // stays in the ring, so the next poll returns at once. Acquire pairs with the kernel's
        // release of the producer's position, release with its acquire of the consumer's.
        let position = self.producer.double_word(0).load(Ordering::Acquire);
        self.consumer.double_word(0).store(position, Ordering::Release);
        Ok(())
    }
}
