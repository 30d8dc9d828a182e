//! The clock of a host of runs.

use std::time::Duration;

pub(crate) use shm::clock::monotonic_nanoseconds as now;

/// Time left until a time of the clock.
pub(crate) fn until(time: u64) -> Duration {
    Duration::from_nanos(time.saturating_sub(now()))
}
