//! Persistent collectives: the arguments of a call, started again and again.
//!
//! Each has a communicator of its own, so the starts of one are numbered apart from those of all
//! others. A start is a nonblocking call with the kept arguments. Its handle is, like that of a
//! nonblocking call, an inactive request of the MPI library, which the completion functions take for
//! what it is between two starts.

use crate::abi::{Abi, abi};
use crate::collectives::{Call, Start};
use crate::communicators::Served;
use crate::handles::HandleMap;
use crate::host::{Handle, Pointer, call, pass};
use crate::kept::{self, Object};
use crate::kind::Kind;
use crate::lists::{KeptLists, Lists};
use crate::mode::Background;
use crate::origin::Origin;
use crate::refusal::Refusal;
use crate::report::{self, Clock};
use crate::requests;
use crate::table::FORCED;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// An initialized persistent collective.
pub(crate) struct Prepared {
    kind: Kind,
    origin: Origin,
    served: Served,
    objects: Vec<Object>,
    lists: KeptLists,
    start: Box<dyn Fn(Call) -> Start>,
}

// SAFETY: the start holds the arguments that the program has passed. MPI lets every thread start
// the request, and the program keeps what they refer to until it frees the request.
unsafe impl Send for Prepared {}
// SAFETY: as above; a start changes no argument.
unsafe impl Sync for Prepared {}

impl Prepared {
    /// A collective on a communicator of its own, with copies of its lists. `handles` are those of
    /// types and operations, which the program may free before the request, as it may those in the
    /// lists.
    pub(crate) fn new(
        abi: &Abi,
        (kind, origin): (Kind, Origin),
        served: Served,
        (handles, lists): (Vec<Handle>, KeptLists),
        start: impl Fn(Call) -> Start + 'static,
    ) -> Self {
        // A handle is kept as both: the library compares it only with what the program frees.
        let objects = handles.into_iter().map(|passed| abi.handle(passed));
        let objects = objects.flat_map(|handle| [Object::Type(handle), Object::Operation(handle)]);
        let objects: Vec<Object> = objects.chain(lists.types().map(Object::Type)).collect();
        objects.iter().for_each(|object| kept::keep(*object));
        Prepared { kind, origin, served, objects, lists, start: Box::new(start) }
    }

    fn start(&self, abi: &'static Abi, handle: Handle) -> c_int {
        let clock = Clock::start();
        if requests::is_own(handle) {
            log::error!("MPI_Start: the request of MPI_{} is active", self.kind.name());
            return self.fail(abi, abi.error_other);
        }
        if let Some(error) = self.origin.failure(abi) {
            return self.fail(abi, error);
        }
        // SAFETY: a start uses the communicator and the lists only during the call; what it starts
        // keeps what it needs, as where a program frees a communicator during a nonblocking call.
        let (served, lists) =
            unsafe { (&*std::ptr::from_ref(&self.served), &*std::ptr::from_ref(&self.lists)) };
        let lists = Lists::Kept(lists);
        let key = (self.kind, self.origin);
        // The initialization has decided by the length.
        match (self.start)(Call { abi, served, lists, mode: Background(&FORCED) }) {
            Ok(operation) => {
                requests::activate(key, operation, handle);
                clock.add_to(self.kind);
                report::compare(self.kind, self.served.size());
                0
            }
            Err(Refusal::Failed(error)) => self.served.fail(abi, key, &error),
            // The initialization has found the same arguments good.
            Err(Refusal::Left(_) | Refusal::Accepted) => {
                log::error!("MPI_Start: arguments of MPI_{} have changed", self.kind.name());
                self.fail(abi, abi.error_other)
            }
        }
    }

    /// Calls the error handler, and returns the error code.
    fn fail(&self, abi: &Abi, error: c_int) -> c_int {
        self.origin.report(abi, error);
        error
    }
}

static PREPARED: LazyLock<Mutex<HandleMap<Arc<Prepared>>>> = LazyLock::new(Mutex::default);

/// Number of persistent collectives. Changed with the lock of the list.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn prepared() -> MutexGuard<'static, HandleMap<Arc<Prepared>>> {
    PREPARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether there are none, so that a request need not be looked up.
#[inline]
fn is_empty() -> bool {
    // Relaxed: a thread that uses a request has received it from the thread that has initialized
    // it, by a synchronization of the program.
    COUNT.load(Ordering::Relaxed) == 0
}

/// Returns whether a request is a persistent collective of this library, active or not.
pub(crate) fn is_own(handle: Handle) -> bool {
    !is_empty() && prepared().contains_key(&handle)
}

fn find(handle: Handle) -> Option<Arc<Prepared>> {
    prepared().get(&handle).cloned()
}

/// Enters a persistent collective and writes its handle to `request`. Returns the error code of the
/// call.
///
/// # Safety
/// `request` points to memory for a handle.
pub(crate) unsafe fn enter(abi: &Abi, collective: Prepared, request: Pointer) -> c_int {
    let handle = match requests::spare_handle(abi) {
        Ok(handle) => handle,
        Err(outcome) => return outcome,
    };
    report::initialized(collective.kind);
    let mut prepared = prepared();
    prepared.insert(handle, Arc::new(collective));
    COUNT.store(prepared.len(), Ordering::Relaxed);
    // SAFETY: the caller's promise.
    unsafe { abi.write(request, 0, handle) };
    0
}

/// `MPI_Start`.
pub(crate) fn start(request: Pointer) -> c_int {
    if is_empty() {
        return pass!(Start(request));
    }
    start_one(request)
}

fn start_one(request: Pointer) -> c_int {
    // The MPI library reports a null address.
    if let Some(abi) = abi().filter(|_| !request.is_null()) {
        // SAFETY: the program passes the address of a handle.
        let handle = unsafe { abi.read(request, 0) };
        if let Some(prepared) = find(handle) {
            return prepared.start(abi, handle);
        }
    }
    call!(Start(request))
}

/// `MPI_Startall`, which starts in any order.
pub(crate) fn start_all(count: c_int, requests: Pointer) -> c_int {
    let Some(abi) = abi().filter(|_| !is_empty()) else { return pass!(Startall(count, requests)) };
    for index in 0..usize::try_from(count).unwrap_or(0) {
        let outcome = start_one(requests.wrapping_byte_add(index * abi.handle_bytes()));
        if outcome != 0 {
            return outcome;
        }
    }
    0
}

/// `MPI_Request_free`. Returns whether the request is a persistent collective of this library. The
/// result of an active one, which the MPI standard does not allow to be freed, is lost.
pub(crate) fn free(request: Pointer) -> bool {
    let Some(abi) = abi().filter(|_| !is_empty() && !request.is_null()) else { return false };
    // SAFETY: the program passes the address of a handle.
    let handle = unsafe { abi.read(request, 0) };
    if !remove(abi, handle) {
        return false;
    }
    // SAFETY: as above.
    unsafe { abi.write(request, 0, abi.request_null) };
    true
}

fn remove(abi: &Abi, handle: Handle) -> bool {
    let removed = {
        let mut prepared = prepared();
        let removed = prepared.remove(&handle);
        COUNT.store(prepared.len(), Ordering::Relaxed);
        removed
    };
    let Some(removed) = removed else { return false };
    requests::free(handle);
    requests::return_handle(handle);
    removed.objects.iter().for_each(|object| kept::release(abi, *object));
    true
}

/// Frees all that the program has not freed, before the MPI library is finalized.
pub(crate) fn close(abi: &Abi) {
    let handles: Vec<Handle> = prepared().keys().copied().collect();
    for handle in handles {
        remove(abi, handle);
    }
}
