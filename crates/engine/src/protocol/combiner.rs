//! One at a time without a lock: events are counted, and whoever counts the first one handles all
//! until none is left.

use crate::sync::{AtomicU32, Ordering};

/// Counts an event that the caller has written down before, and handles events if nobody else does.
///
/// `handle(n)` handles n events, all of which are written down. Whoever brings the count from zero
/// handles its own event and those that others count meanwhile; they return at once. What one
/// handler wrote is visible to the next.
pub(crate) fn submit(pending: &AtomicU32, mut handle: impl FnMut(u32)) {
    // AcqRel: Release publishes the event to the handler, Acquire shows the previous handler's
    // work.
    if pending.fetch_add(1, Ordering::AcqRel) != 0 {
        return;
    }
    let mut count = 1;
    loop {
        handle(count);
        // AcqRel: Acquire shows events counted meanwhile, Release hands over to the next handler.
        let before = pending.fetch_sub(count, Ordering::AcqRel);
        if before == count {
            return;
        }
        count = before - count;
    }
}
