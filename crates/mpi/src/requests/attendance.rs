//! The threads that advance operations beside the program.

use super::{Started, advance_all, with};
use crate::abi::Abi;
use crate::relief;
use std::sync::{Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// The threads that a new operation needs.
pub(super) struct Needs {
    attendance: bool,
    relief: bool,
}

impl Needs {
    #[inline]
    pub(super) fn of(started: &Started) -> Self {
        Needs { attendance: started.is_queued(), relief: started.uses_arena() }
    }

    /// Starts the threads, after the operation has been entered.
    #[inline]
    pub(super) fn fulfil(self, abi: &'static Abi) {
        if self.attendance {
            attend(abi);
        }
        if self.relief {
            relief::start(|| advance_all(abi));
        }
    }
}

/// Interval at which the operations are advanced while one of them is queued.
const ATTENDED_EVERY: Duration = Duration::from_micros(200);

/// Makes a thread advance the operations while one of them is queued. A queued one starts in a later
/// call of this rank, which may be inside a blocking function of the MPI library until then. A rank
/// queues even its only active call where it is ahead of the others, such as the root of broadcasts.
///
/// An operation that is not queued needs no thread: it has contributed. If it occupies the place of
/// another rank's next call, this rank has not started that call, or has queued it.
#[cold]
fn attend(abi: &'static Abi) {
    static THREAD: Mutex<Option<Thread>> = Mutex::new(None);
    if with(|requests| std::mem::replace(&mut requests.is_attended, true)) {
        return;
    }
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    // Once started, the thread stays, parked while no operation is queued.
    if let Some(thread) = &*thread {
        return thread.unpark();
    }
    let attend = move || {
        loop {
            std::thread::sleep(ATTENDED_EVERY);
            // With one hold of the lock: an operation that is entered later finds `is_attended`
            // false, and `attend` unparks this thread. An unpark that precedes the park makes the
            // park return at once.
            let goes_on = with(|requests| {
                requests.is_attended = requests.advance_all(abi);
                requests.is_attended
            });
            if !goes_on {
                std::thread::park();
            }
        }
    };
    match std::thread::Builder::new().name("tradewind".into()).spawn(attend) {
        Ok(handle) => *thread = Some(handle.thread().clone()),
        Err(error) => {
            with(|requests| requests.is_attended = false);
            log::warn!("no thread advances queued collectives: {error}");
        }
    }
}
