//! Progress of queued collectives beside the program.
//!
//! A queued collective starts in a later call of this rank, which may be inside a blocking function of
//! the MPI library until then. A rank queues even its only active call where it is ahead of the
//! others, such as the root of broadcasts.
//!
//! A collective that is not queued needs no progress: it has contributed. Its result is moved out of
//! its place when a later call of this rank needs that, and out of the shared memory when another rank
//! lacks it. The work here does not grow with the number of active collectives.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread::Thread;
use std::time::Duration;
use tradewind::Communicator;

/// Interval at which queued collectives are advanced.
const EVERY: Duration = Duration::from_micros(200);

/// The world of the job, while there is one.
static WORLD: RwLock<Option<Communicator>> = RwLock::new(None);

/// The thread advances queued collectives, or is about to.
static IS_AWAKE: AtomicBool = AtomicBool::new(false);

/// Sets the world of the job; `None` at its end.
pub(crate) fn set_world(world: Option<Communicator>) {
    let mut current = WORLD.write().unwrap_or_else(PoisonError::into_inner);
    let before = std::mem::replace(&mut *current, world);
    drop(current);
    drop(before);
}

/// Executes this rank's tasks of all collectives, among which is the start of queued ones; calls
/// nothing of the MPI library.
pub(crate) fn make_progress() {
    // An error belongs to the wait for the collective.
    let _ = progress();
}

/// As [`make_progress`]. Returns whether collectives are queued then.
fn progress() -> tradewind::Result<bool> {
    let world = WORLD.read().unwrap_or_else(PoisonError::into_inner);
    world.as_ref().map_or(Ok(false), Communicator::progress)
}

/// Makes a thread advance the collectives while one of them is queued, after one has been.
#[cold]
pub(super) fn advance_queued() {
    static THREAD: Mutex<Option<Thread>> = Mutex::new(None);
    // AcqRel: pairs with the exchange in `run`. If this one comes first, the thread sees the queued
    // collective; otherwise it is woken.
    if IS_AWAKE.swap(true, Ordering::AcqRel) {
        return;
    }
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    // Once started, the thread stays, parked while it has nothing to do. An unpark that precedes the
    // park makes the park return at once.
    if let Some(thread) = &*thread {
        thread.unpark();
        return;
    }
    match std::thread::Builder::new().name("tradewind".into()).spawn(run) {
        Ok(handle) => *thread = Some(handle.thread().clone()),
        Err(error) => {
            // Relaxed: no thread is there to pair with.
            IS_AWAKE.store(false, Ordering::Relaxed);
            log::warn!("no thread advances queued collectives: {error}");
        }
    }
}

fn run() {
    let mut has_failed = false;
    loop {
        std::thread::sleep(EVERY);
        // Before the look: a collective that is queued after it wakes the thread.
        IS_AWAKE.swap(false, Ordering::AcqRel);
        let is_queued = progress();
        // A task that has failed may have hindered others once. A failure that stays ends the turns
        // until the next collective is queued.
        let goes_on = is_queued.as_ref().map_or(!has_failed, |is_queued| *is_queued);
        has_failed = is_queued.is_err();
        if goes_on {
            // Relaxed: this thread itself looks again.
            IS_AWAKE.store(true, Ordering::Relaxed);
        } else {
            std::thread::park();
        }
    }
}
