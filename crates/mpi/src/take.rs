//! The nonblocking and persistent collectives that run here.

use crate::collectives::{Call, Start};
use crate::communicators::own;
use crate::host::{Handle, Pointer};
use crate::kind::Kind;
use crate::lists::{KeptLists, Lists};
use crate::mode::Background;
use crate::persistent::{self, Prepared};
use crate::refusal::Refusal;
use crate::report::{self, Clock, Reason};
use crate::requests::launch;
use crate::selection::{Decisive, Selected, select};
use std::cell::RefCell;
use std::ffi::c_int;

/// Starts a selected nonblocking call here if `start` accepts it; otherwise calls `leave`, which
/// calls the MPI library. It is not inlined, so that calls that are not selected save fewer registers.
///
/// # Safety
/// `request` points to memory for a handle.
#[inline(never)]
pub(crate) unsafe fn take(
    kind: Kind,
    Selected { abi, communicator, served, sizes }: Selected,
    request: Pointer,
    start: impl FnOnce(Call) -> Start,
    leave: impl FnOnce() -> c_int,
) -> c_int {
    let clock = Clock::start();
    let origin = served.origin(communicator);
    let mode = Background(sizes);
    let reason = match start(Call { abi, served, lists: Lists::Passed, mode }) {
        Ok(operation) => {
            // SAFETY: the caller's promise.
            let outcome = unsafe { launch(abi, (kind, origin), operation, request) };
            clock.add_to(kind);
            report::compare(kind, served.size());
            return outcome;
        }
        Err(Refusal::Left(reason)) => reason,
        Err(Refusal::Failed(error)) => {
            return served.fail(abi, (kind, origin), &error);
        }
        // Only examinations end so.
        Err(Refusal::Accepted) => Reason::Form,
    };
    served.record_external_collective();
    report::left(kind, reason);
    leave()
}

/// Initializes a persistent collective here if it is selected and `start` accepts it; otherwise calls
/// `leave`, which calls the MPI library. `handles` are those of the call's types and of its operation.
/// Waits for the other ranks, as MPI allows an initialization.
///
/// # Safety
/// `request` points to memory for a handle.
pub(crate) unsafe fn prepare(
    kind: Kind,
    (passed, handles): (Handle, Vec<Handle>),
    request: Pointer,
    start: impl Fn(Call) -> Start + 'static,
    leave: impl FnOnce() -> c_int,
) -> c_int {
    let Some(selected) = select(kind, passed, Decisive::None) else { return leave() };
    let Selected { abi, communicator, served, sizes } = selected;
    let origin = served.origin(communicator);
    let copies = RefCell::new(KeptLists::default());
    // SAFETY: the examination uses the copies only during the call.
    let lists = Lists::Copied(unsafe { &*std::ptr::from_ref(&copies) });
    let examined = start(Call { abi, served, lists, mode: Background(sizes) });
    let refusal = match examined {
        // All other reasons are the same on all ranks.
        Err(Refusal::Left(reason)) if reason != Reason::Arguments => Refusal::Left(reason),
        _ => {
            let is_accepted = matches!(examined, Err(Refusal::Accepted));
            match own(abi, (communicator, served), is_accepted) {
                Ok(served) => {
                    let kept = (handles, copies.into_inner());
                    let prepared = Prepared::new(abi, (kind, origin), served, kept, start);
                    // SAFETY: the caller's promise.
                    return unsafe { persistent::enter(abi, prepared, request) };
                }
                Err(refusal) => refusal,
            }
        }
    };
    let reason = match refusal {
        Refusal::Left(reason) => reason,
        Refusal::Failed(error) => {
            return served.fail(abi, (kind, origin), &error);
        }
        // Only examinations end so.
        Refusal::Accepted => Reason::Form,
    };
    served.record_external_collective();
    report::left(kind, reason);
    leave()
}
