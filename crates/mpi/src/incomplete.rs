//! A request of the MPI library that is never complete.
//!
//! In a test of all requests of an array it takes the place of one of this library that is active:
//! the MPI library then advances its own requests, and completes none of them.

use crate::abi::Abi;
use crate::host::{Handle, Pointer, call};
use std::ffi::c_int;
use std::sync::OnceLock;

static REQUEST: OnceLock<Handle> = OnceLock::new();

/// Returns the request; `None` if the MPI library cannot create it.
pub(crate) fn request(abi: &Abi) -> Option<Handle> {
    if let Some(known) = REQUEST.get() {
        return Some(*known);
    }
    // Without a lock: another thread may hold one of the MPI library.
    let new = create(abi)?;
    if REQUEST.set(new).is_err() {
        free(abi, new);
    }
    REQUEST.get().copied()
}

/// Frees the request, before the MPI library is finalized.
pub(crate) fn close(abi: &Abi) {
    if let Some(request) = REQUEST.get() {
        free(abi, *request);
    }
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
