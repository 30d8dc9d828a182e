//! The thread that frees memory for other ranks while this one is inside the MPI library.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use tradewind::Communicator;
use tradewind::interop::{MemoryRelief, relieve_memory};

enum State {
    /// No job, or its end.
    Closed,
    /// No call has used the arenas. Programs with short collectives only stay without a second
    /// thread.
    Unneeded(Communicator),
    Started(#[expect(dead_code, reason = "dropping it ends the thread")] MemoryRelief),
}

static STATE: Mutex<State> = Mutex::new(State::Closed);

/// A hint that avoids the lock.
static IS_STARTED: AtomicBool = AtomicBool::new(false);

/// Permits the thread, for the job with this world.
pub(crate) fn open(world: Communicator) {
    replace(State::Unneeded(world));
}

/// Ends the thread.
pub(crate) fn close() {
    replace(State::Closed);
}

fn replace(state: State) {
    // Dropped without the lock: the thread may be in a call that takes it.
    let before =
        std::mem::replace(&mut *STATE.lock().unwrap_or_else(PoisonError::into_inner), state);
    drop(before);
}

/// Starts the thread, which calls `advance` while memory is short, unless it runs.
#[inline]
pub(crate) fn start(advance: impl Fn() + Send + 'static) {
    // Relaxed: the state is protected by its lock.
    if !IS_STARTED.load(Ordering::Relaxed) {
        start_first(advance);
    }
}

#[cold]
fn start_first(advance: impl Fn() + Send + 'static) {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let State::Unneeded(world) = &*state else { return };
    match relieve_memory(world, advance) {
        Ok(relief) => *state = State::Started(relief),
        Err(error) => {
            log::warn!("{error}");
            *state = State::Closed;
        }
    }
    IS_STARTED.store(true, Ordering::Relaxed);
}
