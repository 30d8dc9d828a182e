//! A clock with readings that are comparable between the processes of a node.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds on the monotonic clock.
///
/// ```
/// let before = measure::harness::clock::now_ns();
/// assert!(measure::harness::clock::now_ns() >= before);
/// ```
#[inline]
pub fn now_ns() -> i64 {
    nanoseconds(ClockId::Monotonic)
}

/// Microseconds between two readings.
pub fn microseconds(begin_ns: i64, end_ns: i64) -> f64 {
    (end_ns - begin_ns) as f64 * 1e-3
}

/// Nanoseconds on any of the system's clocks.
#[inline]
pub(crate) fn nanoseconds(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
