//! A word that one or several sleepers sleep on, and that costs whoever might wake them one load.
//!
//! Bit 0 says that somebody sleeps or is about to, bit 1 that the sleepers' end is closed for good,
//! the other bits count wake-ups. A sleeper marks the word, passes a heavy barrier, looks at its
//! condition again, and sleeps on the very value it saw. A waker changes the condition, passes a
//! light barrier and loads the word; only if it is marked does it take the mark away, which moves
//! the count, and wake everybody.
//!
//! Why no wake-up is lost: the barriers let either the sleeper's second look see the change or the
//! waker's load see the mark. In the second case the word is no longer the value that the sleeper
//! expects, so it does not fall asleep, or it slept and the waker's call finds it. The count keeps
//! the value from coming back while another sleeper marks the word anew. A waker that dies between
//! taking the mark away and the call leaves sleepers asleep; so nobody sleeps for long at a time
//! (see `patience.rs`).

use core::time::Duration;

use crate::fence;
use crate::futex;
use crate::sync::{AtomicU32, Ordering};

const ASLEEP: u32 = 1;
const CLOSED: u32 = 2;

/// The word, borrowed from shared memory. Zeroed memory is a word that nobody sleeps on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wakeup<'a>(pub(crate) &'a AtomicU32);

/// What the sleeper saw when it marked the word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marked {
    value: u32,
    /// Wakers are sure to see the mark.
    pub(crate) certain: bool,
}

impl Wakeup<'_> {
    /// Wakes the sleepers if there are any; gives whether the word says that their end is closed.
    /// To be called after the change that they wait for.
    #[inline(always)]
    pub(crate) fn wake(self) -> bool {
        fence::light();
        // Relaxed: the barrier orders the load after the change; what a closed end means is said by
        // its own words.
        let seen = self.0.load(Ordering::Relaxed);
        seen & (ASLEEP | CLOSED) != 0 && self.wake_sleepers(seen)
    }

    #[cold]
    fn wake_sleepers(self, mut seen: u32) -> bool {
        while seen & ASLEEP != 0 {
            // The mark goes and the count moves on. Relaxed: the sleeper reads the change behind
            // its own barrier.
            let after = (seen & !ASLEEP).wrapping_add(4);
            match self.0.compare_exchange(seen, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    futex::wake_all(self.0);
                    return after & CLOSED != 0;
                }
                // Another waker took the mark and wakes everybody, or the end was closed just now.
                Err(now) => seen = now,
            }
        }
        seen & CLOSED != 0
    }

    /// Marks the word. The caller looks at its condition before it sleeps.
    pub(crate) fn mark(self) -> Marked {
        // Relaxed: the heavy barrier behind it orders it before the caller's look.
        let value = self.0.fetch_or(ASLEEP, Ordering::Relaxed) | ASLEEP;
        Marked { value, certain: fence::heavy() }
    }

    /// Sleeps until somebody wakes, at most `limit`. Then look again.
    pub(crate) fn sleep(self, marked: Marked, limit: Option<Duration>) {
        futex::wait(self.0, marked.value, limit);
    }

    /// Says for good that nobody will sleep here any more.
    pub(crate) fn close(self) {
        // Release: pairs with the Acquire of `is_closed`.
        self.0.fetch_or(CLOSED, Ordering::Release);
    }

    /// Whether the sleepers' end is closed.
    #[inline]
    pub(crate) fn is_closed(self) -> bool {
        // Acquire: pairs with the Release of `close`; what that end wrote before is visible.
        self.0.load(Ordering::Acquire) & CLOSED != 0
    }
}
