//! The time between two looks at a request.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use tradewind::sleep_after;

/// Looks without a pause, where every rank has a core: a partner that is on its way arrives within
/// this time.
const SPINS: u32 = 64;

/// True if this node has more ranks than cores: the awaited rank may need this core.
static IS_OVERSUBSCRIBED: AtomicBool = AtomicBool::new(false);

/// Sets whether this node has more ranks than cores.
pub(crate) fn set_oversubscribed(is_oversubscribed: bool) {
    IS_OVERSUBSCRIBED.store(is_oversubscribed, Ordering::Relaxed);
}

/// Tests of a thread in succession that have found active requests, after which each yields the core
/// where ranks share them. A program that computes between its tests keeps the core.
const TESTS_BEFORE_YIELD: u32 = 16;

thread_local! {
    /// Number of tests of this thread, since the last success, that have found active requests.
    static VAIN_TESTS: Cell<u32> = const { Cell::new(0) };
}

/// Records that a test has found an active request. A program that repeats it until the request is
/// complete would use its whole time slice, while the awaited rank needs the core.
pub(crate) fn record_vain_test() {
    // Relaxed: set once, before any request exists.
    if !IS_OVERSUBSCRIBED.load(Ordering::Relaxed) {
        return;
    }
    let tests = VAIN_TESTS.get().saturating_add(1);
    VAIN_TESTS.set(tests);
    if tests > TESTS_BEFORE_YIELD {
        std::thread::yield_now();
    }
}

/// Records that a test has completed a request.
pub(crate) fn record_success() {
    VAIN_TESTS.set(0);
}

/// Number of threads of this process that wait and have polled in vain.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Waits between two looks at a request.
#[derive(Default)]
pub(crate) struct Pause {
    looks: u32,
    /// Set when the first polls have been in vain. The thread is then counted as waiting.
    begun: Option<Instant>,
}

impl Pause {
    /// Lets time pass, and calls `drive` in some looks: messages that the program has started may
    /// need the MPI library, and other calls this library, while the program waits.
    pub(crate) fn rest(&mut self, drive: impl FnOnce()) {
        self.looks += 1;
        // Relaxed: set once, before any request exists.
        let is_oversubscribed = IS_OVERSUBSCRIBED.load(Ordering::Relaxed);
        if !is_oversubscribed && self.looks < SPINS {
            std::hint::spin_loop();
            return;
        }
        // In turns, with a look after each: some MPI libraries yield the core, too, when they are
        // driven, and the request may be complete after each yield.
        if is_oversubscribed && self.looks.is_multiple_of(2) {
            drive();
            return;
        }
        if !is_oversubscribed {
            drive();
        }
        self.leave_core(is_oversubscribed);
    }

    /// Yields the core or, in a long wait where another thread may need it, sleeps: what the other one
    /// computes, among many threads that yield, has one turn in many.
    fn leave_core(&mut self, is_oversubscribed: bool) {
        let begun = *self.begun.get_or_insert_with(|| {
            // Relaxed: a number that publishes nothing.
            WAITING.fetch_add(1, Ordering::Relaxed);
            Instant::now()
        });
        let is_shared = is_oversubscribed || WAITING.load(Ordering::Relaxed) > 1;
        match is_shared.then(|| sleep_after(begun.elapsed(), !is_oversubscribed)).flatten() {
            Some(time) => std::thread::sleep(time),
            None => std::thread::yield_now(),
        }
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        if self.begun.is_some() {
            // Relaxed: as in `leave_core`.
            WAITING.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
