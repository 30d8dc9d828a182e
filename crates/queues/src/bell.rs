//! The bell of a queue: a word that sleepers sleep on and that many may ring, and a word that asks
//! for an eventfd.
//!
//! Whoever might wake a sleeper first makes the change that it waits for, then loads the word,
//! which in the normal case nobody writes. Only if somebody sleeps does it make a system call. Any
//! of the many ringers may be stopped between any two instructions, so none may take the sleepers'
//! mark away before it has woken them: the others would pass by a sleeper that nobody wakes. So the
//! order is
//!
//! | sleeper | ringer |
//! |---|---|
//! | enters: one more sleeper, next number, not rung | makes the change |
//! | looks at its condition | loads the word: sleepers, and not rung? |
//! | sleeps on the very value that it saw | next number |
//! | leaves: one sleeper less | wakes everybody |
//! | | marks the word as rung, if nobody entered or rang since |
//!
//! No wake-up is lost: either the sleeper's look sees the change, or the ringer's load sees the
//! sleeper. In the second case the number changes before the call, so the sleeper does not fall
//! asleep or is woken. The mark keeps a ringer in a hurry from calling the kernel with every
//! message until the sleeper gets a processor, and a dead sleeper, which never leaves, from costing
//! more than one call. A sleeper that enters takes the mark away.
//!
//! Numbers start over after 2^23; a ringer that dies between its change and its call rings for
//! nobody. Sleepers therefore sleep for a limited time and look again (see `waiting.rs`).

use core::time::Duration;

use crate::futex::{self, WaitOutcome};
use crate::sync::{AtomicU32, Ordering};

const SLEEPERS: u32 = 0xff;
const RUNG: u32 = 1 << 8;
const NUMBER: u32 = 1 << 9;

/// The word that sleepers sleep on. Zero is a bell with no sleepers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bell<'a>(pub(crate) &'a AtomicU32);

/// The value that a sleeper saw when it entered.
#[derive(Debug, Clone, Copy)]
#[must_use = "a sleeper that has entered must leave"]
pub(crate) struct Entered {
    value: u32,
    counted: bool,
}

impl Bell<'_> {
    /// Wakes the sleepers if there are any. The change that they wait for was made before, and a
    /// barrier stands between.
    #[inline(always)]
    pub(crate) fn ring(self) {
        // SeqCst: comes after the change in the order of all such accesses.
        let seen = self.0.load(Ordering::SeqCst);
        if seen & SLEEPERS != 0 && seen & RUNG == 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(self) {
        // AcqRel: whoever rings after this one passes on what this one saw.
        let rung = self.0.fetch_add(NUMBER, Ordering::AcqRel).wrapping_add(NUMBER);
        futex::wake_all(self.0);
        // Relaxed: nothing is published by it. It fails if a sleeper entered meanwhile, who may not
        // have been woken.
        let _ = self.0.compare_exchange(rung, rung | RUNG, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Announces a sleeper. It has to look at its condition, behind a barrier, before it sleeps,
    /// and to leave afterwards.
    pub(crate) fn enter(self) -> Entered {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            if seen & SLEEPERS == SLEEPERS {
                // More threads than the word can count: this one sleeps by the clock.
                return Entered { value: seen, counted: false };
            }
            let value = (seen & !RUNG).wrapping_add(NUMBER + 1);
            // SeqCst: comes before the look at the condition.
            match self.0.compare_exchange_weak(seen, value, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return Entered { value, counted: true },
                Err(now) => seen = now,
            }
        }
    }

    /// Sleeps until somebody rings, at most `limit`; and a very short time only if `entered` could
    /// not be counted. Gives whether it slept that long.
    pub(crate) fn sleep(self, entered: Entered, limit: Option<Duration>) -> bool {
        let limit = if entered.counted { limit } else { Some(Duration::from_millis(1)) };
        futex::wait(self.0, entered.value, limit) == WaitOutcome::TimedOut
    }

    /// Takes the announcement back.
    pub(crate) fn leave(self, entered: Entered) {
        if entered.counted {
            // Relaxed: nothing is published by it.
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// When a queue is to write to its receiver's eventfd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notify {
    /// When a message arrives.
    Arrival,
    /// When half of the queue is full.
    HalfFull,
}

const ARRIVAL: u32 = 1;
const HALF_FULL: u32 = 2;
const ONE_REQUEST: u32 = 4;

/// The word that asks for an eventfd to be written. Zero asks for nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a>(pub(crate) &'a AtomicU32);

impl Request<'_> {
    /// Asks for one write when it is so. The receiver then has to look, behind a barrier, whether
    /// it is so already.
    pub(crate) fn ask(self, when: Notify) {
        let bit = if when == Notify::Arrival { ARRIVAL } else { HALF_FULL };
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            // The number moves on, so that a sender that has just written for an earlier request
            // does not end this one.
            let after = (seen & !(ARRIVAL | HALF_FULL)).wrapping_add(ONE_REQUEST) | bit;
            // SeqCst: comes before the look.
            match self.0.compare_exchange_weak(seen, after, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Asks for nothing any more.
    pub(crate) fn cancel(self) {
        self.0.fetch_and(!(ARRIVAL | HALF_FULL), Ordering::Relaxed);
    }

    /// Calls `write` if that was asked for. The message was sent before, and a barrier stands
    /// between.
    #[inline(always)]
    pub(crate) fn answer(self, is_half_full: impl FnOnce() -> bool, write: impl FnOnce()) {
        // SeqCst: as in `Bell::ring`.
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
        // First the write: a sender that is stopped in between leaves the request to the next one.
        write();
        // Relaxed: nothing is published by it.
        let done = seen & !(ARRIVAL | HALF_FULL);
        let _ = self.0.compare_exchange(seen, done, Ordering::Relaxed, Ordering::Relaxed);
    }
}
