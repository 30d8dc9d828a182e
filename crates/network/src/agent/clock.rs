//! The agent's clock.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Nanoseconds of the machine's monotonic clock, which all processes of a node share.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Time left until a time of the clock.
pub(crate) fn until(time: u64) -> Duration {
    Duration::from_nanos(time.saturating_sub(now()))
}
