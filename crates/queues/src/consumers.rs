//! How many receive from a queue: several at once, or one alone, which then needs no
//! read-modify-write.

use crate::sync::{AtomicU64, Ordering};

mod sealed {
    pub trait Sealed {}
}

/// [`Multi`] or [`Single`].
pub trait Consumers: sealed::Sealed + Send + Sync + 'static {
    /// Whether one alone receives.
    #[doc(hidden)]
    const SINGLE: bool;
}

/// Any number of threads receive from the queue, each message goes to one of them.
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

/// Moves the head of a queue from `from` to `to`; false if another receiver was faster.
#[inline(always)]
pub(crate) fn advance<C: Consumers>(head: &AtomicU64, from: u64, to: u64) -> bool {
    if C::SINGLE {
        // Release: pairs with the Acquire of a sender's look at the head, which makes the slots
        // before it writable.
        head.store(to, Ordering::Release);
        return true;
    }
    // SeqCst: as above, and before the look at the bell of senders that wait for room. Acquire:
    // pairs with the Release half of another receiver's advance, after which its slots were given
    // back.
    head.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}
