//! Sleeping on a word of shared memory until another process changes it: the Linux futex system
//! call.
//!
//! None of these carries the kernel's PRIVATE flag, because the sleeper and the waker are processes
//! with different address spaces; the kernel finds the sleepers by the page of the file, not by the
//! address. The protocol that makes a wake-up impossible to lose lives in [`crate::completion`].

use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex as kernel;
use rustix::time::Timespec;

use crate::sync::AtomicU32;

/// Why [`wait`] came back. In every case but [`WaitOutcome::TimedOut`] the caller looks at its
/// condition again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitOutcome {
    /// Someone woke the word (or the kernel did for no reason, which it may).
    Woken,
    /// The word was not the expected value, so nobody slept.
    ValueChanged,
    /// The time was up.
    TimedOut,
    /// A signal was handled.
    Interrupted,
}

/// Sleeps while `word` is `expected`, until a wake, a signal, or `timeout` (measured from now;
/// `None` is for ever).
///
/// The kernel compares and falls asleep in one step against [`wake`], so a change followed by a
/// wake is never missed.
///
/// ```
/// use shm::futex::{WaitOutcome, wait};
/// use shm::sync::AtomicU32;
/// use std::time::Duration;
///
/// let word = AtomicU32::new(1);
/// assert_eq!(wait(&word, 0, None), WaitOutcome::ValueChanged);
/// assert_eq!(wait(&word, 1, Some(Duration::from_micros(1))), WaitOutcome::TimedOut);
/// ```
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> WaitOutcome {
    // A time too long for the kernel's clock is for ever.
    let timeout = timeout.and_then(|duration| Timespec::try_from(duration).ok());
    match kernel::wait(word, kernel::Flags::empty(), expected, timeout.as_ref()) {
        Ok(()) => WaitOutcome::Woken,
        Err(Errno::AGAIN) => WaitOutcome::ValueChanged,
        Err(Errno::TIMEDOUT) => WaitOutcome::TimedOut,
        // EINTR. The other errors are for words that are not mapped or not aligned, which a
        // reference excludes.
        Err(_) => WaitOutcome::Interrupted,
    }
}

/// Wakes at most `count` sleepers of `word`; gives how many there were to wake.
///
/// ```
/// let word = shm::sync::AtomicU32::new(0);
/// assert_eq!(shm::futex::wake(&word, 1), 0);
/// ```
pub fn wake(word: &AtomicU32, count: u32) -> usize {
    // The kernel takes the count as a signed number. An error (an unmapped word) is excluded by the
    // reference.
    let count = count.min(i32::MAX.unsigned_abs());
    kernel::wake(word, kernel::Flags::empty(), count).unwrap_or(0)
}

/// Wakes every sleeper of `word`; gives how many there were.
///
/// ```
/// let word = shm::sync::AtomicU32::new(0);
/// assert_eq!(shm::futex::wake_all(&word), 0);
/// ```
pub fn wake_all(word: &AtomicU32) -> usize {
    wake(word, i32::MAX.unsigned_abs())
}
