//! The atomic types of this crate. Protocol files use `crate::sync`, so that a loom test can
//! include the very same file.

pub(crate) use shm::fence::{heavy as heavy_fence, light as light_fence};
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
