//! The one thread of this process that polls while several wait for requests of this library.
//!
//! Where threads share cores, each one that polls takes a core from what it waits for. So one of them
//! drives the MPI library, executes this rank's tasks and tests the requests of the others, which in a
//! long wait sleep until their request is complete or the role is free.
//!
//! The role and the list of sleepers change under a lock of their own. A thread enters the list after it
//! has found its request active, and the poller tests all that it finds there, again and again, until it
//! leaves and wakes one of them. A wake-up that precedes a sleep ends it at once. A thread that ends its
//! wait leaves the list, and wakes the next one if the role is free: it may be the one that was woken to
//! take it. So no wake-up is lost. A sleep is limited all the same: the poller may be in a function of
//! the program that waits for a sleeper.

use crate::host::Handle;
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

/// A thread that waits for a request and does not poll.
struct Sleeper {
    request: Handle,
    thread: Thread,
}

impl Poller {
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

/// Gives the role to this thread if it is free. Otherwise enters the thread as a sleeper, if it `sleeps`.
pub(super) fn role(request: Handle, sleeps: bool) -> Role {
    if IS_POLLER.get() {
        return Role::Polls { is_new: false };
    }
    let mut poller = poller();
    let role = match std::mem::replace(&mut poller.is_taken, true) {
        false => Role::Polls { is_new: true },
        true if sleeps => {
            // An earlier sleep of this thread may have ended by its limit.
            let thread = std::thread::current();
            poller.forget(thread.id());
            poller.sleepers.push(Sleeper { request, thread });
            // Relaxed: the poller reads it again and again.
            HAS_SLEEPERS.store(true, Ordering::Relaxed);
            Role::Sleeps
        }
        true => Role::Looks,
    };
    drop(poller);
    IS_POLLER.set(matches!(role, Role::Polls { .. }));
    role
}

/// Wakes the sleepers whose requests are ready. Returns whether others sleep.
pub(super) fn wake_ready(mut is_ready: impl FnMut(Handle) -> bool) -> bool {
    // Relaxed: a later look finds what this one misses.
    if !HAS_SLEEPERS.load(Ordering::Relaxed) {
        return false;
    }
    let mut poller = poller();
    let woken = poller.sleepers.extract_if(.., |sleeper| is_ready(sleeper.request));
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
mod tests {
    use super::*;

    /// Sleeps until the role is free, takes it and passes it on.
    fn sleep_for_the_role(request: Handle) {
        assert!(matches!(role(request, true), Role::Sleeps));
        std::thread::park();
        assert!(matches!(role(request, true), Role::Polls { is_new: true }));
        leave();
    }

    fn wait_for_sleepers(count: usize) {
        while poller().sleepers.len() != count {
            std::thread::yield_now();
        }
    }

    /// One test: the role is one for the process.
    #[test]
    fn the_role_passes_to_a_sleeper_and_ends_with_a_jump() {
        assert!(matches!(role(1, true), Role::Polls { is_new: true }));
        assert!(matches!(role(1, true), Role::Polls { is_new: false }));
        leave();
        assert!(!IS_POLLER.get() && !poller().is_taken);
        assert!(matches!(role(1, true), Role::Polls { is_new: true }));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(matches!(role(2, false), Role::Looks));
                assert!(matches!(role(2, true), Role::Sleeps));
                // Without a limit: it ends because the request is ready.
                std::thread::park();
                sleep_for_the_role(2);
            });
            wait_for_sleepers(1);
            assert!(wake_ready(|_| false));
            assert!(!wake_ready(|request| request == 2));
            wait_for_sleepers(1);
            leave();
        });
        assert!(!IS_POLLER.get() && !poller().is_taken);
        assert!(matches!(role(1, true), Role::Polls { is_new: true }));
        std::thread::scope(|scope| {
            scope.spawn(|| sleep_for_the_role(2));
            wait_for_sleepers(1);
            scope.spawn(|| {
                assert!(matches!(role(3, true), Role::Sleeps));
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
