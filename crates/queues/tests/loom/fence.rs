//! The pair of a light and a heavy barrier as loom can explore it: a full fence on both sides.

use loom::sync::atomic::{Ordering, fence};

pub(crate) fn light() {
    fence(Ordering::SeqCst);
}

pub(crate) fn heavy() -> bool {
    fence(Ordering::SeqCst);
    true
}
