//! Number of consumers of a queue: several at once, or a single one, which needs no
//! read-modify-write.

use crate::sync::{AtomicU64, Ordering};

mod sealed {
    pub trait Sealed {}
}

/// [`Multi`] or [`Single`].
pub trait Consumers: sealed::Sealed + Send + Sync + 'static {
    /// True for a single consumer.
    #[doc(hidden)]
    const SINGLE: bool;
}

/// Any number of threads receive from the queue; each message goes to one of them.
#[derive(Debug, Clone, Copy)]
pub struct Multi;

/// One thread at a time receives from the queue.
#[derive(Debug, Clone, Copy)]
pub struct Single;

impl sealed::Sealed for Multi {}
impl sealed::Sealed for Single {}

impl Consumers for Multi {
    const SINGLE: bool = false;
}

impl Consumers for Single {
    const SINGLE: bool = true;
}

/// Advances the head of a queue from `from` to `to`; false if another receiver did so first.
#[inline(always)]
pub(crate) fn advance<C: Consumers>(head: &AtomicU64, from: u64, to: u64) -> bool {
    if C::SINGLE {
        // A single consumer owns the head, so a plain store cannot overwrite another advance.
        // Release: pairs with the senders' Acquire load of the head. They may then write the slots
        // before it.
        head.store(to, Ordering::Release);
        return true;
    }
    // SeqCst: Release as above, and ordered before the load of the wake-up word of waiting senders.
    // Acquire: pairs with the Release half of another receiver's advance.
    head.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}
