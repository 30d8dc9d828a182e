//! The atomic types of this crate. Protocol files use `crate::sync`, so that a loom test can
//! include the very same file.

pub(crate) use shm::fence::light as light_fence;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The rare side's fence, see [`shm::fence`]. Where the system refuses it a sleeper may miss an
/// arrival; all sleeps of this crate are bounded by [`crate::wait::LIVENESS_INTERVAL`].
pub(crate) fn heavy_fence() {
    let _ = shm::fence::heavy();
}
