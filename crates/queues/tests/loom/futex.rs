//! Model of the kernel's futex: comparison and sleep are one step with respect to a wake-up.

use core::time::Duration;

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    Woken,
    TimedOut,
}

struct Bucket {
    lock: Mutex<()>,
    queue: Condvar,
}

/// Payload with which a thread unwinds that is stopped for ever inside the kernel.
pub(crate) struct Stopped;

loom::thread_local! {
    /// True if this thread is stopped for ever when it comes to wake others.
    pub(crate) static STOPS: std::cell::Cell<bool> = std::cell::Cell::new(false);
}

loom::lazy_static! {
    static ref BUCKET: Bucket = Bucket { lock: Mutex::new(()), queue: Condvar::new() };
}

pub(crate) fn wait(word: &AtomicU32, expected: u32, limit: Option<Duration>) -> WaitOutcome {
    assert!(limit.is_none(), "loom has no clock");
    let locked = BUCKET.lock.lock().expect("no panic holds it");
    // Relaxed: the lock orders it against a wake, and nothing else may be relied on.
    if word.load(Ordering::Relaxed) == expected {
        drop(BUCKET.queue.wait(locked).expect("no panic holds it"));
    }
    WaitOutcome::Woken
}

pub(crate) fn wake_all(_word: &AtomicU32) -> usize {
    if STOPS.with(std::cell::Cell::get) {
        std::panic::resume_unwind(Box::new(Stopped));
    }
    let _locked = BUCKET.lock.lock().expect("no panic holds it");
    BUCKET.queue.notify_all();
    0
}
