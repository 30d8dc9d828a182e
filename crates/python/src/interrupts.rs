//! Waits that release the interpreter's lock, and end with the exception of a signal.
//!
//! Signals are Python's, so its handlers run here: Ctrl-C raises `KeyboardInterrupt` in a wait. They
//! run in the main thread only, which passes the end of its own wait on to the ranks of `local`.

use crate::errors::exception;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tradewind::Error;
use tradewind::interop::while_waiting;

/// Longest time between two looks for signals.
const INTERVAL: Duration = Duration::from_millis(50);

/// Time between two looks for the end of ranks that are threads.
pub(crate) const INTERVAL_OF_LOCAL: Duration = Duration::from_millis(2);

thread_local! {
    /// Time of this thread's last look for signals inside a call.
    static LAST_LOOK: Cell<Option<Instant>> = const { Cell::new(None) };
    /// Exception that has ended a wait of this thread.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    static IS_MAIN: bool = is_main_thread();
    /// Set by the thread that waits for this one and others, when a signal has raised an exception there.
    static INTERRUPT: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Makes the waits of this thread end when the flag is set.
pub(crate) fn end_waits_by(interrupt: &Arc<AtomicBool>) {
    INTERRUPT.set(Some(Arc::clone(interrupt)));
}

/// Returns whether the waits of this thread end because of a signal in another one.
pub(crate) fn is_interrupted() -> bool {
    // Relaxed: the flag publishes nothing.
    INTERRUPT.with_borrow(|flag| flag.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)))
}

/// Returns whether this thread is the first one of its process.
fn is_main_thread() -> bool {
    // SAFETY: both calls only return a number.
    unsafe { libc::gettid() == libc::getpid() }
}

/// Executes the handlers of signals that have come, at times. Breaks if one has raised an exception.
fn look_for_signals() -> ControlFlow<()> {
    if !IS_MAIN.with(|is_main| *is_main) {
        return match is_interrupted() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
    }
    let now = Instant::now();
    if LAST_LOOK.get().is_some_and(|last| now - last < INTERVAL) {
        return ControlFlow::Continue(());
    }
    LAST_LOOK.set(Some(now));
    match Python::try_attach(|py| py.check_signals()) {
        Some(Err(error)) => {
            RAISED.set(Some(error));
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    }
}

/// Executes a call that waits for other ranks.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> tradewind::Result<T> + Send,
) -> PyResult<T> {
    py.detach(|| while_waiting(look_for_signals, call)).map_err(|error| match error {
        Error::GivenUp => RAISED.take().unwrap_or_else(|| PyKeyboardInterrupt::new_err(())),
        error => exception(&error),
    })
}

/// Waits by calls that wait for a limited time and can be repeated, `limit` in all.
pub(crate) fn wait_in_slices(
    py: Python<'_>,
    limit: Option<Duration>,
    mut wait: impl FnMut(Duration) -> tradewind::Result<()> + Send,
) -> PyResult<()> {
    let end = limit.and_then(|limit| Instant::now().checked_add(limit));
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let slice = left.map_or(INTERVAL, |left| left.min(INTERVAL));
        match py.detach(|| wait(slice)) {
            Ok(()) => return Ok(()),
            Err(error) if error.is_timeout() && left.is_none_or(|left| left > slice) => {
                py.check_signals()?;
                if is_interrupted() {
                    return Err(PyKeyboardInterrupt::new_err(()));
                }
            }
            Err(Error::Timeout { waiting_for, .. }) => {
                let after = limit.unwrap_or(slice);
                return Err(exception(&Error::Timeout { after, waiting_for }));
            }
            Err(error) => return Err(exception(&error)),
        }
    }
}
