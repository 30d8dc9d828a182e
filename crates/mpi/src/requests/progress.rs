//! Progress thread, which advances queued operations beside the program.

use std::sync::{Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// Interval at which the operations are advanced while one of them is queued.
const EVERY: Duration = Duration::from_micros(200);

/// Makes a thread call `advance` again and again, until that returns false. The caller makes sure
/// that the thread has nothing to do; the function is the same in each call.
///
/// # Errors
/// If the thread cannot be created.
pub(super) fn start_thread(advance: impl Fn() -> bool + Send + 'static) -> std::io::Result<()> {
    static THREAD: Mutex<Option<Thread>> = Mutex::new(None);
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    // Once started, the thread stays, parked while it has nothing to do. An unpark that precedes the
    // park makes the park return at once.
    if let Some(thread) = &*thread {
        thread.unpark();
        return Ok(());
    }
    let run = move || {
        loop {
            std::thread::sleep(EVERY);
            if !advance() {
                std::thread::park();
            }
        }
    };
    let handle = std::thread::Builder::new().name("tradewind".into()).spawn(run)?;
    *thread = Some(handle.thread().clone());
    Ok(())
}
