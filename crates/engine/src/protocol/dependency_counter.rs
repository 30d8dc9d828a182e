//! Dependency counters that are never reset.

use crate::sync::{AtomicU32, Ordering};

/// Counts one arrival. Returns true for the arrival that satisfies the last dependency.
///
/// In the u-th use of a slot, an operation is ready at u × threshold arrivals. Every use adds
/// exactly `threshold` arrivals, and a slot is reused only after its previous run is complete, so
/// the count needs no reset. A reset would race with early arrivals of the next use.
#[inline]
pub(crate) fn arrive(arrivals: &AtomicU32, threshold: u32, uses: u32) -> bool {
    // AcqRel: the additions form a release sequence, so the process that completes the count sees
    // the writes of all others before their arrivals. Exactly one addition reaches the product,
    // also when the count and the product wrap.
    arrivals.fetch_add(1, Ordering::AcqRel).wrapping_add(1) == threshold.wrapping_mul(uses)
}
