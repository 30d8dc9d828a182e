//! The time between two looks at a request.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
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
/// where ranks share them.
const TESTS_BEFORE_YIELD: u32 = 16;

/// Time between two tests after which they do not count as tests in succession: the program computes
/// between them, and keeps the core.
const LONGEST_SUCCESSION: Duration = Duration::from_micros(20);

thread_local! {
    /// Number of tests of this thread in succession that have found active requests.
    static VAIN_TESTS: Cell<u32> = const { Cell::new(0) };
    /// The time of the last of them, if it was late enough to be measured.
    static LAST_VAIN_TEST: Cell<Option<Instant>> = const { Cell::new(None) };
    /// The share of this thread in [`WAITING`].
    static WAITS: Cell<usize> = const { Cell::new(0) };
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
    // The clock would cost the first tests as much as the test.
    if tests < TESTS_BEFORE_YIELD {
        return;
    }
    let last = LAST_VAIN_TEST.take();
    if last.is_some_and(|last| last.elapsed() > LONGEST_SUCCESSION) {
        VAIN_TESTS.set(0);
        return;
    }
    if last.is_some() {
        std::thread::yield_now();
    }
    LAST_VAIN_TEST.set(Some(Instant::now()));
}

/// Records that a test has completed a request.
pub(crate) fn record_success() {
    VAIN_TESTS.set(0);
    LAST_VAIN_TEST.set(None);
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
            WAITS.set(WAITS.get() + 1);
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
        // None, if a jump inside this wait has taken the share away.
        if let (Some(_), Some(fewer)) = (self.begun, WAITS.get().checked_sub(1)) {
            WAITS.set(fewer);
            // Relaxed: as in `leave_core`.
            WAITING.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Ends all waits of this thread, which leaves them by a jump.
pub(crate) fn leave_waits() {
    // Relaxed: as in `leave_core`.
    WAITING.fetch_sub(WAITS.take(), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_out_of_a_wait_ends_its_share() {
        let rest = |pause: &mut Pause| (0..SPINS + 2).for_each(|_| pause.rest(|| ()));
        let (mut outer, mut inner) = (Pause::default(), Pause::default());
        rest(&mut outer);
        rest(&mut inner);
        assert_eq!(WAITS.get(), 2);
        // As in a jump, its destructor does not run.
        std::mem::forget(inner);
        leave_waits();
        assert_eq!(WAITS.get(), 0);
        // The jump ended inside the outer wait.
        drop(outer);
        assert_eq!(WAITS.get(), 0);
        assert_eq!(WAITING.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_program_that_computes_between_its_tests_keeps_the_core() {
        set_oversubscribed(true);
        for _ in 0..4 * TESTS_BEFORE_YIELD {
            record_vain_test();
            assert!(VAIN_TESTS.get() <= TESTS_BEFORE_YIELD);
            let begun = Instant::now();
            while begun.elapsed() <= LONGEST_SUCCESSION {}
        }
        set_oversubscribed(false);
    }
}
