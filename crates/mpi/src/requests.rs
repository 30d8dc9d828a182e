//! Active collectives, found by the handles that the program holds.
//!
//! A handle is a persistent receive of the MPI library from this rank itself that is never started:
//! a real and unique request, in no queue of the library. Completed calls return theirs to a store
//! for the next ones. The MPI library ignores such requests in arrays, as inactive ones. (Intel MPI
//! takes a receive from MPI_PROC_NULL for complete.)
//!
//! A program may call the MPI library from several threads, and inside the library wait for a lock
//! that another thread holds. Therefore no lock of this module is held during a call of the
//! library.

mod operation;
mod pause;
mod poller;
mod progress;

use crate::abi::Abi;
use crate::failures;
use crate::handles::HandleMap;
use crate::host::{Handle, Pointer, call};
use crate::kind::Kind;
use crate::origin::Origin;
use crate::private::{poke, private};
use crate::relief;
use crate::report::{self, Clock};
use crate::tolerance::is_on;
use operation::State;
pub(crate) use operation::{Operation, Rest, Started};
pub(crate) use pause::{Pause, record_success, record_vain_test, set_oversubscribed};
pub(crate) use poller::Awaited;
pub(crate) use poller::leave as leave_waits;
use progress::advance_queued;
pub(crate) use progress::{make_progress, set_world};
use shm::biased_mutex::BiasedMutex;
use std::ffi::c_int;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

#[derive(Default)]
struct Requests {
    operations: HandleMap<Box<Operation>>,
    /// Requests of the MPI library that no operation uses.
    spare: Vec<Handle>,
}

// The start of a collective stores to a line that other ranks have read, and until that line has
// come, a locked instruction waits. So the thread that starts the collectives, in most programs
// one, executes none afterwards.
static REQUESTS: LazyLock<BiasedMutex<Requests>> = LazyLock::new(BiasedMutex::default);

/// Number of operations with handles that the program holds. Changed with the lock of the requests.
static OUTSTANDING: AtomicUsize = AtomicUsize::new(0);

fn with<T>(action: impl FnOnce(&mut Requests) -> T) -> T {
    action(&mut REQUESTS.lock())
}

/// Returns whether no call of this library is active, so that completion functions have nothing to
/// look up.
#[inline]
pub(crate) fn is_idle() -> bool {
    // Relaxed: a thread that completes a request has received its handle from the thread that
    // started the operation, by a synchronization of the program.
    OUTSTANDING.load(Ordering::Relaxed) == 0
}

/// Returns whether a request is of this library.
pub(crate) fn is_own(handle: Handle) -> bool {
    with(|requests| requests.operations.contains_key(&handle))
}

/// Enters a start of a persistent collective.
pub(crate) fn activate(
    (kind, origin): (Kind, Origin),
    mut operation: Box<Operation>,
    handle: Handle,
) {
    operation.kind = kind;
    operation.origin = Some(origin);
    operation.is_persistent = true;
    let needs = Needs::of(&operation.started);
    with(|requests| {
        report::taken(kind);
        requests.enter(handle, operation);
    });
    needs.fulfil();
}

/// A request of the MPI library that no operation uses.
pub(crate) fn spare_handle(abi: &Abi) -> Result<Handle, c_int> {
    with(|requests| requests.spare.pop()).map_or_else(|| new_handle(abi), Ok)
}

/// Takes a request back that [`spare_handle`] has returned.
pub(crate) fn return_handle(handle: Handle) {
    with(|requests| requests.spare.push(handle));
}

/// Enters an operation and writes its handle to `request`. Returns the error code of the call.
///
/// # Safety
/// `request` points to memory for a handle.
pub(crate) unsafe fn launch(
    abi: &'static Abi,
    (kind, origin): (Kind, Origin),
    mut operation: Box<Operation>,
    request: Pointer,
) -> c_int {
    operation.kind = kind;
    operation.origin = Some(origin);
    let needs = Needs::of(&operation.started);
    let mut operation = Some(operation);
    let mut enter = |requests: &mut Requests, handle| {
        if let Some(operation) = operation.take() {
            report::taken(kind);
            requests.enter(handle, operation);
        }
    };
    let spare = with(|requests| {
        let handle = requests.spare.pop()?;
        enter(requests, handle);
        Some(handle)
    });
    let handle = match spare.map_or_else(|| new_handle(abi), Ok) {
        Ok(handle) => handle,
        Err(outcome) => return outcome,
    };
    if spare.is_none() {
        with(|requests| enter(requests, handle));
    }
    // SAFETY: the caller's promise.
    unsafe { abi.write(request, 0, handle) };
    needs.fulfil();
    0
}

/// Creates a request of the MPI library.
fn new_handle(abi: &Abi) -> Result<Handle, c_int> {
    let nothing = std::ptr::null_mut();
    let (private, own_rank) = private();
    abi.written(|at| call!(Recv_init(nothing, 0, abi.byte, own_rank, 0, private, at)))
}

/// State of a request, as a poll finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The request is not of this library.
    Foreign,
    Active,
    /// The call is complete, with this error code.
    Complete(c_int),
}

/// Advances an operation and returns its state. The operation stays.
pub(crate) fn look(abi: &Abi, handle: Handle) -> Look {
    let (look, next) = with(|requests| match requests.operations.get_mut(&handle) {
        Some(operation) => advance(operation),
        None => (Look::Foreign, None),
    });
    match next.is_some_and(|next| next.take(abi, handle)) {
        true => self::look(abi, handle),
        false => look,
    }
}

/// Work for an operation by calls of the MPI library, without the lock.
enum Next {
    /// The rest.
    Finish(Box<Rest>),
    /// The communicator may have been revoked.
    AskRevoked(Origin),
    /// Tradewind's part has failed at this time.
    Fail((Kind, Origin), Instant, tradewind::Error),
}

impl Next {
    /// Returns whether the operation is complete then.
    fn take(self, abi: &Abi, handle: Handle) -> bool {
        let outcome = match self {
            Next::Finish(rest) => Some(rest.finish(abi)),
            Next::AskRevoked(origin) => origin.failure(abi),
            Next::Fail(call, since, error) => return fail(abi, handle, (call, since, error)),
        };
        let Some(outcome) = outcome else { return false };
        with(|requests| {
            if let Some(operation) = requests.operations.get_mut(&handle) {
                operation.state = State::Complete(outcome);
            }
        });
        true
    }
}

/// Completes an operation that has failed, if its error code is known.
#[cold]
fn fail(
    abi: &Abi,
    handle: Handle,
    (call, since, error): ((Kind, Origin), Instant, tradewind::Error),
) -> bool {
    let code = failures::code(abi, call, &error, since);
    with(|requests| {
        if let Some(operation) = requests.operations.get_mut(&handle) {
            operation.state = code.map_or(State::Failed(since, Some(error)), State::Complete);
        }
    });
    code.is_some()
}

/// Returns whether the thread that waits for a request has something to do for it.
fn is_ready(handle: Handle) -> bool {
    with(|requests| {
        let Some(operation) = requests.operations.get_mut(&handle) else { return true };
        match operation.state {
            State::Active => operation.test() || !operation.is_active(),
            State::Finishing => false,
            State::Failed(..) | State::Complete(_) => true,
        }
    })
}

/// Advances an operation. Returns what is to be done for it now.
fn advance(operation: &mut Operation) -> (Look, Option<Next>) {
    let is_complete = operation.is_active() && operation.test();
    let Operation { kind, origin, .. } = *operation;
    match &mut operation.state {
        State::Complete(outcome) => (Look::Complete(*outcome), None),
        State::Finishing => (Look::Active, None),
        // Another thread that looks meanwhile finds no error.
        State::Failed(since, error) => {
            let failure = origin.zip(error.take());
            (Look::Active, failure.map(|(origin, error)| Next::Fail((kind, origin), *since, error)))
        }
        State::Active if !is_complete => {
            // Only an MPI library that goes on after failures knows of some.
            (Look::Active, origin.filter(|_| is_on()).map(Next::AskRevoked))
        }
        state => match operation.rest.take() {
            Some(rest) => {
                *state = State::Finishing;
                (Look::Active, Some(Next::Finish(rest)))
            }
            None => {
                *state = State::Complete(0);
                (Look::Complete(0), None)
            }
        },
    }
}

impl Requests {
    fn enter(&mut self, handle: Handle, operation: Box<Operation>) {
        self.operations.insert(handle, operation);
        OUTSTANDING.store(self.operations.len(), Ordering::Relaxed);
    }

    /// Removes an operation. Its handle may be used again, unless it is that of a persistent
    /// collective.
    fn remove(&mut self, handle: Handle) -> Option<Box<Operation>> {
        let operation = self.operations.remove(&handle)?;
        OUTSTANDING.store(self.operations.len(), Ordering::Relaxed);
        if !operation.is_persistent {
            self.spare.push(handle);
        }
        Some(operation)
    }
}

/// The end of an operation.
pub(crate) struct Ended {
    /// The error code of the call.
    pub(crate) outcome: c_int,
    /// The handle stays with the program.
    pub(crate) is_persistent: bool,
    origin: Option<Origin>,
}

impl Ended {
    fn of(operation: &Operation) -> Self {
        let outcome = match operation.state {
            State::Complete(outcome) => outcome,
            _ => 0,
        };
        let Operation { is_persistent, origin, .. } = *operation;
        Ended { outcome, is_persistent, origin }
    }

    /// Reports an error by the error handler of the communicator.
    pub(crate) fn report(&self, abi: &Abi) {
        if let Some(origin) = self.origin.filter(|_| self.outcome != 0) {
            // The handler is a function of the program, and must not run as the poller.
            leave_waits();
            origin.report(abi, self.outcome);
        }
    }
}

/// Ends an operation that is complete, in the function that `clock` times. The caller reports its
/// error.
pub(crate) fn end(handle: Handle, clock: &Clock) -> Ended {
    let operation = with(|requests| requests.remove(handle));
    operation.map_or(Ended { outcome: 0, is_persistent: false, origin: None }, |operation| {
        clock.add_to(operation.kind);
        Ended::of(&operation)
    })
}

/// `MPI_Request_free` of an active call, which the MPI standard does not allow: the collective
/// continues, and its result is lost. Returns whether the request is one of this library.
pub(crate) fn free(handle: Handle) -> bool {
    with(|requests| requests.remove(handle)).is_some()
}

/// The threads that a new operation needs.
struct Needs {
    progress: bool,
    relief: bool,
}

impl Needs {
    #[inline]
    fn of(started: &Started) -> Self {
        Needs { progress: started.is_queued(), relief: started.uses_arena() }
    }

    /// Starts the threads, after the operation has been entered.
    #[inline]
    fn fulfil(self) {
        if self.progress {
            advance_queued();
        }
        if self.relief {
            relief::start(make_progress);
        }
    }
}

/// Frees the requests of the MPI library, before it is finalized.
pub(crate) fn free_handles(abi: &Abi) {
    for handle in with(|requests| std::mem::take(&mut requests.spare)) {
        abi.by_address(handle, |at| call!(Request_free(at)));
    }
}

/// Lets time pass in a wait for requests of the MPI library, and for the requests `awaited` of this one.
/// Meanwhile the MPI library is driven, and this rank's tasks of collectives are executed.
pub(crate) fn rest(abi: &Abi, pause: &mut Pause, awaited: impl FnOnce() -> Awaited) {
    pause.rest(awaited, is_ready, || {
        poke(abi);
        make_progress();
        // Only this thread completes the requests of the MPI library.
        false
    });
}

/// Waits until a request of this library is complete, and ends it; `None` for other requests. The
/// caller reports its error. `clock` times the function of the caller, which waits by `pause`, and
/// `drive` drives the MPI library meanwhile; it returns whether calls of other threads do the same.
pub(crate) fn wait(
    abi: &Abi,
    (handle, clock): (Handle, &Clock),
    pause: &mut Pause,
    mut drive: impl FnMut() -> bool,
) -> Option<Ended> {
    loop {
        // One lock for the look and the end: the shortest collectives take a few of them.
        let (look, next, operation) = with(|requests| {
            let Some(operation) = requests.operations.get_mut(&handle) else {
                return (Look::Foreign, None, None);
            };
            let (look, next) = advance(operation);
            let is_complete = matches!(look, Look::Complete(_));
            (look, next, if is_complete { requests.remove(handle) } else { None })
        });
        if let Some(operation) = operation {
            clock.add_to(operation.kind);
            return Some(Ended::of(&operation));
        }
        if look == Look::Foreign {
            return None;
        }
        if !next.is_some_and(|next| next.take(abi, handle)) {
            pause.rest(
                || Awaited::from_slice(&[handle]),
                is_ready,
                || {
                    make_progress();
                    drive()
                },
            );
        }
    }
}
