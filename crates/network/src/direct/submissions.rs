//! Requests of the rank's threads to the thread that executes runs.
//!
//! A thread that executes runs holds the engine for as long as its own run takes. The others pass
//! it what they start, and interrupt it if they must have the engine themselves.

use super::run::DirectRun;
use crate::transport::records::BATCH_BYTES;
use rustix::fd::OwnedFd;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Requests to the engine.
#[derive(Debug)]
pub(super) struct Submissions {
    queue: Mutex<Queue>,
    /// Becomes readable when there is a request for an engine that sleeps.
    notifier: OwnedFd,
    /// Number of notifications so far. Changes under the lock of the queue.
    notifications: AtomicU64,
    /// Number of threads that wait for the engine to be released.
    interrupts: AtomicU32,
    /// Number of threads that wait for a run while another one executes it.
    waiters: AtomicU32,
    handover: Mutex<()>,
    /// Notified when the engine is released, and when runs end.
    changed: Condvar,
}

/// Runs and messages that were passed to the engine.
#[derive(Debug, Default)]
pub(super) struct Submitted {
    pub(super) started: Vec<Arc<DirectRun>>,
    /// Frames of records, and their receivers.
    pub(super) messages: Vec<(u32, Vec<u8>)>,
    /// Numbers of communicators that have ended, after the starts of their runs.
    pub(super) ended: Vec<RangeInclusive<u32>>,
}

impl Submitted {
    /// Returns true if nothing has to be done at once.
    pub(super) fn is_empty(&self) -> bool {
        self.started.is_empty() && self.messages.is_empty()
    }
}

#[derive(Debug, Default)]
struct Queue {
    submitted: Submitted,
    /// True while the engine's thread sleeps, or is about to.
    is_asleep: bool,
}

impl Submissions {
    pub(super) fn new(notifier: OwnedFd) -> Self {
        Submissions {
            queue: Mutex::default(),
            notifier,
            notifications: AtomicU64::new(0),
            interrupts: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            handover: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a run to the engine.
    pub(super) fn start(&self, run: Arc<DirectRun>) {
        let mut queue = self.queue();
        queue.submitted.started.push(run);
        self.wake(&queue);
    }

    /// Passes frames of records to the engine, in order.
    pub(super) fn send(&self, messages: &mut Vec<(u32, Vec<u8>)>) {
        let mut queue = self.queue();
        queue.submitted.messages.append(messages);
        self.wake(&queue);
    }

    /// Passes records for a rank to the engine, behind those in its last frame. Returns true if
    /// they have joined that one, false if they are a new one.
    pub(super) fn join(&self, to: u32, records: Vec<u8>) -> bool {
        let mut queue = self.queue();
        let joins = match queue.submitted.messages.last_mut() {
            Some((last, frame)) if *last == to && frame.len() < BATCH_BYTES => {
                frame.extend_from_slice(&records);
                true
            }
            _ => {
                queue.submitted.messages.push((to, records));
                false
            }
        };
        self.wake(&queue);
        joins
    }

    /// Passes the numbers of communicators that have ended, for the next turn of the engine.
    pub(super) fn end(&self, numbers: RangeInclusive<u32>) {
        let ended = &mut self.queue().submitted.ended;
        // They stay one range, however long the engine has nothing to do.
        match ended.last_mut() {
            Some(last)
                if *numbers.start() <= last.end().saturating_add(1)
                    && *last.start() <= numbers.end().saturating_add(1) =>
            {
                *last = *last.start().min(numbers.start())..=*last.end().max(numbers.end());
            }
            _ => ended.push(numbers),
        }
    }

    /// Ends the sleep of the engine's thread: it may have what it waits for.
    pub(super) fn notify(&self) {
        let queue = self.queue();
        self.notifications.fetch_add(1, Ordering::Relaxed);
        self.wake(&queue);
    }

    /// Returns the number of notifications so far.
    pub(super) fn notifications(&self) -> u64 {
        // Relaxed: a thread that misses one finds it in `prepare_sleep`.
        self.notifications.load(Ordering::Relaxed)
    }

    fn wake(&self, queue: &Queue) {
        if queue.is_asleep {
            // It fails only if the counter is full, and then the descriptor is readable.
            let _ = rustix::io::write(&self.notifier, &1u64.to_ne_bytes());
        }
    }

    /// Returns true if something has been passed that was not taken.
    pub(super) fn has_any(&self) -> bool {
        !self.queue().submitted.is_empty()
    }

    /// Takes what has been passed.
    pub(super) fn take(&self) -> Submitted {
        std::mem::take(&mut self.queue().submitted)
    }

    /// Announces that the engine's thread sleeps; false if there is a request for it, or another
    /// number of notifications.
    pub(super) fn prepare_sleep(&self, notifications: u64) -> bool {
        let mut queue = self.queue();
        // A later request sees the mark, because it takes the same lock.
        queue.is_asleep = queue.submitted.is_empty()
            && !self.is_interrupted()
            && self.notifications() == notifications;
        queue.is_asleep
    }

    /// Withdraws the announcement.
    pub(super) fn end_sleep(&self) {
        self.queue().is_asleep = false;
    }

    /// Returns true if a thread waits for the engine to be released.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupts.load(Ordering::Acquire) > 0
    }

    /// Makes the engine's thread release it, while `body` waits for it.
    pub(super) fn interrupt<R>(&self, body: impl FnOnce() -> R) -> R {
        // Release: pairs with the Acquire in `is_interrupted`. The queue's lock orders the count
        // before a sleep of the engine's thread.
        self.interrupts.fetch_add(1, Ordering::Release);
        self.wake(&self.queue());
        let result = body();
        self.interrupts.fetch_sub(1, Ordering::Release);
        result
    }

    /// Waits until the engine is released or runs end, at most `limit`.
    pub(super) fn wait_for_change(&self, limit: Duration, has_ended: impl Fn() -> bool) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let lock = self.handover.lock().unwrap_or_else(PoisonError::into_inner);
        // A change that this thread misses costs it the limit.
        if !has_ended() {
            drop(self.changed.wait_timeout(lock, limit));
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes the threads that wait for a change.
    pub(super) fn notify_change(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            let _lock = self.handover.lock().unwrap_or_else(PoisonError::into_inner);
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::shared_region::notifier;

    #[test]
    fn communicators_that_end_while_the_engine_rests_are_few_ranges() {
        let submissions = Submissions::new(notifier().expect("a descriptor"));
        // One that lasts lies between.
        for number in (1..10_000).filter(|number| *number != 50) {
            let first = if number < 50 { 1 } else { 51 };
            submissions.end(first..=number);
        }
        assert!(!submissions.has_any(), "nothing has to be done at once");
        assert_eq!(submissions.take().ended, [1..=49, 51..=9_999]);
        submissions.end(1..=50);
        submissions.end(1..=9);
        assert_eq!(submissions.take().ended, [1..=50]);
    }
}
