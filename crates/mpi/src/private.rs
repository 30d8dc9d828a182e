//! The communicator of this library's own calls.

use crate::abi::{Abi, abi};
use crate::host::{Handle, Pointer, call};
use crate::tolerance;
use std::ffi::c_int;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicI32, AtomicIsize, Ordering};
use std::time::Duration;

/// A duplicate of the world for this library's own calls, whose errors are returned. No message is
/// sent on it while the program runs.
static PRIVATE: AtomicIsize = AtomicIsize::new(0);
/// This process's rank in the world.
static RANK: AtomicI32 = AtomicI32::new(0);

/// Creates the communicator of this library's own calls. Collective over the world.
pub(crate) fn open_private(abi: &Abi, rank: c_int) -> Result<(), c_int> {
    RANK.store(rank, Ordering::Relaxed);
    let world = abi.comm_world;
    let duplicate = |at| completed(abi, |request| call!(Comm_idup(world, at, request)));
    let private = tolerance::with_errors_returned(abi, world, || abi.written(duplicate))?;
    check(call!(Comm_set_errhandler(private, abi.errors_return)))?;
    PRIVATE.store(private, Ordering::Relaxed);
    Ok(())
}

/// Starts a collective of the MPI library by this function and sleeps until it is complete. MPI libraries
/// would poll, on the cores that other ranks and the node service need for their start.
pub(crate) fn completed(abi: &Abi, start: impl FnOnce(Pointer) -> c_int) -> c_int {
    const PAUSE: Duration = Duration::from_micros(50);
    let mut in_memory: isize = 0;
    let mut is_complete: c_int = 0;
    let request: Pointer = (&raw mut in_memory).cast();
    let mut outcome = start(request);
    while outcome == 0 && is_complete == 0 {
        outcome = call!(Test(request, &raw mut is_complete, abi.ignored_status()));
        if is_complete == 0 {
            std::thread::sleep(PAUSE);
        }
    }
    outcome
}

/// Frees the communicator of this library's own calls.
pub(crate) fn close_private(abi: &Abi) {
    abi.by_address(PRIVATE.load(Ordering::Relaxed), |at| call!(Comm_free(at)));
}

pub(crate) fn check(outcome: c_int) -> Result<(), c_int> {
    if outcome == 0 { Ok(()) } else { Err(outcome) }
}

/// Drives the MPI library. A probe for messages that never come makes progress in all of them; on a
/// duplicate of MPI_COMM_SELF it makes none in MPICH 4.0.2.
pub(crate) fn poke(abi: &Abi) {
    let mut found = 0;
    let (communicator, own) = private();
    // Where a process has failed, a probe for messages of any source ends before it makes progress.
    let source = if tolerance::is_on() { own } else { abi.any_source };
    let tag = abi.any_tag;
    call!(Iprobe(source, tag, communicator, &raw mut found, abi.ignored_status()));
}

/// Drives the MPI library: another rank may wait for a message that the program has started before
/// this call. Returns whether the call of this thread still waits for other ranks.
pub(crate) fn drive() -> ControlFlow<()> {
    let Some(abi) = abi() else { return ControlFlow::Continue(()) };
    poke(abi);
    tolerance::flow()
}

/// The communicator of this library's own calls, and this process's rank in it.
pub(crate) fn private() -> (Handle, c_int) {
    (PRIVATE.load(Ordering::Relaxed), RANK.load(Ordering::Relaxed))
}

/// The rank in one communicator of a rank of another one, if it is in both.
pub(crate) fn translated_rank(
    abi: &Abi,
    (from, rank): (Handle, c_int),
    to: Handle,
) -> Option<c_int> {
    let one = abi.written(|at| call!(Comm_group(from, at))).ok()?;
    let other = abi.written(|at| call!(Comm_group(to, at))).ok()?;
    let mut translated = abi.undefined;
    let outcome = call!(Group_translate_ranks(one, 1, &raw const rank, other, &raw mut translated));
    for group in [one, other] {
        abi.by_address(group, |at| call!(Group_free(at)));
    }
    (outcome == 0 && translated != abi.undefined).then_some(translated)
}
