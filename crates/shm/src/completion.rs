//! The completion word: a count that any process may advance and any number of processes may sleep
//! on.
//!
//! Bit 0 is the WAIT mark, bit 1 says that the word is poisoned, bits 31 to 2 are a count that
//! wraps. An adder changes the count in one read-modify-write and learns from the value it replaced
//! whether anyone marked the word; only then does it take the mark away and make one system call
//! that wakes everybody. A sleeper marks the word, looks again, and sleeps on the very value it
//! saw.
//!
//! Why no wake-up is lost: the mark and the count are one word, so all changes of it have one
//! order. If the adder's change comes first, the sleeper's marking returns the new count and it
//! does not sleep. If the marking comes first, the adder sees the mark, and after it has cleared
//! the mark, it (or the adder that cleared it before) wakes. Between the two the kernel refuses to
//! sleep, because the value is no longer the expected one, and cannot become it again: the count
//! moved.
//!
//! That last clause is why bad news has a bit of its own that stays. Clearing the mark and waking
//! everybody would not do: one sleeper could set the mark again while another is still on its way
//! to sleep, and that one would find the value it expects.

use core::time::Duration;

use crate::futex::{self, WaitOutcome};
use crate::sync::{AtomicU32, Ordering};

const WAIT: u32 = 1;
const POISONED: u32 = 2;
const ONE: u32 = 4;
const COUNT_SHIFT: u32 = 2;

/// A wrapping 30-bit count with sleepers, four bytes anywhere in a segment. Zeroed memory is a
/// count of 0.
///
/// # Examples
///
/// ```
/// use shm::completion::Completion;
///
/// let done = Completion::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| done.wait(3).expect("nobody poisons it"));
///     done.add(2);
///     done.add(1);
/// });
/// assert!(done.reached(3));
/// ```
#[derive(Debug)]
#[repr(transparent)]
pub struct Completion {
    /// `count << 2 | POISONED | WAIT`
    word: AtomicU32,
}

/// The value of a marked word that the sleeper saw; what [`Completion::sleep`] needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a marked word costs the next adder a system call: sleep on it"]
pub struct Marked(u32);

/// The word was poisoned: whatever was to complete it may never come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Poisoned;

impl core::fmt::Display for Poisoned {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("the completion was poisoned before its count was reached: a rank it depends on has failed")
    }
}

impl core::error::Error for Poisoned {}

/// What [`Completion::add_threshold`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addition {
    /// This addition, and no other, brought the count to the threshold.
    pub crossed: bool,
    /// There was a WAIT mark and this addition woke the sleepers.
    pub woke: bool,
}

impl Default for Completion {
    fn default() -> Self {
        Self::new()
    }
}

impl Completion {
    /// A count of 0 that nobody waits for.
    pub fn new() -> Self {
        Completion { word: AtomicU32::new(0) }
    }

    /// The count now, modulo 2³⁰.
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

    /// Whether the count is at or past `threshold`: one load. What was written before the additions
    /// is then visible.
    ///
    /// Counts wrap, so a threshold is past when it lies at most 2²⁹ − 1 behind the count.
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

    /// Whether a sleeper (or one about to sleep) has marked the word. For tests and reports only:
    /// it may change at once.
    pub fn is_marked(&self) -> bool {
        self.word.load(Ordering::Relaxed) & WAIT != 0
    }

    /// Adds `n` and wakes all sleepers if there are any; gives whether there were.
    ///
    /// ```
    /// let done = shm::completion::Completion::new();
    /// assert!(!done.add(1), "nobody slept");
    /// ```
    #[inline]
    pub fn add(&self, n: u32) -> bool {
        // Release: what this process wrote before is visible to whoever sees the count (`reached`,
        // `prepare_sleep`). Acquire: the last of several adders may read what the others wrote
        // before their additions.
        let before = self.word.fetch_add(n.wrapping_mul(ONE), Ordering::AcqRel);
        before & WAIT != 0 && self.clear_mark_and_wake()
    }

    /// Adds `n`, and wakes only if the count is then at or past `threshold`.
    ///
    /// For words on which every sleeper waits for `threshold` or less: the additions before it
    /// disturb nobody. A sleeper with a later threshold is woken by the addition that reaches its
    /// own.
    ///
    /// ```
    /// let done = shm::completion::Completion::new();
    /// assert!(!done.add_threshold(1, 2).crossed);
    /// assert!(done.add_threshold(1, 2).crossed);
    /// assert!(!done.add_threshold(1, 2).crossed, "it was crossed before");
    /// ```
    #[inline]
    pub fn add_threshold(&self, n: u32, threshold: u32) -> Addition {
        // AcqRel: as in `add`. All additions are read-modify-writes, so the one that crosses sees
        // what all others wrote.
        let before = self.word.fetch_add(n.wrapping_mul(ONE), Ordering::AcqRel);
        let reached = has_reached(before.wrapping_add(n.wrapping_mul(ONE)), threshold);
        Addition {
            crossed: reached && !has_reached(before, threshold),
            // A mark left by an earlier addition that did not reach the threshold is still in
            // `before`.
            woke: reached && before & WAIT != 0 && self.clear_mark_and_wake(),
        }
    }

    /// Makes the count `count` (modulo 2³⁰) and wakes all sleepers if there are any; gives whether
    /// there were.
    ///
    /// For words with one publisher at a time. It is no plain store, because that would wipe out a
    /// mark set a moment before, and its sleeper would sleep for ever. A poisoned word stays
    /// poisoned.
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
            let after = count.wrapping_mul(ONE) | (before & POISONED);
            // AcqRel: as in `add`. It can only fail when a sleeper marks the word or someone
            // poisons it just now.
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
        // The mark went in the same step as the count came.
        before & WAIT != 0 && self.wake()
    }

    /// Marks the word and looks again. `None`: the threshold is reached or the word is poisoned, do
    /// not sleep.
    ///
    /// ```
    /// let done = shm::completion::Completion::new();
    /// done.add(1);
    /// assert!(done.prepare_sleep(1).is_none());
    /// assert!(done.prepare_sleep(2).is_some());
    /// ```
    #[must_use = "the mark says whether to sleep"]
    pub fn prepare_sleep(&self, threshold: u32) -> Option<Marked> {
        if self.reached(threshold) {
            return None;
        }
        // Acquire: pairs with the Release half of `add`, `add_threshold`, `set` and `poison`, so
        // that `None` is as good as `reached` or `is_poisoned`. Release: nothing is published; it
        // only keeps the chain of updates whole.
        let seen = self.word.fetch_or(WAIT, Ordering::AcqRel) | WAIT;
        // The mark stays when there is no need to sleep: another may need it, and a needless wake
        // harms nobody.
        (!has_reached(seen, threshold) && seen & POISONED == 0).then_some(Marked(seen))
    }

    /// Sleeps while the word is as `marked` saw it, at most `timeout` (`None`: for ever). Then look
    /// again: loop.
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
    ///
    /// # Errors
    ///
    /// [`Poisoned`] if the word is poisoned and the threshold not reached.
    pub fn wait(&self, threshold: u32) -> Result<(), Poisoned> {
        while let Some(marked) = self.prepare_sleep(threshold) {
            self.sleep(marked, None);
        }
        if self.reached(threshold) { Ok(()) } else { Err(Poisoned) }
    }

    /// Says for good that the count may never come, and wakes all sleepers; gives whether there
    /// were any.
    ///
    /// A threshold that was reached before stays reached, and additions still count. Only zeroing
    /// the memory, when nobody looks at it any more, takes the poison away.
    ///
    /// ```
    /// use shm::completion::{Completion, Poisoned};
    /// let done = Completion::new();
    /// done.add(1);
    /// done.poison();
    /// assert_eq!(done.wait(1), Ok(()));
    /// assert_eq!(done.wait(2), Err(Poisoned));
    /// ```
    #[cold]
    pub fn poison(&self) -> bool {
        // Release: pairs with the Acquire of `is_poisoned` and of the marking in `prepare_sleep`;
        // the reason for the poison, written before, is visible to whoever finds it.
        let before = self.word.fetch_or(POISONED, Ordering::AcqRel);
        before & WAIT != 0 && self.wake()
    }

    /// Whether the word is poisoned. What was written before [`Completion::poison`] is then
    /// visible.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        // Acquire: pairs with the Release half of the read-modify-write in `poison`.
        self.word.load(Ordering::Acquire) & POISONED != 0
    }

    #[cold]
    fn clear_mark_and_wake(&self) -> bool {
        // Of several adders that saw the mark exactly one takes it away, and that one wakes
        // everybody. Relaxed: every adder published with its addition, and a read-modify-write
        // leaves what those release in force.
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
    // Both sides carry their count in the upper 30 bits, so the sign of the difference says which
    // came first.
    ((word & !(WAIT | POISONED)).wrapping_sub(threshold.wrapping_mul(ONE))).cast_signed() >= 0
}
