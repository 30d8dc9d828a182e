//! The order of sequentially consistent accesses, which loom treats as acquire and release, as a
//! fence.

use loom::sync::atomic::{Ordering, fence};
use std::cell::Cell;

thread_local! {
    /// All threads of a model run on the thread of its test.
    static IS_FENCE: Cell<bool> = const { Cell::new(true) };
}

pub(crate) fn settle() {
    if IS_FENCE.get() {
        fence(Ordering::SeqCst);
    }
}

/// Makes [`settle`] do nothing in the models of this test, as in production: for protocols whose
/// own fences must suffice.
pub(crate) fn settle_without_fence() {
    IS_FENCE.set(false);
}
