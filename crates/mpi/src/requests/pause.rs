//! The time between two looks at a request.

use super::poller::{self, Awaited, Role};
use crate::host::Handle;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tradewind::interop::sleep_after;

/// Looks without a pause, where every rank has a core: a partner that is on its way arrives within
/// this time.
const SPINS: u32 = 64;

/// True if this node has more ranks than cores: the awaited rank may need this core.
static IS_OVERSUBSCRIBED: AtomicBool = AtomicBool::new(false);

/// Sets whether this node has more ranks than cores.
pub(crate) fn set_oversubscribed(is_oversubscribed: bool) {
    IS_OVERSUBSCRIBED.store(is_oversubscribed, Ordering::Relaxed);
}

fn is_oversubscribed() -> bool {
    // Relaxed: set once, before any request exists.
    IS_OVERSUBSCRIBED.load(Ordering::Relaxed)
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
}

/// Records that a test has found an active request. A program that repeats it until the request is
/// complete would use its whole time slice, while the awaited rank needs the core.
pub(crate) fn record_vain_test() {
    if !is_oversubscribed() {
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

/// Longest sleep of a thread while another one polls and drives all that it waits for, after which it
/// looks and drives once itself.
const LONGEST_SLEEP: Duration = Duration::from_millis(10);

/// Waits between two looks at a request.
#[derive(Default)]
pub(crate) struct Pause {
    looks: u32,
    /// Set when the first polls have been in vain.
    begun: Option<Instant>,
    /// This wait has got the role of the poller for its thread, or has entered the thread as a sleeper.
    has_role: bool,
    /// The poller drives what this thread waits for.
    is_driven: bool,
}

impl Pause {
    /// Lets time pass, and calls `drive` in some looks: messages that the program has started may
    /// need the MPI library, and other calls this library, while the program waits. Of several threads
    /// that wait, one polls for all; `awaited` are the requests of this library that this one waits for,
    /// and `is_ready` says whether another one has something to do. `drive` returns whether calls of any
    /// thread drive all that this one waits for.
    pub(super) fn rest(
        &mut self,
        awaited: impl FnOnce() -> Awaited,
        is_ready: impl FnMut(Handle) -> bool,
        drive: impl FnOnce() -> bool,
    ) {
        if self.spins() {
            return;
        }
        let waited = self.begun.get_or_insert_with(Instant::now).elapsed();
        let sleep = sleep_after(waited, !is_oversubscribed());
        match poller::role(sleep.map(|_| awaited)) {
            Role::Polls { is_new } => {
                self.has_role |= is_new;
                let others_sleep = poller::wake_ready(is_ready);
                self.poll(others_sleep, || _ = drive());
            }
            // In a short wait all threads have their turn again before one that sleeps would wake.
            Role::Looks => std::thread::yield_now(),
            Role::Sleeps => {
                self.has_role = true;
                let limit = sleep.filter(|_| !self.is_driven).unwrap_or(LONGEST_SLEEP);
                let begun = Instant::now();
                std::thread::park_timeout(limit);
                if begun.elapsed() >= limit {
                    self.is_driven = drive();
                }
            }
        }
    }

    /// Returns whether the partner may be about to arrive; a moment has passed then.
    fn spins(&mut self) -> bool {
        self.looks = self.looks.saturating_add(1);
        let spins = self.looks < SPINS && !is_oversubscribed();
        if spins {
            std::hint::spin_loop();
        }
        spins
    }

    /// Drives, or leaves the core, or does both.
    fn poll(&mut self, others_sleep: bool, drive: impl FnOnce()) {
        let is_oversubscribed = is_oversubscribed();
        // In turns, with a look after each: some MPI libraries yield the core, too, when they are
        // driven, and the request may be complete after each yield.
        if is_oversubscribed && self.looks.is_multiple_of(2) {
            drive();
            return;
        }
        if !is_oversubscribed {
            drive();
        }
        let begun = *self.begun.get_or_insert_with(Instant::now);
        let is_shared = is_oversubscribed || others_sleep;
        // Among many threads that yield, the awaited one would have one turn in many.
        match is_shared.then(|| sleep_after(begun.elapsed(), !is_oversubscribed)).flatten() {
            Some(time) => std::thread::sleep(time),
            None => std::thread::yield_now(),
        }
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        // A jump inside this wait may have ended the role already; another end changes nothing.
        if self.has_role {
            poller::leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::poller::tests::{ONE_TEST, sleepers};
    use super::*;
    use std::sync::PoisonError;

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

    #[test]
    fn a_thread_that_waits_for_the_mpi_library_alone_sleeps_beside_the_poller() {
        let _one = ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner);
        let long_ago = Instant::now().checked_sub(Duration::from_secs(1));
        let waiting = || Pause { looks: SPINS, begun: long_ago, ..Pause::default() };
        let mut poller = waiting();
        poller.rest(Awaited::new, |_| false, || true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut sleeper = waiting();
                let mut has_driven = false;
                while !has_driven {
                    sleeper.rest(
                        Awaited::new,
                        |_| false,
                        || {
                            has_driven = true;
                            false
                        },
                    );
                    assert_eq!(sleepers(), 1);
                }
            });
        });
        assert_eq!(sleepers(), 0);
    }
}
