//! Completion word: a count that any process may advance and any number of processes may sleep on.
//!
//! Bit 0 is the WAIT flag, bit 1 is unused, bits 31 to 2 are a count that wraps. An adder changes
//! the count in one read-modify-write and sees in the value it replaced whether a sleeper set the
//! flag; only then does it clear the flag and wake all sleepers with one system call. A sleeper
//! sets the flag, checks the count again, and sleeps on exactly the value it saw.
//!
//! No wake-up is lost, because flag and count share one word, so all changes to it have one order.
//! If the adder's change comes first, setting the flag returns the new count and the sleeper does
//! not sleep. If the flag comes first, the adder sees it, and the adder that clears it wakes. In
//! between, the kernel refuses to put the sleeper to sleep, because the word no longer has the
//! expected value, and cannot regain it: the count has advanced.

use crate::futex::{self, WaitOutcome};
use crate::sync::{AtomicU32, Ordering};
use core::time::Duration;

const WAIT: u32 = 1;
/// Bits below the count.
const FLAGS: u32 = 3;
const ONE: u32 = 4;
const COUNT_SHIFT: u32 = 2;

/// Wrapping 30-bit count with sleepers, four bytes anywhere in a segment. Zeroed memory is a count
/// of 0.
///
/// # Examples
///
/// ```
/// use shm::completion::Completion;
///
/// let done = Completion::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| done.wait(3));
///     done.add(2);
///     done.add(1);
/// });
/// assert!(done.reached(3));
/// ```
#[derive(Debug)]
#[repr(transparent)]
pub struct Completion {
    /// `count << 2 | WAIT`
    word: AtomicU32,
}

/// Value of the word that a sleeper saw with its flag set; the argument of [`Completion::sleep`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a set flag costs the next adder a system call: sleep on it"]
pub struct Marked(u32);

/// Result of [`Completion::add_threshold`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addition {
    /// This addition brought the count to the threshold.
    pub crossed: bool,
    /// The WAIT flag was set and this addition woke the sleepers.
    pub woke: bool,
}

impl Default for Completion {
    fn default() -> Self {
        Self::new()
    }
}

impl Completion {
    /// Creates a count of 0 without sleepers.
    pub fn new() -> Self {
        Completion { word: AtomicU32::new(0) }
    }

    /// Returns the count, modulo 2³⁰.
    ///
    /// ```
    /// let done = shm::completion::Completion::new();
    /// done.set(5);
    /// assert_eq!(done.count(), 5);
    /// ```
    #[inline]
    pub fn count(&self) -> u32 {
        // Acquire: pairs with the Release half of the read-modify-write in `add`, `add_threshold`
        // and `set`.
        self.word.load(Ordering::Acquire) >> COUNT_SHIFT
    }

    /// Returns whether the count is at or past `threshold`, with one load. Writes made before the
    /// additions are then visible.
    ///
    /// Counts wrap: a threshold is past when it lies at most 2²⁹ − 1 behind the count.
    ///
    /// ```
    /// let done = shm::completion::Completion::new();
    /// done.add(2);
    /// assert!(done.reached(2) && !done.reached(3));
    /// ```
    #[inline]
    pub fn reached(&self, threshold: u32) -> bool {
        // Acquire: pairs with the Release half of the read-modify-write in `add`, `add_threshold`
        // and `set`.
        has_reached(self.word.load(Ordering::Acquire), threshold)
    }

    /// Returns whether a thread sleeps or is about to. For tests and reports only: the answer may
    /// change at once.
    pub fn is_marked(&self) -> bool {
        self.word.load(Ordering::Relaxed) & WAIT != 0
    }

    /// Adds `n` and wakes all sleepers if there are any; returns whether there were.
    ///
    /// ```
    /// let done = shm::completion::Completion::new();
    /// assert!(!done.add(1), "no sleepers");
    /// ```
    #[inline]
    pub fn add(&self, n: u32) -> bool {
        // Release: earlier writes of this process are visible to readers of the new count
        // (`reached`, `prepare_sleep`). Acquire: the last of several adders may read what the
        // others wrote before their additions.
        let before = self.word.fetch_add(n.wrapping_mul(ONE), Ordering::AcqRel);
        before & WAIT != 0 && self.clear_mark_and_wake()
    }

    /// Adds `n`, and wakes only if the count is then at or past `threshold`.
    ///
    /// For words on which every sleeper waits for `threshold` or less: earlier additions wake no
    /// sleeper in vain. A sleeper with a later threshold is woken by the addition that reaches it.
    ///
    /// ```
    /// let done = shm::completion::Completion::new();
    /// assert!(!done.add_threshold(1, 2).crossed);
    /// assert!(done.add_threshold(1, 2).crossed);
    /// assert!(!done.add_threshold(1, 2).crossed, "it was crossed before");
    /// ```
    #[inline]
    pub fn add_threshold(&self, n: u32, threshold: u32) -> Addition {
        // AcqRel: as in `add`. All additions are read-modify-writes, so the one that crosses the
        // threshold sees what all others wrote.
        let before = self.word.fetch_add(n.wrapping_mul(ONE), Ordering::AcqRel);
        let reached = has_reached(before.wrapping_add(n.wrapping_mul(ONE)), threshold);
        Addition {
            crossed: reached && !has_reached(before, threshold),
            // A flag that an earlier addition saw below the threshold is still set in `before`.
            woke: reached && before & WAIT != 0 && self.clear_mark_and_wake(),
        }
    }

    /// Sets the count to `count` (modulo 2³⁰) and wakes all sleepers if there are any; returns
    /// whether there were.
    ///
    /// For words with one publisher at a time. A plain store would not do: it could erase a flag
    /// set a moment before, and the sleeper would never wake.
    ///
    /// ```
    /// let done = shm::completion::Completion::new();
    /// done.set(7);
    /// assert!(done.reached(7));
    /// ```
    #[inline]
    pub fn set(&self, count: u32) -> bool {
        let mut before = self.word.load(Ordering::Relaxed);
        loop {
            let after = count.wrapping_mul(ONE);
            // AcqRel: as in `add`. It can only fail when a sleeper sets its flag at this moment.
            match self.word.compare_exchange_weak(
                before,
                after,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => before = now,
            }
        }
        // The exchange cleared the flag in the same step that set the count.
        before & WAIT != 0 && self.wake()
    }

    /// Sets the WAIT flag and checks the count again. `None`: the threshold is reached, do not
    /// sleep.
    ///
    /// ```
    /// let done = shm::completion::Completion::new();
    /// done.add(1);
    /// assert!(done.prepare_sleep(1).is_none());
    /// assert!(done.prepare_sleep(2).is_some());
    /// ```
    #[must_use = "the result decides whether to sleep"]
    pub fn prepare_sleep(&self, threshold: u32) -> Option<Marked> {
        if self.reached(threshold) {
            return None;
        }
        // Acquire: pairs with the Release half of `add`, `add_threshold` and `set`, so that `None`
        // implies what `reached` implies. Release: publishes nothing; it continues the release
        // sequence of earlier additions.
        let seen = self.word.fetch_or(WAIT, Ordering::AcqRel) | WAIT;
        // The flag stays set even if this thread does not sleep: another sleeper may rely on it,
        // and a spurious wake-up is harmless.
        (!has_reached(seen, threshold)).then_some(Marked(seen))
    }

    /// Sleeps while the word has the value `marked`, at most for `timeout` (`None`: indefinitely).
    /// Call in a loop that checks the count again.
    ///
    /// ```
    /// use shm::completion::Completion;
    /// let done = Completion::new();
    /// done.add(1);
    /// while let Some(marked) = done.prepare_sleep(1) {
    ///     done.sleep(marked, None);
    /// }
    /// ```
    pub fn sleep(&self, marked: Marked, timeout: Option<Duration>) -> WaitOutcome {
        futex::wait(&self.word, marked.0, timeout)
    }

    /// Sleeps, without spinning first, until the count is at or past `threshold`.
    pub fn wait(&self, threshold: u32) {
        while let Some(marked) = self.prepare_sleep(threshold) {
            self.sleep(marked, None);
        }
    }

    #[cold]
    fn clear_mark_and_wake(&self) -> bool {
        // Of several adders that saw the flag, exactly one clears it, and that one wakes all
        // sleepers. Relaxed: every adder published with its addition, and this read-modify-write
        // continues their release sequences. A process that is killed between this and the call
        // leaves sleepers without a flag. Those that sleep with a limit find the count themselves.
        self.word.fetch_and(!WAIT, Ordering::Relaxed) & WAIT != 0 && self.wake()
    }

    #[cold]
    fn wake(&self) -> bool {
        futex::wake_all(&self.word);
        true
    }
}

#[inline]
fn has_reached(word: u32, threshold: u32) -> bool {
    // Both operands hold their count in the upper 30 bits, so the sign of the difference orders
    // them.
    ((word & !FLAGS).wrapping_sub(threshold.wrapping_mul(ONE))).cast_signed() >= 0
}
