//! The fault tolerance of the MPI library: the test for it, revoked communicators, and the end of
//! waits on them.

use crate::abi::Abi;
use crate::host::{self, Handle, call};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

/// True if the MPI library goes on after failures.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Finds out whether the MPI library goes on after failures.
pub(crate) fn examine() {
    let enabled = host::variable(c"ompi_ftmpi_enabled").cast::<bool>();
    // SAFETY: the library's variable of this type, which MPI_Init has written.
    let is_on = !enabled.is_null() && unsafe { enabled.cast::<u8>().read() } != 0;
    IS_ON.store(is_on && host::Comm_is_revoked.find().is_some(), Ordering::Relaxed);
}

/// Returns whether the MPI library goes on after failures.
#[inline]
pub(crate) fn is_on() -> bool {
    // Relaxed: written in the initialization of MPI, before any call that may be taken over.
    IS_ON.load(Ordering::Relaxed)
}

/// Returns whether a communicator was revoked.
#[inline]
pub(crate) fn is_revoked(communicator: Handle) -> bool {
    is_on() && ask_revoked(communicator)
}

#[cold]
fn ask_revoked(communicator: Handle) -> bool {
    let mut is_revoked = 0;
    call!(Comm_is_revoked(communicator, &raw mut is_revoked));
    is_revoked != 0
}

thread_local! {
    /// The communicator on which a call of this thread waits inside tradewind, or 0.
    static AWAITED: Cell<Handle> = const { Cell::new(0) };
}

/// Notes that a call of this thread waits inside tradewind, until it is dropped.
pub(crate) struct Awaited(Handle);

/// Lets a wait inside tradewind end with a failure on this communicator: [`flow`] breaks it.
#[inline]
pub(crate) fn awaiting(communicator: Handle) -> Option<Awaited> {
    // A function of the program that the call executes may wait on another communicator.
    is_on().then(|| Awaited(AWAITED.replace(communicator)))
}

impl Drop for Awaited {
    fn drop(&mut self) {
        AWAITED.set(self.0);
    }
}

/// Forgets the wait of this thread, which leaves it by a jump.
pub(crate) fn leave_wait() {
    AWAITED.set(0);
}

/// Returns whether the wait of this thread inside tradewind goes on.
pub(crate) fn flow() -> ControlFlow<()> {
    // A failed process ends the wait by itself.
    let is_revoked = is_on() && AWAITED.get() != 0 && ask_revoked(AWAITED.get());
    if is_revoked { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Executes calls of the MPI library on a communicator of the program, with an error handler that
/// returns instead of the program's.
pub(crate) fn with_errors_returned<T>(
    abi: &Abi,
    communicator: Handle,
    calls: impl FnOnce() -> T,
) -> T {
    let kept = abi.written(|at| call!(Comm_get_errhandler(communicator, at)));
    call!(Comm_set_errhandler(communicator, abi.errors_return));
    let value = calls();
    if let Ok(handler) = kept {
        call!(Comm_set_errhandler(communicator, handler));
        abi.by_address(handler, |at| call!(Errhandler_free(at)));
    }
    value
}
