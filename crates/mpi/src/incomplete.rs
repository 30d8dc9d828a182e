//! Requests of the MPI library that are never complete.
//!
//! In a test of all requests of an array one takes the place of one of this library that is active:
//! the MPI library then advances its own requests, and completes none of them. Each test has one of
//! its own, because MPI forbids two threads to test the same request at once.

use crate::abi::Abi;
use crate::host::{Handle, Pointer, call};
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The requests that no test uses.
static SPARE: Mutex<Vec<Handle>> = Mutex::new(Vec::new());

fn spare() -> MutexGuard<'static, Vec<Handle>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request for one test.
pub(crate) struct Incomplete {
    pub(crate) handle: Handle,
}

impl Incomplete {
    /// Returns a request; `None` if the MPI library cannot create one.
    pub(crate) fn new(abi: &Abi) -> Option<Self> {
        let known = spare().pop();
        // Without the lock: another thread may hold one of the MPI library.
        Some(Incomplete { handle: known.or_else(|| create(abi))? })
    }
}

impl Drop for Incomplete {
    fn drop(&mut self) {
        spare().push(self.handle);
    }
}

/// Frees the requests, before the MPI library is finalized.
pub(crate) fn close(abi: &Abi) {
    let all = std::mem::take(&mut *spare());
    all.into_iter().for_each(|request| free(abi, request));
}

/// A generalized request, which is complete when this library says so.
fn create(abi: &Abi) -> Option<Handle> {
    let mut in_memory: isize = 0;
    let at: Pointer = (&raw mut in_memory).cast();
    let (query, release, cancel): (Pointer, Pointer, Pointer) =
        (query as *mut _, release as *mut _, cancel as *mut _);
    let outcome = call!(Grequest_start(query, release, cancel, std::ptr::null_mut(), at));
    // SAFETY: the variable is as large as the handles of every ABI.
    (outcome == 0).then(|| unsafe { abi.read(at, 0) })
}

fn free(abi: &Abi, request: Handle) {
    let mut in_memory: isize = 0;
    let at: Pointer = (&raw mut in_memory).cast();
    // SAFETY: the variable is as large as the handles of every ABI.
    unsafe { abi.write(at, 0, request) };
    call!(Grequest_complete(request));
    call!(Request_free(at));
}

unsafe extern "C" fn query(_state: Pointer, _status: Pointer) -> c_int {
    0
}

unsafe extern "C" fn release(_state: Pointer) -> c_int {
    0
}

unsafe extern "C" fn cancel(_state: Pointer, _is_complete: c_int) -> c_int {
    0
}
