//! Wake-up word of a pair of processes, which costs its notifier one load.
//!
//! Bit 0 says that a thread sleeps or is about to, bit 1 that the sleepers' end is closed for good,
//! the other bits count wake-ups. A sleeper sets bit 0, passes a heavy barrier, checks its
//! condition again, and sleeps on exactly the value it saw. A notifier changes the condition,
//! passes a light barrier and loads the word; only if bit 0 is set does it clear the bit, which
//! advances the count, and wake all sleepers.
//!
//! No wake-up is lost: the barriers ensure that either the sleeper's second check sees the change
//! or the notifier's load sees the bit. In the second case the word no longer has the value that
//! the sleeper expects, so it does not fall asleep, or it slept already and the notifier's call
//! wakes it. The count keeps the value from recurring while another sleeper sets the bit again. A
//! notifier killed between clearing the bit and the system call leaves sleepers asleep, so every
//! sleep is limited (see `patience.rs`).

use core::time::Duration;

use crate::fence;
use crate::futex;
use crate::sync::{AtomicU32, Ordering};

const ASLEEP: u32 = 1;
const CLOSED: u32 = 2;

/// Wake-up word, borrowed from shared memory. Zeroed memory has no sleepers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wakeup<'a>(pub(crate) &'a AtomicU32);

/// Value of the word after a sleeper set its bit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marked {
    value: u32,
    /// True if notifiers are certain to see the bit.
    pub(crate) certain: bool,
}

impl Wakeup<'_> {
    /// Wakes the sleepers if there are any; returns whether their end is closed. Called after the
    /// change that they wait for.
    #[inline(always)]
    pub(crate) fn wake(self) -> bool {
        fence::light();
        // Relaxed: the barrier orders the load after the change. It pairs with the heavy barrier in
        // `mark`.
        let seen = self.0.load(Ordering::Relaxed);
        seen & (ASLEEP | CLOSED) != 0 && self.wake_sleepers(seen)
    }

    #[cold]
    fn wake_sleepers(self, mut seen: u32) -> bool {
        while seen & ASLEEP != 0 {
            // Clears the bit and advances the count in one step, so the sleeper's expected value
            // is gone before the call. Relaxed: the sleeper reads the change after its own barrier.
            let after = (seen & !ASLEEP).wrapping_add(4);
            match self.0.compare_exchange(seen, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    futex::wake_all(self.0);
                    return after & CLOSED != 0;
                }
                // Another notifier cleared the bit and wakes all sleepers, or the end was closed.
                Err(now) => seen = now,
            }
        }
        seen & CLOSED != 0
    }

    /// Sets the sleeping bit. The caller checks its condition before it sleeps.
    pub(crate) fn mark(self) -> Marked {
        // Relaxed: the heavy barrier after it orders it before the caller's check.
        let value = self.0.fetch_or(ASLEEP, Ordering::Relaxed) | ASLEEP;
        Marked { value, certain: fence::heavy() }
    }

    /// Sleeps until a notification, at most for `limit`. The caller then checks again.
    pub(crate) fn sleep(self, marked: Marked, limit: Option<Duration>) {
        futex::wait(self.0, marked.value, limit);
    }

    /// Closes the sleepers' end for good.
    pub(crate) fn close(self) {
        // Release: pairs with the Acquire of `is_closed`.
        self.0.fetch_or(CLOSED, Ordering::Release);
    }

    /// Returns whether the sleepers' end is closed.
    #[inline]
    pub(crate) fn is_closed(self) -> bool {
        // Acquire: pairs with the Release in `close`, so that earlier writes of that end are
        // visible.
        self.0.load(Ordering::Acquire) & CLOSED != 0
    }
}
