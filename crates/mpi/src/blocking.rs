//! The blocking collectives that run here.

use crate::collectives::{Call, Start};
use crate::kind::Kind;
use crate::lists::Lists;
use crate::mode::Blocking;
use crate::refusal::Refusal;
use crate::report::{self, Clock, Reason};
use crate::selection::Selected;
use crate::tolerance;
use std::ffi::c_int;

/// Runs a selected call here if `start` accepts it; otherwise calls `leave`, which calls the MPI
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
    let reason = match started {
        Ok(outcome) => {
            report::taken_blocking(kind);
            clock.add_to(kind);
            report::compare(kind, served.size());
            return outcome;
        }
        Err(Refusal::Left(reason)) => {
            served.record_external_collective();
            reason
        }
        Err(Refusal::Failed(error)) => {
            return served.fail(abi, (kind, served.origin(communicator)), &error);
        }
        // Only examinations end so.
        Err(Refusal::Accepted) => Reason::Form,
    };
    report::left(kind, reason);
    leave()
}
