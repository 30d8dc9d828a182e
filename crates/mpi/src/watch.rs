//! The thread that ends a job in which one collective runs here on some ranks and in the MPI
//! library on others.
//!
//! In a correct program all ranks make the same decision. If a program passes arguments that differ,
//! such as lengths that have to be equal, or one that is wrong on one rank, this rank may leave a
//! collective to the MPI library and another one run it here. The same holds for a communicator whose
//! creation has failed on one rank only. A rank that
//! waits here gets an error, because the other one has recorded the call as external. No error
//! reaches a rank that waits inside the MPI library, and a rank that only contributes, such as the
//! root of a broadcast, waits nowhere. Therefore each rank that has left a call because of its
//! arguments runs this thread.

use crate::origin::Mark;
use launch::environment::MPI;
use std::sync::Arc;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tradewind::{Communicator, Error, interop};

/// Time between two checks.
const INTERVAL: Duration = Duration::from_millis(500);

struct Watch {
    watched: Vec<Watched>,
    /// The last number.
    last: u64,
    has_thread: bool,
}

/// A communicator on which calls were left to the MPI library because of their arguments.
struct Watched {
    number: u64,
    communicator: Communicator,
    mark: Arc<Mark>,
    /// The mismatched collective that the last check has found.
    mismatched: Option<u64>,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch { watched: Vec::new(), last: 0, has_thread: false });

/// Notified when the list is empty.
static END: Condvar = Condvar::new();

fn watch() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a communicator to those that the thread checks. Returns a number for [`end`], not 0.
#[cold]
pub(crate) fn begin(communicator: &Communicator, mark: &Arc<Mark>) -> u64 {
    let mut watch = watch();
    watch.last += 1;
    let number = watch.last;
    let (communicator, mark) = (communicator.clone(), Arc::clone(mark));
    watch.watched.push(Watched { number, communicator, mark, mismatched: None });
    if watch.has_thread {
        return number;
    }
    let thread = std::thread::Builder::new().name("tradewind".into());
    match thread.spawn(run) {
        Ok(_) => watch.has_thread = true,
        Err(error) => log::warn!("no thread checks for mismatched collectives: {error}"),
    }
    number
}

/// Ends the checks of a communicator. The number 0 is that of none.
pub(crate) fn end(number: u64) {
    if number == 0 {
        return;
    }
    let mut watch = watch();
    watch.watched.retain(|watched| watched.number != number);
    if watch.watched.is_empty() {
        END.notify_all();
    }
}

/// Ends this process, and by that the job.
fn end_process(nodes: u32) -> ! {
    if nodes > 1 {
        // A launcher ends the ranks on other nodes after a signal has ended one. After an exit it
        // may take the end of the process for an orderly one.
        // SAFETY: the call touches no memory of this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
    // No handler of the program or of the MPI library may run: another thread is inside that library.
    // SAFETY: the call ends the process at once, and touches no memory of it.
    unsafe { libc::_exit(1) }
}

fn run() {
    let mut watch = watch();
    while !watch.watched.is_empty() {
        for Watched { communicator, mark, mismatched, .. } in &mut watch.watched {
            let Err(error) = interop::check_external_collectives(communicator) else { continue };
            let Error::Mismatch { sequence, .. } = error else { continue };
            // Only at the second check: by then a rank that waits here has reported the error, and
            // called the error handler of the program.
            // After a failure the ranks of a correct program may have made different calls.
            if mismatched.replace(sequence) == Some(sequence) && !mark.has_failed() {
                log::error!(
                    "the arguments of one collective differ, so its ranks wait in two libraries: \
                     {error}; the job ends: with {MPI}=off the MPI library has all calls"
                );
                end_process(communicator.nodes());
            }
        }
        let waited = END.wait_timeout(watch, INTERVAL).unwrap_or_else(PoisonError::into_inner);
        watch = waited.0;
    }
    watch.has_thread = false;
}
