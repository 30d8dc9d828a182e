//! Shared memory that its owner frees after all its users have released it.

use shm::mapped::Mapped;
use shm::segment::Offset;
use shm::sync::{AtomicU32, Ordering};

shm::shared_lines! {
    /// The first line of shared memory with several users.
    pub(crate) struct ReleaseLine {
        /// Number of users that have released the memory. Release by `release`, Acquire by
        /// `is_released`.
        released: AtomicU32,
    }
}

impl ReleaseLine {
    /// Releases the memory. The caller does not access it afterwards.
    pub(crate) fn release(&self) {
        // Release: pairs with the Acquire in `is_released`: all accesses happen before the free. A
        // user that dies without the release leaves the memory allocated until the job ends.
        self.released.fetch_add(1, Ordering::Release);
    }

    /// Returns whether `users` users have released the memory.
    fn is_released(&self, users: u32) -> bool {
        self.released.load(Ordering::Acquire) >= users
    }
}

/// Memory of this rank's arena, to be freed after all its users have released it.
#[derive(Debug)]
pub(crate) struct DeferredFree {
    pub(crate) at: Offset,
    pub(crate) users: u32,
    pub(crate) line: Mapped<ReleaseLine>,
}

impl DeferredFree {
    /// Returns whether the memory can be freed.
    pub(crate) fn is_due(&self) -> bool {
        self.line.is_released(self.users)
    }
}
