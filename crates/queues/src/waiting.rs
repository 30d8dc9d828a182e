//! Waiting for a queue: bounded polling, then sleep on its wake-up word.

use std::time::{Duration, Instant};

use crate::bell::Bell;
use crate::fence;
use crate::sync::{self, Ordering, spin_loop};

/// Number of polls before the first sleep: some microseconds, about the cost of falling asleep and
/// waking up.
const POLLS: u32 = 400;

/// Number of polls without a spin-loop hint. Later polls spare the processor's other hardware
/// thread.
const EAGER_POLLS: u32 = 100;

/// Number of yields before the first sleep: with more threads than processors, the awaited thread
/// may be the next to run.
const YIELDS: u32 = 3;

/// Longest sleep without a check. A notifier killed before its system call wakes no sleeper.
const SLICE: Duration = Duration::from_millis(100);

/// Longest sleep where a notification may be missed, because the kernel refuses membarrier (see
/// [`shm::fence`]).
const SHORT_SLICE: Duration = Duration::from_millis(1);

/// Length of a sleep without registration while other waiters take all messages.
const CONTENDED_SLEEP: Duration = Duration::from_micros(50);

/// Operations of a waiting thread.
pub(crate) trait Wait {
    /// Result of the wait.
    type Output;

    /// Returns the wake-up word that is notified when the condition may hold.
    fn bell(&self) -> Bell<'_>;

    /// Returns how notifiers order the change before the load of the wake-up word.
    fn published(&self) -> Published {
        Published::Exchange
    }

    /// Returns the result if the condition holds.
    fn poll(&mut self) -> Option<Self::Output>;

    /// Returns whether further polls will complete the wait, so that the thread must not sleep.
    /// Called after a barrier.
    fn is_ready(&mut self) -> bool {
        false
    }

    /// Returns a value that changes when another waiter takes a message.
    fn progress(&self) -> u64 {
        0
    }

    /// Called after a sleep without notification: completes what a killed notifier left undone;
    /// returns the result that ends the wait if its peers have left or failed.
    fn recover(&mut self) -> Option<Self::Output> {
        None
    }
}

/// Operation that publishes the change before the load of the wake-up word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Published {
    /// A read-modify-write.
    Exchange,
    /// A store, followed by the light half of the barrier.
    Store,
}

impl Published {
    /// Executes the sleeper's half of the barrier; returns the longest sleep without a check.
    fn barrier(self) -> Duration {
        match self {
            Published::Store if !fence::heavy() => SHORT_SLICE,
            Published::Store => SLICE,
            Published::Exchange => {
                // Pairs with the notifier's exchange and load: it sees this sleeper, or this thread
                // sees its change.
                sync::fence(Ordering::SeqCst);
                SLICE
            }
        }
    }
}

/// Polls a bounded number of times, then sleeps on the wake-up word and polls after every
/// notification. `None` at the deadline.
///
/// While another waiter takes every message, this thread does not register as a sleeper: every
/// notification would cost a system call that wakes it in vain. It polls at intervals instead, in
/// case the other waiter is busy with its messages.
pub(crate) fn wait<W: Wait>(waiter: &mut W, deadline: Option<Instant>) -> Option<W::Output> {
    let mut progress = waiter.progress();
    for polls in 0..POLLS + YIELDS {
        if let Some(output) = waiter.poll() {
            return Some(output);
        }
        if polls >= POLLS {
            std::thread::yield_now();
        } else if polls > EAGER_POLLS {
            spin_loop();
        }
    }
    let left = || deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    loop {
        let before = std::mem::replace(&mut progress, waiter.progress());
        if progress != before && left().is_none_or(|left| !left.is_zero()) {
            std::thread::sleep(left().map_or(CONTENDED_SLEEP, |left| left.min(CONTENDED_SLEEP)));
            match waiter.poll() {
                None => continue,
                output => return output,
            }
        }
        // The order of these steps prevents a lost wake-up: register, barrier, last poll, sleep. A
        // notifier changes the condition before it loads the word. So it finds the registration, or
        // the poll below finds the change. A waiter killed from here on stays registered, which costs
        // notifiers one system call (see `bell.rs`).
        let registration = waiter.bell().register();
        let slice = waiter.published().barrier();
        let output = waiter.poll();
        let left = left();
        let is_over = output.is_some() || left.is_some_and(|left| left.is_zero());
        let must_poll = is_over || waiter.is_ready();
        let slept = !must_poll
            && waiter.bell().sleep(registration, Some(left.map_or(slice, |left| left.min(slice))));
        waiter.bell().unregister(registration);
        if is_over {
            return output;
        }
        // A whole slice without a notification: the notifier may have died between its change and the
        // wake-up, so its remaining steps are done here before the next poll.
        if slept {
            let end = waiter.recover();
            if end.is_some() {
                return end;
            }
        } else if must_poll {
            // The thread that completes the condition may need this processor.
            std::thread::yield_now();
        }
        if let Some(output) = waiter.poll() {
            return Some(output);
        }
    }
}
