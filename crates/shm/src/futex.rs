//! Sleeping on a word of shared memory until another process changes it: the Linux futex system
//! call.
//!
//! No call carries the kernel's PRIVATE flag: the sleeper and the waker are processes with
//! different address spaces, so the kernel must find sleepers by the file's page instead of the
//! address. The protocols that keep wake-ups from being lost are in [`crate::completion`].

use crate::sync::AtomicU32;
use rustix::io::Errno;
use rustix::thread::futex as kernel;
use rustix::time::Timespec;
use std::time::Duration;

/// Reason why [`wait`] returned. Except after [`WaitOutcome::TimedOut`], callers recheck their
/// condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitOutcome {
    /// A waker woke the word, or the wake-up was spurious.
    Woken,
    /// The word did not have the expected value, so the call did not sleep.
    ValueChanged,
    /// The timeout expired.
    TimedOut,
    /// A signal was handled.
    Interrupted,
}

/// Sleeps while `word` is `expected`, until a wake-up, a signal, or `timeout` (measured from now;
/// `None` waits indefinitely).
///
/// The kernel compares the word and puts the thread to sleep in one step with respect to [`wake`],
/// so a change followed by a wake-up is never missed.
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
    // A timeout too long for the kernel's clock waits indefinitely.
    let timeout = timeout.and_then(|duration| Timespec::try_from(duration).ok());
    match kernel::wait(word, kernel::Flags::empty(), expected, timeout.as_ref()) {
        Ok(()) => WaitOutcome::Woken,
        Err(Errno::AGAIN) => WaitOutcome::ValueChanged,
        Err(Errno::TIMEDOUT) => WaitOutcome::TimedOut,
        // EINTR. The other errors concern unmapped or misaligned words, which a reference excludes.
        Err(_) => WaitOutcome::Interrupted,
    }
}

/// Wakes at most `count` sleepers of `word`; returns how many were woken.
///
/// ```
/// let word = shm::sync::AtomicU32::new(0);
/// assert_eq!(shm::futex::wake(&word, 1), 0);
/// ```
pub fn wake(word: &AtomicU32, count: u32) -> usize {
    // The kernel takes a signed count. The reference excludes the only error, an unmapped word.
    let count = count.min(i32::MAX.unsigned_abs());
    kernel::wake(word, kernel::Flags::empty(), count).unwrap_or(0)
}

/// Wakes every sleeper of `word`; returns how many were woken.
///
/// ```
/// let word = shm::sync::AtomicU32::new(0);
/// assert_eq!(shm::futex::wake_all(&word), 0);
/// ```
pub fn wake_all(word: &AtomicU32) -> usize {
    wake(word, i32::MAX.unsigned_abs())
}
