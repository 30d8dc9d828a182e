//! The decision of each call: taken over, or left to the MPI library.

use crate::abi::{Abi, abi};
use crate::collectives::{Call, Start};
use crate::communicators::{Served, is_active, own, served};
use crate::host::{self, Handle, Pointer};
use crate::kind::Kind;
use crate::lists::{KeptLists, Lists};
use crate::mode::Background;
use crate::persistent::{self, Prepared};
use crate::refusal::{Refusal, failed};
use crate::report::{self, Clock, Reason};
use crate::requests::launch;
use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use tradewind::Error;

/// The calls that are taken over, a bit for each kind; the same on all ranks.
static KINDS: AtomicU64 = AtomicU64::new(u64::MAX);

pub(crate) fn set_kinds(bits: u128) {
    // They are fewer than 64, and come first.
    KINDS.store((bits & Kind::ALL_BACKGROUND) as u64, Ordering::Relaxed);
}

/// The counterpart of the communicator of a call, if calls of this kind on it run here.
#[inline]
fn find(kind: Kind, abi: &Abi, communicator: Handle) -> Result<&'static Served, Reason> {
    match served(abi, communicator) {
        None => Err(Reason::Communicator),
        Some(_) if u128::from(KINDS.load(Ordering::Relaxed)) & kind.bit() == 0 => {
            Err(Reason::Excluded)
        }
        // The MPI library reports it.
        Some(served) if served.has_failed(communicator) => Err(Reason::Failure),
        Some(served) => Ok(served),
    }
}

/// Starts a nonblocking call here if tradewind serves its communicator and `start` accepts it;
/// otherwise calls `leave`, which calls the MPI library.
///
/// # Safety
/// `request` points to memory for a handle.
#[inline]
pub(crate) unsafe fn take(
    kind: Kind,
    passed: Handle,
    request: Pointer,
    start: impl FnOnce(Call) -> Start,
    leave: impl FnOnce() -> c_int,
) -> c_int {
    if !is_active() || host::is_inside() {
        return leave();
    }
    let Some(abi) = abi() else { return leave() };
    let communicator = abi.handle(passed);
    let clock = Clock::start();
    let served = match find(kind, abi, communicator) {
        Ok(served) => served,
        Err(reason) => {
            report::left(kind, reason);
            return leave();
        }
    };
    let origin = served.origin(communicator);
    let reason = match start(Call { abi, served, lists: Lists::Passed, mode: Background }) {
        Ok(operation) => {
            // SAFETY: the caller's promise.
            let outcome = unsafe { launch(abi, (kind, origin), operation, request) };
            clock.add_to(kind);
            report::compare(kind, served.size());
            return outcome;
        }
        Err(Refusal::Left(reason)) => reason,
        Err(Refusal::Failed(error)) => {
            if !concerns_all_ranks(&error) {
                served.record_external_collective();
            }
            return failed(abi, (kind, origin), &error);
        }
        // Only examinations end so.
        Err(Refusal::Accepted) => Reason::Form,
    };
    served.record_external_collective();
    report::left(kind, reason);
    leave()
}

/// Returns whether other ranks get an error, too. If only this one does, they would wait for it.
fn concerns_all_ranks(error: &Error) -> bool {
    matches!(
        error,
        Error::Broken | Error::Mismatch { .. } | Error::RankFailed { .. } | Error::ServiceFailed
    )
}

/// Initializes a persistent collective here if tradewind serves its communicator and `start`
/// accepts it; otherwise calls `leave`, which calls the MPI library. `handles` are those of the
/// call's types and of its operation. Waits for the other ranks, as MPI allows an initialization.
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
    if !is_active() || host::is_inside() {
        return leave();
    }
    let Some(abi) = abi() else { return leave() };
    let communicator = abi.handle(passed);
    let served = match find(kind, abi, communicator) {
        Ok(served) => served,
        Err(reason) => {
            report::left(kind, reason);
            return leave();
        }
    };
    let origin = served.origin(communicator);
    let copies = RefCell::new(KeptLists::default());
    // SAFETY: the examination uses the copies only during the call.
    let lists = Lists::Copied(unsafe { &*std::ptr::from_ref(&copies) });
    let examined = start(Call { abi, served, lists, mode: Background });
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
        Refusal::Failed(error) => return failed(abi, (kind, origin), &error),
        // Only examinations end so.
        Refusal::Accepted => Reason::Form,
    };
    served.record_external_collective();
    report::left(kind, reason);
    leave()
}
