//! Requests of the MPI library that are never complete.
//!
//! In a test of all requests of an array one takes the place of one of this library that is active:
//! the MPI library then advances its own requests, and completes none of them. Each test has one of
//! its own, because MPI forbids two threads to test the same request at once. A thread keeps one for
//! its next test, so that programs that poll take no lock.

use crate::abi::Abi;
use crate::host::{Handle, Pointer, call};
use std::cell::Cell;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

struct Requests {
    all: Vec<Handle>,
    /// Those that no test uses and no thread keeps.
    spare: Vec<Handle>,
}

static REQUESTS: Mutex<Requests> = Mutex::new(Requests { all: Vec::new(), spare: Vec::new() });

fn requests() -> MutexGuard<'static, Requests> {
    REQUESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The request that a thread keeps, and returns at its end.
struct Kept(Cell<Option<Handle>>);

impl Drop for Kept {
    fn drop(&mut self) {
        requests().spare.extend(self.0.take());
    }
}

thread_local! {
    static KEPT: Kept = const { Kept(Cell::new(None)) };
}

/// A request for one test.
pub(crate) struct Incomplete {
    pub(crate) handle: Handle,
}

impl Incomplete {
    /// Returns a request; `None` if the MPI library cannot create one.
    pub(crate) fn new(abi: &Abi) -> Option<Self> {
        // A test inside another one of this thread, by a function of the program, finds none kept. At
        // the end of a thread there is no place to keep one.
        let kept = KEPT.try_with(|kept| kept.0.take()).ok().flatten();
        let known = kept.or_else(|| requests().spare.pop());
        // Without the lock: another thread may hold one of the MPI library.
        Some(Incomplete { handle: known.or_else(|| create(abi))? })
    }
}

impl Drop for Incomplete {
    fn drop(&mut self) {
        let former = KEPT.try_with(|kept| kept.0.replace(Some(self.handle)));
        if let Some(other) = former.unwrap_or(Some(self.handle)) {
            requests().spare.push(other);
        }
    }
}

/// Frees the requests, before the MPI library is finalized. No test follows, so no thread uses the one
/// that it keeps.
pub(crate) fn close(abi: &Abi) {
    let all = std::mem::take(&mut requests().all);
    all.into_iter().for_each(|request| free(abi, request));
}

/// A generalized request, which is complete when this library says so.
fn create(abi: &Abi) -> Option<Handle> {
    let (query, release, cancel): (Pointer, Pointer, Pointer) =
        (query as *mut _, release as *mut _, cancel as *mut _);
    let nothing = std::ptr::null_mut();
    let request =
        abi.written(|at| call!(Grequest_start(query, release, cancel, nothing, at))).ok()?;
    requests().all.push(request);
    Some(request)
}

fn free(abi: &Abi, request: Handle) {
    call!(Grequest_complete(request));
    abi.by_address(request, |at| call!(Request_free(at)));
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
