//! The engine of a rank, and the thread that executes its runs.
//!
//! One thread has the engine at a time: one that waits for a run or a message, one that starts or
//! sends one, or the background thread. A thread that leaves the engine arms the background thread
//! if runs or frames need it ([`DirectEngine::background_need`]), or threads sleep until messages
//! arrive, and starts it the first time. Then it takes the runs and messages that were passed
//! meanwhile.

use super::background::{Background, PAUSE};
use super::background_need::BackgroundNeed;
use super::engine::DirectEngine;
use super::losses::Losses;
use super::messages::Messages;
use super::run::DirectRun;
use super::submissions::Submissions;
use crate::runs::clock::until;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Time between two looks of the background thread at runs that need none.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Time between two looks for messages that wait for others to join them.
const TICK: Duration = Duration::from_millis(1);
/// Number of these looks in a row at nothing after which the thread looks less often.
const IDLE_TICKS: u32 = 100;
/// Number of looks in a row at no run after which the thread looks no more.
const IDLE_LOOKS: u32 = 20;

/// The engine of a rank.
#[derive(Debug)]
pub(super) struct Driver {
    /// Locked by the thread that executes runs.
    engine: Mutex<DirectEngine>,
    pub(super) submissions: Arc<Submissions>,
    pub(super) losses: Arc<Losses>,
    pub(super) messages: Arc<Messages>,
    pub(super) background: Background,
    /// Number of bytes that each connection holds in each direction while no thread reads it.
    /// Relaxed: it changes only before the first run.
    pub(super) held: AtomicU64,
    /// True while the background thread has the engine, or is about to.
    has_background_turn: AtomicBool,
}

impl Driver {
    pub(super) fn new(engine: DirectEngine, background: Background, held: u64) -> Driver {
        let (submissions, losses, messages) = engine.shared();
        let engine = Mutex::new(engine);
        let held = AtomicU64::new(held);
        let has_background_turn = AtomicBool::new(false);
        Driver { engine, submissions, losses, messages, background, held, has_background_turn }
    }

    /// Returns what must advance without a call of the rank.
    fn background_need(&self, engine: &DirectEngine) -> BackgroundNeed {
        engine.background_need(self.held.load(Ordering::Relaxed))
    }

    /// Returns the engine, when no other thread executes runs.
    fn lock(self: &Arc<Self>) -> Driving<'_> {
        self.driving(self.engine.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the engine, unless another thread executes runs.
    pub(super) fn try_lock(self: &Arc<Self>) -> Option<Driving<'_>> {
        match self.engine.try_lock() {
            Ok(engine) => Some(self.driving(engine)),
            Err(TryLockError::Poisoned(engine)) => Some(self.driving(engine.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn driving<'a>(self: &'a Arc<Self>, engine: MutexGuard<'a, DirectEngine>) -> Driving<'a> {
        Driving { driver: self, engine: Some(engine), is_background: false }
    }

    /// Calls `body` with the engine, which a thread that executes runs releases for that.
    pub(super) fn interrupt<R>(self: &Arc<Self>, body: impl FnOnce(&mut DirectEngine) -> R) -> R {
        self.submissions.interrupt(|| body(&mut self.lock()))
    }

    /// Starts the background thread, unless it runs already. Returns false if the system has no
    /// thread left: runs then advance while the rank waits.
    fn has_background(self: &Arc<Self>) -> bool {
        let start = || {
            let driver = Arc::clone(self);
            self.background.start(move || driver.run_in_background()).is_ok()
        };
        self.background.is_started() || start()
    }

    /// Executes runs while no other thread does, until the background thread is stopped.
    fn run_in_background(self: &Arc<Self>) {
        let mut timeout = None;
        let mut idle_looks = 0;
        let mut idle_ticks = 0;
        while self.background.sleep(timeout) {
            let mut timer = None;
            if self.background.has_ticks() {
                idle_ticks = if self.submissions.has_any() { 0 } else { idle_ticks + 1 };
                if idle_ticks >= IDLE_TICKS {
                    idle_ticks = 0;
                    self.background.end_ticks(|| self.submissions.has_any());
                }
            }
            // A thread that has the engine arms the set when it leaves it, and then notifies this
            // one of timers.
            self.has_background_turn.store(true, Ordering::Relaxed);
            // Release: pairs with the Acquire in `begin`, through the lock that this thread takes.
            fence(Ordering::Release);
            let mut has_failed = false;
            let mut has_rest = false;
            if let Some(mut engine) = self.try_lock() {
                engine.is_background = true;
                has_failed = engine.poll_all().is_err();
                // The thread that interrupts this one may leave it what has arrived.
                has_rest = self.submissions.is_interrupted();
                timer = engine.next_timer().map(until);
                idle_looks = match self.background_need(&engine) {
                    BackgroundNeed::Nothing => idle_looks + 1,
                    _ => 0,
                };
                if idle_looks >= IDLE_LOOKS {
                    idle_looks = 0;
                    self.background.set_looks(false);
                }
            }
            self.has_background_turn.store(false, Ordering::Relaxed);
            // Without the engine, which a start may need.
            if has_failed {
                std::thread::sleep(PAUSE);
            }
            let look = self.background.has_looks().then_some(LOOK_INTERVAL);
            let tick = self.background.has_ticks().then_some(TICK);
            let rest = has_rest.then_some(Duration::ZERO);
            timeout = timer.into_iter().chain(look).chain(tick).chain(rest).min();
        }
    }

    /// Starts a run that was passed, with the inputs of this call in place.
    pub(super) fn begin(self: &Arc<Self>, run: &DirectRun) {
        let mut engine = self.try_lock();
        if engine.is_none() {
            // Acquire: pairs with the Release in `run_in_background`: if that thread has the engine,
            // its mark is seen.
            fence(Ordering::Acquire);
            // A rank that is killed behind this call has handed its messages to the system, also
            // while the background thread receives others.
            if self.has_background_turn.load(Ordering::Relaxed) {
                engine = Some(self.submissions.interrupt(|| self.lock()));
            }
        }
        let Some(mut engine) = engine else {
            // The thread of the rank that has it may start the run after this call, which revokes
            // the inputs: all of them are still to be read.
            run.keep_inputs(|buffer| std::iter::once(0..run.buffers[buffer].len()).collect());
            return;
        };
        engine.begin(run);
        // Before the engine is left: the background thread may then execute the rest.
        run.keep_inputs(|buffer| engine.unread(run, buffer));
    }

    /// Sends what was passed, unless another thread has the engine, which then does that.
    pub(super) fn send(self: &Arc<Self>) {
        if let Some(mut engine) = self.try_lock() {
            engine.turn();
        }
    }

    /// Executes what was passed and what has arrived, unless another thread has the engine, which
    /// then does that.
    pub(super) fn advance(self: &Arc<Self>) {
        if let Some(mut engine) = self.try_lock() {
            // If the system refuses to read, the next wait reports that.
            let _ = engine.advance();
        }
    }
}

/// The engine, for the thread that executes runs.
#[derive(Debug)]
pub(super) struct Driving<'a> {
    driver: &'a Arc<Driver>,
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
        let Driver { submissions, background, messages, .. } = &**self.driver;
        let Some(engine) = self.engine.take() else { return };
        // Here, because every thread leaves the engine through this drop: a run that ends for one
        // thread may have been executed by another one.
        let background_need = self.driver.background_need(&engine);
        let has_timer = engine.next_timer().is_some();
        // A rank that starts such runs in turns with waits makes no system call here: the looks
        // begin once, and go on for a while.
        let begins_looks = background_need == BackgroundNeed::Looks && !background.has_looks();
        if begins_looks {
            background.set_looks(true);
        }
        drop(engine);
        // Only now: the thread that an arrival wakes must find the engine free. Something that has
        // arrived before is reported, too, because the set is level-triggered for its member.
        // A thread that begins to sleep until messages arrive may have found the engine locked.
        let is_always = background_need == BackgroundNeed::Always || messages.has_sleepers();
        if (is_always || begins_looks) && self.driver.has_background() {
            if is_always {
                background.arm();
            }
            if (has_timer || begins_looks) && !self.is_background {
                // Its sleep may be longer than the computation, or than the interval.
                background.notify();
            }
        }
        submissions.notify_change();
        // A thread that found the engine locked has passed its run or its messages before, so this
        // check finds them; or its attempt came after the release, and it has the engine itself.
        if submissions.has_any() {
            self.driver.advance();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Backend, CommunicatorContext};
    use crate::local::connect_directly;
    use goal::compile::compile;
    use goal::graph::{Access, Graph};

    /// A rank that is killed behind the start fails no other one then.
    #[test]
    fn a_start_sends_its_messages_although_the_background_thread_has_the_engine() {
        let ranks = connect_directly(2).expect("sockets");
        let mut graph = Graph::new(0, 2);
        let block = graph.buffer(Access::Input, 8);
        graph.send(block, 1, 0);
        let schedule = compile(&graph).expect("in order");
        let context = CommunicatorContext { number: 0, members: [0, 1].into(), rank: 0 };
        let id = ranks[0].register(&context, &schedule, 0).expect("two ranks");
        let driver = &ranks[0].driver;
        driver.has_background_turn.store(true, Ordering::Relaxed);
        let engine = driver.lock();
        std::thread::scope(|scope| {
            let starting = scope.spawn(|| ranks[0].start(id, 0, &[&[7; 8]]).expect("an input"));
            while !driver.submissions.is_interrupted() {
                assert!(!starting.is_finished(), "the start has left its messages to the thread");
                std::thread::yield_now();
            }
            drop(engine);
        });
    }
}
