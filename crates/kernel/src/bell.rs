//! How a thread of a rank sleeps until the program wakes it.

use crate::layout::{BELL_BYTES, SLEEPING};
use crate::system::Mapping;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A page: both positions of a ring have one of their own.
const PAGE: usize = 4096;

/// A ring buffer whose messages mean nothing but that something is complete.
///
/// One thread of the rank sleeps on the ring and wakes the others: were there several, one could
/// take the message that another one is about to sleep for.
#[derive(Debug)]
pub(crate) struct Bell {
    ring: OwnedFd,
    consumer: Mapping,
    producer: Mapping,
    /// Whether a thread sleeps on the ring.
    taken: Mutex<bool>,
    heard: Condvar,
}

impl Bell {
    pub(crate) fn new(ring: OwnedFd) -> io::Result<Self> {
        let consumer = Mapping::new(&ring, 0, PAGE, true)?;
        let producer = Mapping::new(&ring, PAGE as u64, PAGE + 2 * BELL_BYTES, false)?;
        Ok(Bell { ring, consumer, producer, taken: Mutex::new(false), heard: Condvar::new() })
    }

    /// Sleeps until something is complete, at most so long. May return at any time.
    pub(crate) fn sleep(
        &self,
        memory: &Mapping,
        limit: Duration,
        is_complete: impl Fn() -> bool,
    ) -> io::Result<()> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if *taken {
            // Whoever sleeps on the ring may just have been woken and not have begun to sleep
            // again.
            if self.announce(memory, is_complete) {
                return Ok(());
            }
            drop(self.heard.wait_timeout(taken, limit).unwrap_or_else(PoisonError::into_inner));
            return Ok(());
        }
        *taken = true;
        drop(taken);
        let outcome = self.listen(memory, limit, is_complete);
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.heard.notify_all();
        outcome
    }

    /// Says that somebody sleeps, and whether there is no need to.
    fn announce(&self, memory: &Mapping, is_complete: impl Fn() -> bool) -> bool {
        memory.word(SLEEPING).store(1, Ordering::Relaxed);
        // Partner: the exchange of a run's state in `end_run`, which is a full barrier. Either the
        // program sees that somebody sleeps, or this thread sees that the run is complete.
        fence(Ordering::SeqCst);
        is_complete()
    }

    fn listen(
        &self,
        memory: &Mapping,
        limit: Duration,
        is_complete: impl Fn() -> bool,
    ) -> io::Result<()> {
        if self.announce(memory, is_complete) {
            return Ok(());
        }
        let limit =
            Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.ring, PollFlags::IN)], Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        // Everything up to here has been heard; a message that comes meanwhile stays to be heard.
        let position = self.producer.double_word(0).load(Ordering::Acquire);
        self.consumer.double_word(0).store(position, Ordering::Release);
        Ok(())
    }
}
