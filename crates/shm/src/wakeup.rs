//! Wake-up word: sleep until another thread or process changes shared memory, at the cost of one
//! load for the notifier.
//!
//! A notifier first makes the change that sleepers wait for, then loads the wake-up word, which
//! normally no thread writes. Only if there are sleepers does it make a system call. Any notifier
//! may be stopped between two instructions, so none may clear the sleepers' registration before it
//! has woken them: other notifiers would then skip sleepers that are never woken. The order is
//! therefore
//!
//! | Sleeper | Notifier |
//! |---|---|
//! | arms: one more sleeper, next sequence number, not notified | makes the change |
//! | passes a barrier | passes a barrier |
//! | checks its condition | loads the word: sleepers, and not notified? |
//! | sleeps on exactly the value it saw | next sequence number |
//! | disarms: one sleeper less | wakes all sleepers |
//! | | sets the notified flag, unless the word has changed since |
//!
//! No wake-up is lost: the barriers ensure that either the sleeper's check sees the change, or the
//! notifier's load sees the sleeper. In the second case the sequence number changes before the
//! system call, so the sleeper does not fall asleep or is woken. The notified flag keeps a fast
//! notifier from making a system call for every message until the sleeper is scheduled, and limits
//! the cost of a killed sleeper, which never disarms, to one call. A sleeper that arms clears the
//! flag.
//!
//! The kind of barrier depends on the notifier's change: an exchange, or a store. One bit of the word closes
//! the sleepers' end for good, so that a notifier learns that by the same load.
//!
//! Sequence numbers wrap at 2²², and a notifier that is killed between its change and its call
//! wakes no sleeper. Sleepers therefore sleep for a limited time and check again (see
//! [`wait`](crate::wait)).

use crate::futex::{self, WaitOutcome};
use crate::sync::{AtomicU32, Ordering, fence};
use core::time::Duration;

const SLEEPERS: u32 = 0xff;
const NOTIFIED: u32 = 1 << 8;
const CLOSED: u32 = 1 << 9;
const SEQUENCE: u32 = 1 << 10;

/// Longest sleep of a thread that could not be counted as a sleeper.
const UNCOUNTED: Duration = Duration::from_millis(1);

/// Operation by which a notifier makes its change before it loads the wake-up word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Published {
    /// A sequentially consistent read-modify-write: the notifier needs no barrier, and the sleeper
    /// a full fence.
    ByExchange,
    /// A store: the notifier passes the light half of a barrier and the sleeper the heavy half (see
    /// [`crate::fence`]).
    ByStore,
}

/// Wake-up word, borrowed from shared memory. Zero has no sleepers and is open.
#[derive(Debug, Clone, Copy)]
pub struct Wakeup<'a> {
    word: &'a AtomicU32,
    change: Published,
}

/// Registration of a sleeper.
#[derive(Debug, Clone, Copy)]
#[must_use = "an armed sleeper must disarm"]
pub struct Armed {
    /// Value of the word on which the thread sleeps.
    pub word: u64,
    /// True if notifiers are certain to see the sleeper. Otherwise the kernel has refused the heavy
    /// barrier, and the sleep must be short.
    pub certain: bool,
    /// True if the sleeper is counted, and must be uncounted.
    pub counted: bool,
}

impl<'a> Wakeup<'a> {
    /// Borrows a word for notifiers that make their changes by a read-modify-write.
    #[inline(always)]
    pub fn by_exchange(word: &'a AtomicU32) -> Self {
        Wakeup { word, change: Published::ByExchange }
    }

    /// Borrows a word for notifiers that make their changes by a store.
    #[inline(always)]
    pub fn by_store(word: &'a AtomicU32) -> Self {
        Wakeup { word, change: Published::ByStore }
    }

    /// Wakes the sleepers if there are any; returns true if their end is closed. Called after the
    /// change that they wait for.
    #[inline(always)]
    pub fn notify(self) -> bool {
        self.notify_also(|| {})
    }

    /// As [`notify`](Self::notify). Calls `others` too if there are sleepers: it wakes those that
    /// sleep on something else than the word (see [`request`](Self::request)).
    #[inline(always)]
    pub fn notify_also(self, others: impl FnOnce()) -> bool {
        // Pairs with the barrier in `arm`: the load sees the sleeper, or its check sees the change.
        let seen = match self.change {
            // SeqCst: follows the exchange in the total order of such accesses.
            Published::ByExchange => {
                crate::fence::after_exchange();
                self.word.load(Ordering::SeqCst)
            }
            // Relaxed: the barrier orders the load after the store.
            Published::ByStore => {
                crate::fence::light();
                self.word.load(Ordering::Relaxed)
            }
        };
        if seen & (SLEEPERS | CLOSED) == 0 {
            return false;
        }
        if seen & SLEEPERS != 0 && seen & NOTIFIED == 0 {
            self.wake(others);
        }
        seen & CLOSED != 0
    }

    /// Returns true if a thread is registered as asleep: a hint.
    pub fn has_sleepers(self) -> bool {
        self.word.load(Ordering::Relaxed) & SLEEPERS != 0
    }

    #[cold]
    fn wake(self, others: impl FnOnce()) {
        // The sequence number advances before the system call: a sleeper that is not yet asleep in
        // the kernel then finds another value and does not sleep. AcqRel: later notifiers pass on
        // what this one saw.
        let notified = self.word.fetch_add(SEQUENCE, Ordering::AcqRel).wrapping_add(SEQUENCE);
        futex::wake_all(self.word);
        others();
        // Set only after the call: a notifier killed before this point leaves the flag clear, so
        // the next one wakes the sleepers. It fails if a sleeper armed meanwhile, which this call
        // may not have woken. Relaxed: publishes nothing.
        let _ = self.word.compare_exchange(
            notified,
            notified | NOTIFIED,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// Registers a sleeper and passes its half of the barrier. The caller checks its condition once
    /// more before it sleeps, and disarms afterwards.
    pub fn arm(self) -> Armed {
        let (value, counted) = self.register();
        let certain = match self.change {
            Published::ByExchange => {
                // Pairs with the notifier's exchange and load.
                fence(Ordering::SeqCst);
                true
            }
            // Pairs with the notifier's light barrier.
            Published::ByStore => crate::fence::heavy(),
        };
        Armed { word: value.into(), certain, counted }
    }

    /// Registers a sleeper that does not sleep on the word. The caller then passes its half of the
    /// barrier, once for any number of words, checks its conditions, and disarms when it finds a
    /// notification or needs none. `None` if the count of sleepers is exhausted.
    pub fn request(self) -> Option<Armed> {
        let (value, counted) = self.register();
        counted.then_some(Armed { word: value.into(), certain: true, counted })
    }

    /// Returns true if there may have been a notification since the registration.
    pub fn has_notified(self, armed: Armed) -> bool {
        // Acquire: pairs with the exchange of the notifier, which made its change before.
        u64::from(self.word.load(Ordering::Acquire)) != armed.word
    }

    fn register(self) -> (u32, bool) {
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            if seen & SLEEPERS == SLEEPERS {
                // The count is exhausted: this thread sleeps for a short time without registration.
                return (seen, false);
            }
            let value = (seen & !NOTIFIED).wrapping_add(SEQUENCE + 1);
            // SeqCst: precedes the check of the condition.
            match self.word.compare_exchange_weak(seen, value, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => return (value, true),
                Err(now) => seen = now,
            }
        }
    }

    /// Sleeps until a notification, at most for `limit`, and only briefly if the sleeper could not
    /// be counted. Returns true if the time expired.
    pub fn sleep(self, armed: Armed, limit: Option<Duration>) -> bool {
        let limit = if armed.counted { limit } else { Some(UNCOUNTED) };
        futex::wait(self.word, armed.word as u32, limit) == WaitOutcome::TimedOut
    }

    /// Unregisters a sleeper.
    pub fn disarm(self, armed: Armed) {
        if armed.counted {
            // Relaxed: publishes nothing.
            self.word.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Closes the sleepers' end for good.
    pub fn close(self) {
        // Release: pairs with the Acquire of `is_closed`.
        self.word.fetch_or(CLOSED, Ordering::Release);
    }

    /// Returns true if the sleepers' end is closed.
    #[inline]
    pub fn is_closed(self) -> bool {
        // Acquire: pairs with the Release in `close`, so that earlier writes of that end are
        // visible.
        self.word.load(Ordering::Acquire) & CLOSED != 0
    }
}
