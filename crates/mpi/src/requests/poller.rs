//! The one thread of this process that polls while several wait for requests.
//!
//! Where threads share cores, each one that polls takes a core from what it waits for. So one of them
//! drives the MPI library, executes this rank's tasks and tests this library's requests of the others,
//! which in a long wait sleep until one is complete or the role is free. A request of the MPI library is
//! tested by the thread that waits for it, after each of its sleeps.
//!
//! The role and the list of sleepers change under a lock of their own, which is free while the poller
//! tests. A thread enters the list after it has found its requests active, and the poller tests all that
//! it finds there, again and again, until it leaves and wakes one of them. A wake-up that precedes a sleep
//! ends it at once. A thread that ends its wait leaves the list, and wakes the next one if the role is
//! free: it may be the one that was woken to take it. So no wake-up is lost. A sleep is limited all the
//! same: the poller may be in a function of the program that waits for a sleeper.

use crate::host::Handle;
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Thread, ThreadId};

thread_local! {
    /// This thread has the role.
    static IS_POLLER: Cell<bool> = const { Cell::new(false) };
}

/// The state of the role.
struct Poller {
    is_taken: bool,
    sleepers: Vec<Sleeper>,
}

/// Requests of this library that a thread waits for; none where it waits for the MPI library alone.
pub(crate) type Awaited = SmallVec<[Handle; 4]>;

/// A thread that waits for one of these requests and does not poll.
struct Sleeper {
    requests: Awaited,
    thread: Thread,
}

impl Poller {
    /// Gives the role to this thread if it is free.
    fn take(&mut self) -> Option<Role> {
        let is_new = !std::mem::replace(&mut self.is_taken, true);
        IS_POLLER.set(is_new);
        is_new.then_some(Role::Polls { is_new })
    }

    /// Removes the entry of a thread, if it has one.
    fn forget(&mut self, thread: ThreadId) {
        self.sleepers.retain(|sleeper| sleeper.thread.id() != thread);
    }
}

static POLLER: Mutex<Poller> = Mutex::new(Poller { is_taken: false, sleepers: Vec::new() });

/// A hint that saves the poller the lock: the list has sleepers.
static HAS_SLEEPERS: AtomicBool = AtomicBool::new(false);

fn poller() -> MutexGuard<'static, Poller> {
    POLLER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Task of a thread that waits for a request.
pub(super) enum Role {
    /// It polls, and has got the role by this call if `is_new`.
    Polls { is_new: bool },
    /// Another one polls, and this one looks at its request.
    Looks,
    /// Another one polls, and wakes this one.
    Sleeps,
}

/// Gives the role to this thread if it is free. Otherwise enters the thread as a sleeper for the requests
/// that it `awaits`, if it sleeps.
pub(super) fn role(awaits: Option<impl FnOnce() -> Awaited>) -> Role {
    if IS_POLLER.get() {
        return Role::Polls { is_new: false };
    }
    if let Some(role) = poller().take() {
        return role;
    }
    let Some(awaits) = awaits else { return Role::Looks };
    // Without the lock: there may be many requests.
    let requests = awaits();
    let thread = std::thread::current();
    let mut poller = poller();
    if let Some(role) = poller.take() {
        return role;
    }
    // An earlier sleep of this thread may have ended by its limit.
    poller.forget(thread.id());
    poller.sleepers.push(Sleeper { requests, thread });
    // Relaxed: the poller reads it again and again.
    HAS_SLEEPERS.store(true, Ordering::Relaxed);
    Role::Sleeps
}

/// Wakes the sleepers of which a request is ready. Returns whether others sleep.
pub(super) fn wake_ready(mut is_ready: impl FnMut(Handle) -> bool) -> bool {
    // Relaxed: a later look finds what this one misses.
    if !HAS_SLEEPERS.load(Ordering::Relaxed) {
        return false;
    }
    let mut awaited: Awaited =
        poller().sleepers.iter().flat_map(|sleeper| sleeper.requests.iter().copied()).collect();
    // Without the lock: a test may take long, and other threads begin and end their waits meanwhile.
    awaited.retain(|request| is_ready(*request));
    let mut poller = poller();
    let is_woken =
        |sleeper: &mut Sleeper| sleeper.requests.iter().any(|request| awaited.contains(request));
    let woken = poller.sleepers.extract_if(.., is_woken);
    woken.for_each(|sleeper| sleeper.thread.unpark());
    let others_sleep = !poller.sleepers.is_empty();
    HAS_SLEEPERS.store(others_sleep, Ordering::Relaxed);
    others_sleep
}

/// Ends what this thread has of the role: the role itself, or its place among the sleepers. Wakes the
/// next sleeper if the role is free then.
pub(crate) fn leave() {
    let polled = IS_POLLER.replace(false);
    let mut poller = poller();
    poller.is_taken &= !polled;
    poller.forget(std::thread::current().id());
    let next = if poller.is_taken { None } else { poller.sleepers.pop() };
    // Relaxed: as in `role`.
    HAS_SLEEPERS.store(!poller.sleepers.is_empty(), Ordering::Relaxed);
    drop(poller);
    if let Some(next) = next {
        next.thread.unpark();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The role is one for the process, so its tests run one after the other.
    pub(in crate::requests) static ONE_TEST: Mutex<()> = Mutex::new(());

    fn take_role() -> Role {
        role(None::<fn() -> Awaited>)
    }

    fn sleep_for(requests: &[Handle]) -> Role {
        role(Some(|| Awaited::from_slice(requests)))
    }

    /// Number of sleepers.
    pub(in crate::requests) fn sleepers() -> usize {
        poller().sleepers.len()
    }

    /// Sleeps until the role is free, takes it and passes it on.
    fn sleep_for_the_role(request: Handle) {
        assert!(matches!(sleep_for(&[request]), Role::Sleeps));
        std::thread::park();
        assert!(matches!(take_role(), Role::Polls { is_new: true }));
        leave();
    }

    fn wait_for_sleepers(count: usize) {
        while sleepers() != count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_role_passes_to_a_sleeper_and_ends_with_a_jump() {
        let _one = ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(matches!(take_role(), Role::Polls { is_new: true }));
        assert!(matches!(take_role(), Role::Polls { is_new: false }));
        leave();
        assert!(!IS_POLLER.get() && !poller().is_taken);
        assert!(matches!(take_role(), Role::Polls { is_new: true }));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(matches!(take_role(), Role::Looks));
                assert!(matches!(sleep_for(&[2, 5]), Role::Sleeps));
                // Without a limit: it ends because one of the requests is ready.
                std::thread::park();
                sleep_for_the_role(2);
            });
            wait_for_sleepers(1);
            assert!(wake_ready(|_| false));
            // Other threads may take the lock during a test.
            assert!(!wake_ready(|request| POLLER.try_lock().is_ok() && request == 5));
            wait_for_sleepers(1);
            leave();
        });
        assert!(!IS_POLLER.get() && !poller().is_taken);
        assert!(matches!(take_role(), Role::Polls { is_new: true }));
        std::thread::scope(|scope| {
            scope.spawn(|| sleep_for_the_role(2));
            wait_for_sleepers(1);
            scope.spawn(|| {
                assert!(matches!(sleep_for(&[3]), Role::Sleeps));
                // Woken for the role, but its request is complete: the next one gets it.
                std::thread::park();
                leave();
            });
            wait_for_sleepers(2);
            leave();
        });
        assert!(!IS_POLLER.get() && !poller().is_taken);
    }
}
