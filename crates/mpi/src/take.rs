//! The collectives that run here: nonblocking, persistent and blocking.

use crate::collectives::{Call, Start};
use crate::communicators::{Served, own};
use crate::host::{Handle, Pointer};
use crate::kind::Kind;
use crate::lists::{KeptLists, Lists};
use crate::mode::{Background, Blocking};
use crate::persistent::{self, Prepared};
use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::report::{self, Clock};
use crate::requests::launch;
use crate::selection::{Decisive, Selected, select};
use crate::tolerance;
use std::cell::RefCell;
use std::ffi::c_int;

/// Leaves a call that was refused, by `leave`, which calls the MPI library. If it has failed, returns
/// its error code.
fn refused(
    kind: Kind,
    Selected { abi, communicator, served, .. }: Selected,
    refusal: Refusal,
    leave: impl FnOnce() -> c_int,
) -> c_int {
    let reason = match refusal {
        Refusal::Left(reason) => reason,
        Refusal::Failed(error) => {
            return served.fail(abi, (kind, served.origin(communicator)), &error);
        }
        // Only examinations end so, and no call is left for that.
        Refusal::Accepted => Reason::Arguments,
    };
    served.record_external_collective();
    report::left(kind, reason);
    leave()
}

/// Notes that a call was taken, in the time of the function that has started it.
fn taken(kind: Kind, served: &Served, clock: &Clock) {
    clock.add_to(kind);
    report::compare(kind, served.size());
}

/// Runs a selected blocking call here if `start` accepts it; otherwise calls `leave`, which calls the MPI
/// library. It is not inlined, so that calls that are not selected save fewer registers.
#[inline(never)]
pub(crate) fn run(
    kind: Kind,
    selected: Selected,
    start: impl FnOnce(Call<Blocking>) -> Start<Blocking>,
    leave: impl FnOnce() -> c_int,
) -> c_int {
    let Selected { abi, communicator, served, sizes } = selected;
    let clock = Clock::start();
    let awaited = tolerance::awaiting(communicator);
    let started = start(Call { abi, served, lists: Lists::Passed, mode: Blocking(sizes) });
    drop(awaited);
    match started {
        Ok(outcome) => {
            report::taken_blocking(kind);
            taken(kind, served, &clock);
            outcome
        }
        Err(refusal) => refused(kind, selected, refusal, leave),
    }
}

/// Starts a selected nonblocking call here, as [`run`] runs a blocking one.
///
/// # Safety
/// `request` points to memory for a handle.
#[inline(never)]
pub(crate) unsafe fn take(
    kind: Kind,
    selected: Selected,
    request: Pointer,
    start: impl FnOnce(Call) -> Start,
    leave: impl FnOnce() -> c_int,
) -> c_int {
    let Selected { abi, communicator, served, sizes } = selected;
    let clock = Clock::start();
    let mode = Background(sizes);
    match start(Call { abi, served, lists: Lists::Passed, mode }) {
        Ok(operation) => {
            // SAFETY: the caller's promise.
            let outcome =
                unsafe { launch(abi, (kind, served.origin(communicator)), operation, request) };
            taken(kind, served, &clock);
            outcome
        }
        Err(refusal) => refused(kind, selected, refusal, leave),
    }
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
    refused(kind, selected, refusal, leave)
}
