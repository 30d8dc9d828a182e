//! The clock of a node.

use rustix::time::{ClockId, clock_gettime};

/// Returns the time of the monotonic clock in nanoseconds, the same for all processes of the node.
pub fn monotonic_nanoseconds() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
