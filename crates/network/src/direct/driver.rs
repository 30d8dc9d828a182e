//! The engine of a rank, and the thread that executes its runs.
//!
//! One thread has the engine at a time: one that waits for a run, one that starts a run, or the
//! background thread. A thread that leaves the engine first takes the runs that were passed
//! meanwhile, and arms the background thread, if that was started and runs need it (`attendance`).
//! The first run that needs it starts it.

use super::background::{Background, PAUSE};
use super::engine::DirectEngine;
use super::submissions::Submissions;
use crate::agent::clock::until;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// The engine of a rank.
#[derive(Debug)]
pub(super) struct Driver {
    /// Locked by the thread that executes runs.
    engine: Mutex<DirectEngine>,
    pub(super) submissions: Arc<Submissions>,
    pub(super) background: Background,
}

impl Driver {
    pub(super) fn new(
        engine: DirectEngine,
        submissions: Arc<Submissions>,
        background: Background,
    ) -> Driver {
        Driver { engine: Mutex::new(engine), submissions, background }
    }

    /// Returns the engine, when no other thread executes runs.
    pub(super) fn lock(&self) -> Driving<'_> {
        self.driving(self.engine.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the engine, unless another thread executes runs.
    pub(super) fn try_lock(&self) -> Option<Driving<'_>> {
        match self.engine.try_lock() {
            Ok(engine) => Some(self.driving(engine)),
            Err(TryLockError::Poisoned(engine)) => Some(self.driving(engine.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn driving<'a>(&'a self, engine: MutexGuard<'a, DirectEngine>) -> Driving<'a> {
        Driving { driver: self, engine: Some(engine), is_background: false }
    }

    /// Ensures that what this thread has left under way advances without it. `needs_thread` is
    /// true if that needs the background thread, and `None` if another thread had the engine. If
    /// the system has no thread left, runs advance while the rank waits.
    pub(super) fn attend(self: &Arc<Self>, needs_thread: Option<bool>) {
        if needs_thread == Some(false) || self.background.is_started() {
            return;
        }
        let driver = Arc::clone(self);
        if self.background.start(move || driver.run_in_background()).is_ok() {
            // A thread that left the engine before may not have armed the background thread,
            // because it was not started. This one does so when it leaves the engine.
            self.submissions.interrupt(|| drop(self.lock()));
        }
    }

    /// Executes runs while no other thread does, until the background thread is stopped.
    fn run_in_background(&self) {
        let mut timeout = None;
        while self.background.sleep(timeout) {
            timeout = None;
            // A thread that has the engine arms the set when it leaves it, and then notifies this
            // one of timers.
            if let Some(mut engine) = self.try_lock() {
                engine.is_background = true;
                if engine.poll().is_err() {
                    std::thread::sleep(PAUSE);
                }
                timeout = engine.next_timer().map(until);
            }
        }
    }

    /// Executes what was passed and what has arrived. Returns whether the rest needs a thread;
    /// `None` if another thread has the engine, which then does that.
    pub(super) fn advance(&self) -> Option<bool> {
        let mut engine = self.try_lock()?;
        // If the system refuses to read, the next wait reports that.
        let _ = engine.advance();
        Some(engine.needs_thread())
    }
}

/// The engine, for the thread that executes runs.
#[derive(Debug)]
pub(super) struct Driving<'a> {
    driver: &'a Driver,
    /// Present until the drop.
    engine: Option<MutexGuard<'a, DirectEngine>>,
    /// True for the background thread.
    pub(super) is_background: bool,
}

impl Deref for Driving<'_> {
    type Target = DirectEngine;

    fn deref(&self) -> &DirectEngine {
        self.engine.as_deref().expect("it is there until the drop")
    }
}

impl DerefMut for Driving<'_> {
    fn deref_mut(&mut self) -> &mut DirectEngine {
        self.engine.as_deref_mut().expect("it is there until the drop")
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        let Driver { submissions, background, .. } = self.driver;
        let Some(engine) = self.engine.take() else { return };
        // Calls that block start no background thread, and neither inspect the runs nor make system
        // calls for it. A thread that starts it from now on takes the engine afterwards, and arms
        // it (`Driver::attend`).
        let is_started = background.is_started();
        let needs_thread = is_started && engine.needs_thread();
        let has_timer = is_started && engine.next_timer().is_some();
        drop(engine);
        // Only now: the thread that an arrival wakes must find the engine free. Something that has
        // arrived before is reported, too, because the set is level-triggered for its member.
        if needs_thread {
            background.arm();
        }
        if has_timer && !self.is_background {
            // Its sleep may be longer than the computation.
            background.notify();
        }
        submissions.notify_change();
        // A thread that found the engine locked has passed its run before, so this check finds it;
        // or its attempt came after the release, and it has the engine itself.
        if submissions.has_started() {
            let _ = self.driver.advance();
        }
    }
}
