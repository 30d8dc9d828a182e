//! The thread that ends a job whose ranks have divided one collective between the two libraries.
//!
//! All ranks of a correct program decide alike. Where a program passes lengths that differ, one
//! rank may run a collective here and another one leave it to the MPI library. A rank that waits
//! here gets an error, because the other one has passed the call over. A rank that waits inside the
//! MPI library is reached by nothing, nor is one that only contributes and goes on. So each rank
//! that leaves calls for what their arguments are has this thread.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tradewind::{Communicator, Error};

/// Time between two checks.
const INTERVAL: Duration = Duration::from_secs(1);

struct Watch {
    watched: Vec<Watched>,
    /// The last number.
    last: u64,
    has_thread: bool,
}

/// A communicator on which calls have been passed over.
struct Watched {
    number: u64,
    communicator: Communicator,
    /// The collective that the last check has found divided.
    divided: Option<u64>,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch { watched: Vec::new(), last: 0, has_thread: false });

/// Notified when the list is empty.
static END: Condvar = Condvar::new();

fn watch() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks after a communicator. Returns a number for [`end`], which is not 0.
#[cold]
pub(crate) fn begin(communicator: &Communicator) -> u64 {
    let mut watch = watch();
    watch.last += 1;
    let number = watch.last;
    watch.watched.push(Watched { number, communicator: communicator.clone(), divided: None });
    if watch.has_thread {
        return number;
    }
    let thread = std::thread::Builder::new().name("tradewind".into());
    match thread.spawn(run) {
        Ok(_) => watch.has_thread = true,
        Err(error) => log::warn!("no thread looks for ranks in different collectives: {error}"),
    }
    number
}

/// Ends that. With the number 0 nothing has begun.
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

fn run() {
    let mut watch = watch();
    while !watch.watched.is_empty() {
        for Watched { communicator, divided, .. } in &mut watch.watched {
            let Err(error) = communicator.check_passed_over() else { continue };
            let Error::Mismatch { sequence, .. } = error else { continue };
            // Twice: a rank that waits here reports it first, by the error handler of the program.
            if divided.replace(sequence) == Some(sequence) {
                log::error!(
                    "the lengths of one collective differ, so its ranks wait in two libraries: \
                     {error}; the job ends"
                );
                // SAFETY: ends the process at once. The thread that is inside the MPI library
                // cannot be reached, and no function of that library may be called beside it.
                unsafe { libc::_exit(1) };
            }
        }
        let waited = END.wait_timeout(watch, INTERVAL).unwrap_or_else(PoisonError::into_inner);
        watch = waited.0;
    }
    watch.has_thread = false;
}
