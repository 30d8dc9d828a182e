//! Wake-up word of a queue with many senders, and the word that requests an event.
//!
//! A notifier first makes the change that sleepers wait for, then loads the wake-up word, which
//! normally no thread writes. Only if there are sleepers does it make a system call. Any notifier
//! may be stopped between two instructions, so none may clear the sleepers' registration before it
//! has woken them: other notifiers would then skip sleepers that are never woken. The order is
//! therefore
//!
//! | Sleeper | Notifier |
//! |---|---|
//! | registers: one more sleeper, next sequence number, not notified | makes the change |
//! | checks its condition | loads the word: sleepers, and not notified? |
//! | sleeps on exactly the value it saw | next sequence number |
//! | unregisters: one sleeper less | wakes all sleepers |
//! | | sets the notified flag, unless the word has changed since |
//!
//! No wake-up is lost: either the sleeper's check sees the change, or the notifier's load sees the
//! sleeper. In the second case the sequence number changes before the system call, so the sleeper
//! does not fall asleep or is woken. The notified flag keeps a fast notifier from making a system
//! call for every message until the sleeper is scheduled, and limits the cost of a killed sleeper,
//! which never unregisters, to one call. A sleeper that registers clears the flag.
//!
//! Sequence numbers wrap at 2^23, and a notifier that is killed between its change and its call
//! wakes no sleeper. Sleepers therefore sleep for a limited time and check again (see
//! `waiting.rs`).

use core::time::Duration;

use crate::futex::{self, WaitOutcome};
use crate::sync::{AtomicU32, Ordering};

const SLEEPERS: u32 = 0xff;
const NOTIFIED: u32 = 1 << 8;
const SEQUENCE: u32 = 1 << 9;

/// Wake-up word, borrowed from shared memory. Zero has no sleepers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bell<'a>(pub(crate) &'a AtomicU32);

/// Registration of a sleeper, with the value of the word after it.
#[derive(Debug, Clone, Copy)]
#[must_use = "a registered sleeper must unregister"]
pub(crate) struct Registration {
    value: u32,
    counted: bool,
}

impl Bell<'_> {
    /// Wakes the sleepers if there are any. Called after the change that they wait for and a
    /// barrier.
    #[inline(always)]
    pub(crate) fn notify(self) {
        // SeqCst: follows the change in the total order of such accesses. Pairs with the SeqCst
        // exchange in `register`: this load sees the sleeper, or its check sees the change.
        let seen = self.0.load(Ordering::SeqCst);
        if seen & SLEEPERS != 0 && seen & NOTIFIED == 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(self) {
        // The sequence number advances before the system call: a sleeper that is not yet
        // asleep in the kernel then finds another value and does not sleep. AcqRel: later
        // notifiers pass on what this one saw.
        let notified = self.0.fetch_add(SEQUENCE, Ordering::AcqRel).wrapping_add(SEQUENCE);
        futex::wake_all(self.0);
        // Set only after the call: a notifier killed before this point leaves the flag clear, so
        // the next one wakes the sleepers. It fails if a sleeper registered meanwhile, which this
        // call may not have woken. Relaxed: publishes nothing.
        let _ = self.0.compare_exchange(
            notified,
            notified | NOTIFIED,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// Registers a sleeper. It must check its condition, after a barrier, before it sleeps, and
    /// unregister afterwards.
    pub(crate) fn register(self) -> Registration {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            if seen & SLEEPERS == SLEEPERS {
                // The count is exhausted: this thread sleeps for a short time without registration.
                return Registration { value: seen, counted: false };
            }
            let value = (seen & !NOTIFIED).wrapping_add(SEQUENCE + 1);
            // SeqCst: precedes the check of the condition.
            match self.0.compare_exchange_weak(seen, value, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return Registration { value, counted: true },
                Err(now) => seen = now,
            }
        }
    }

    /// Sleeps until a notification, at most for `limit`, and only briefly if the sleeper could not
    /// be counted. Returns whether the time expired.
    pub(crate) fn sleep(self, registration: Registration, limit: Option<Duration>) -> bool {
        let limit = if registration.counted { limit } else { Some(Duration::from_millis(1)) };
        futex::wait(self.0, registration.value, limit) == WaitOutcome::TimedOut
    }

    /// Unregisters a sleeper.
    pub(crate) fn unregister(self, registration: Registration) {
        if registration.counted {
            // Relaxed: publishes nothing.
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
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

/// Word that requests one notification of an event. Zero is no request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a>(pub(crate) &'a AtomicU32);

impl Request<'_> {
    /// Requests one notification. The receiver must then check, after a barrier, whether the
    /// condition already holds.
    pub(crate) fn ask(self, when: Notify) {
        let bit = if when == Notify::Arrival { ARRIVAL } else { HALF_FULL };
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            // The sequence number advances, so that a sender that has just answered an earlier
            // request does not clear this one.
            let after = (seen & !(ARRIVAL | HALF_FULL)).wrapping_add(ONE_REQUEST) | bit;
            // SeqCst: precedes the check of the condition.
            match self.0.compare_exchange_weak(seen, after, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Cancels the request.
    pub(crate) fn cancel(self) {
        self.0.fetch_and(!(ARRIVAL | HALF_FULL), Ordering::Relaxed);
    }

    /// Calls `write` if a notification is requested. Called after sending a message and a barrier.
    #[inline(always)]
    pub(crate) fn answer(self, is_half_full: impl FnOnce() -> bool, write: impl FnOnce()) {
        // SeqCst: as in `Bell::notify`.
        let seen = self.0.load(Ordering::SeqCst);
        if seen & (ARRIVAL | HALF_FULL) != 0 {
            self.answer_request(seen, is_half_full, write);
        }
    }

    #[cold]
    fn answer_request(self, seen: u32, is_half_full: impl FnOnce() -> bool, write: impl FnOnce()) {
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
