//! Loom models of the completion word, the wake-up word, shared copies, the bias of a mutex and the
//! connection to objects: every interleaving up to a bound on preemptions, on the source files that run in production. A
//! lost wake-up shows as a deadlock, which loom reports.

mod sync {
    pub(crate) use loom::sync::atomic::*;
}

/// Model of the kernel's barrier: a full fence on both sides. The point after an exchange is a
/// fence too, because loom does not know the order of sequentially consistent accesses.
mod fence {
    use loom::sync::atomic::{Ordering, fence};

    pub(crate) fn light() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn heavy() -> bool {
        fence(Ordering::SeqCst);
        true
    }

    pub(crate) fn after_exchange() {
        fence(Ordering::SeqCst);
    }
}

/// Model of the kernel's futex: comparing and falling asleep are one step with respect to a
/// wake-up.
mod futex {
    use core::time::Duration;

    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::sync::{Condvar, Mutex};

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum WaitOutcome {
        Woken,
        ValueChanged,
        TimedOut,
    }

    /// Payload with which a thread unwinds that is stopped for good inside the kernel.
    pub(crate) struct Stopped;

    loom::thread_local! {
        /// True if this thread is stopped for good when it wakes others.
        pub(crate) static STOPS: std::cell::Cell<bool> = std::cell::Cell::new(false);
    }

    /// The kernel's hash bucket: its lock and its queue. One for all words suffices, since sleepers
    /// recheck their condition.
    struct Bucket {
        lock: Mutex<()>,
        queue: Condvar,
    }

    loom::lazy_static! {
        static ref BUCKET: Bucket = Bucket { lock: Mutex::new(()), queue: Condvar::new() };
    }

    pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> WaitOutcome {
        assert!(timeout.is_none(), "loom has no clock");
        let locked = BUCKET.lock.lock().expect("no panic holds it");
        // Relaxed: only the lock orders the load with respect to a wake-up.
        if word.load(Ordering::Relaxed) != expected {
            return WaitOutcome::ValueChanged;
        }
        drop(BUCKET.queue.wait(locked).expect("no panic holds it"));
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
}

/// Model of processes: those from a number on have ended.
mod liveness {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct ProcessId(pub(crate) u64);

    pub(crate) const ENDED: u64 = 100;

    impl ProcessId {
        pub(crate) const NONE: ProcessId = ProcessId(0);
    }

    #[derive(Default)]
    pub(crate) struct ProcessWatch {
        _no_handle: (),
    }

    impl ProcessWatch {
        pub(crate) fn has_ended(&mut self, process: ProcessId) -> bool {
            process.0 >= ENDED
        }
    }
}

#[path = "../../src/announcements.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the file is a library module; the models below use parts of it"
)]
mod announcements;
#[path = "../../src/bias.rs"]
mod bias;
mod biases;
#[path = "../../src/completion.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the file is a library module; the models below use parts of it"
)]
mod completion;
mod completions;
mod connections;
#[path = "../../src/label.rs"]
#[allow(unreachable_pub, reason = "the file is a library module")]
mod label;
#[path = "../../src/part_claims.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the file is a library module; the models below use parts of it"
)]
mod part_claims;
#[path = "../../src/process_words.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the file is a library module; the models below use parts of it"
)]
mod process_words;
mod shared_copies;
#[path = "../../src/wakeup.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the file is a library module; the models below use parts of it"
)]
mod wakeup;
mod wakeups;

/// Checks every interleaving with at most this many preemptions.
fn explore(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(check);
}

/// Asserts that a function panics because Loom has found a deadlock.
fn assert_deadlock(run: impl FnOnce()) {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    let payload = panic.expect_err("the model has to fail");
    let message = payload.downcast_ref::<String>().expect("a panic with a message");
    assert!(message.contains("deadlock"), "{message}");
}

fn main() -> std::process::ExitCode {
    testing::run_in_processes()
}
