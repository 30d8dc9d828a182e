//! The pair of a light and a heavy barrier as loom can explore it: a full fence on both sides. The
//! point after an exchange is a fence too, because loom treats sequentially consistent accesses as
//! acquire and release.

use loom::sync::atomic::{Ordering, fence};
use std::cell::Cell;

pub(crate) fn light() {
    fence(Ordering::SeqCst);
}

pub(crate) fn heavy() -> bool {
    fence(Ordering::SeqCst);
    true
}

thread_local! {
    /// All threads of a model run on the thread of its test.
    static IS_FENCE: Cell<bool> = const { Cell::new(true) };
}

pub(crate) fn after_exchange() {
    if IS_FENCE.get() {
        fence(Ordering::SeqCst);
    }
}

/// Makes [`after_exchange`] do nothing in the models of this test, as in production: for protocols
/// whose own fences must suffice.
pub(crate) fn without_fence_after_exchange() {
    IS_FENCE.set(false);
}
