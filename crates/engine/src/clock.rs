//! The node's clock.

/// Returns the time of the monotonic clock in nanoseconds, the same for all processes of the node.
pub(crate) fn monotonic_nanoseconds() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
