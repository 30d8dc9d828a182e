//! Mutual exclusion without a lock (combining): the process that submits the first event handles
//! all events until none is left.

use crate::sync::{AtomicU32, Ordering};

/// Counts an event that the caller has recorded before, and handles events unless another process
/// already does.
///
/// `handle(n)` handles n recorded events. The process that raises the count from zero handles its
/// own event and those that others count meanwhile; the others return immediately. The writes of
/// one handler are visible to the next.
pub(crate) fn submit(pending: &AtomicU32, mut handle: impl FnMut(u32)) {
    // AcqRel: Release publishes the event to the handler; Acquire makes the previous handler's
    // writes visible. Invariant: a nonzero count means that exactly one process handles events.
    if pending.fetch_add(1, Ordering::AcqRel) != 0 {
        return;
    }
    let mut count = 1;
    loop {
        handle(count);
        // AcqRel: Acquire makes events counted meanwhile visible; Release publishes this handler's
        // writes to the next one. The count reaches zero in the same step in which this process
        // stops, so an event counted before is seen here and one counted later starts a new
        // handler.
        let before = pending.fetch_sub(count, Ordering::AcqRel);
        if before == count {
            return;
        }
        count = before - count;
    }
}
