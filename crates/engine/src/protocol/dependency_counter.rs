//! Dependency counters that are never reset.

use crate::sync::{AtomicU32, Ordering};

/// Counts one arrival; true for the one arrival that the operation waited for.
///
/// In the u-th use of a slot an operation is due at u × threshold arrivals: every use brings
/// exactly `threshold` of them, and a slot is used again only when its last run is over, so the
/// count needs no reset, which would race with early arrivals of the next use.
#[inline]
pub(crate) fn arrive(arrivals: &AtomicU32, threshold: u32, uses: u32) -> bool {
    // AcqRel: who completes the count sees what all others wrote before they arrived.
    arrivals.fetch_add(1, Ordering::AcqRel).wrapping_add(1) == threshold.wrapping_mul(uses)
}
