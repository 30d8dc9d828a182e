//! The communicators of calls, and what is known of failures on them.

use crate::abi::Abi;
use crate::host::{Handle, pass};
use crate::tolerance::{is_on, is_revoked};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A communicator of the program, as far as its calls know it. It may be freed while they are active.
#[derive(Debug)]
pub(crate) struct Mark {
    /// Its number among those of this process.
    number: u64,
    /// True after a collective that has failed because of a failed process.
    is_failed: AtomicBool,
    /// True after ranks were in different collectives.
    is_mismatched: AtomicBool,
    /// Its handle, until the program frees it.
    existing: Mutex<Option<Handle>>,
}

impl Mark {
    /// The mark of a communicator that does not exist yet.
    pub(crate) fn new() -> Arc<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Mark {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            is_failed: AtomicBool::new(false),
            is_mismatched: AtomicBool::new(false),
            existing: Mutex::new(None),
        })
    }

    fn handle(&self) -> MutexGuard<'_, Option<Handle>> {
        self.existing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the communicator, which exists from now on.
    pub(crate) fn enter(self: &Arc<Self>, communicator: Handle) {
        *self.handle() = Some(communicator);
        existing().insert(self.number, Arc::clone(self));
    }

    /// Removes the communicator, before the MPI library frees it.
    pub(crate) fn remove(&self) {
        existing().remove(&self.number);
        *self.handle() = None;
    }

    /// The origin of a call on the communicator with this handle.
    #[inline]
    pub(crate) fn origin(&self, communicator: Handle) -> Origin {
        Origin { communicator, number: self.number }
    }

    /// Records that a collective has failed because of a failed process: the MPI library, if it goes
    /// on after that, fails all later ones.
    pub(crate) fn record_failure(&self) {
        if is_on() {
            self.is_failed.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether [`record_failure`](Self::record_failure) has recorded a failure.
    #[inline]
    pub(crate) fn is_failed(&self) -> bool {
        self.is_failed.load(Ordering::Relaxed)
    }

    /// Returns whether the MPI library fails collectives on the communicator; false if it was freed.
    pub(crate) fn has_failed(&self) -> bool {
        is_on() && (self.is_failed() || self.is_revoked())
    }

    fn is_revoked(&self) -> bool {
        // The lock keeps the communicator: freeing it takes the handle out. The MPI library takes no
        // lock for its answer.
        self.handle().is_some_and(is_revoked)
    }
}

/// The communicator of a call: its error handler receives the call's error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    communicator: Handle,
    number: u64,
}

impl Origin {
    /// Calls the error handler of the communicator, or that of MPI_COMM_SELF if the program has
    /// freed the communicator, as it may while the call is active.
    pub(crate) fn report(self, abi: &Abi, error: c_int) {
        let communicator = self.existing().unwrap_or(abi.comm_self);
        // Without the mark: collectives that the handler starts are decided like all others.
        pass!(Comm_call_errhandler(communicator, error));
    }

    /// The error class of collectives on the communicator, if it was revoked, or a collective on it
    /// has failed because of a failed process; `None` if the program has freed it.
    pub(crate) fn failure(self, abi: &Abi) -> Option<c_int> {
        let mark = self.mark()?;
        if mark.is_revoked() {
            return Some(abi.error_revoked);
        }
        mark.is_failed().then_some(abi.error_process_failed)
    }

    /// As [`Mark::record_failure`].
    pub(crate) fn record_failure(self) {
        if let Some(mark) = self.mark() {
            mark.record_failure();
        }
    }

    /// Records that ranks were in different collectives.
    pub(crate) fn record_mismatch(self) {
        if let Some(mark) = self.mark() {
            mark.is_mismatched.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether ranks were in different collectives.
    pub(crate) fn is_mismatched(self) -> bool {
        self.mark().is_some_and(|mark| mark.is_mismatched.load(Ordering::Relaxed))
    }

    /// The handle of the communicator, unless the program has freed it.
    pub(crate) fn existing(self) -> Option<Handle> {
        self.mark().map(|_| self.communicator)
    }

    fn mark(self) -> Option<Arc<Mark>> {
        existing().get(&self.number).cloned()
    }
}

/// The marks of existing communicators by their numbers.
fn existing() -> MutexGuard<'static, BTreeMap<u64, Arc<Mark>>> {
    static EXISTING: Mutex<BTreeMap<u64, Arc<Mark>>> = Mutex::new(BTreeMap::new());
    EXISTING.lock().unwrap_or_else(PoisonError::into_inner)
}
