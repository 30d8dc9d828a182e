//! The decision of each call: taken over, or left to the MPI library.

use crate::abi::{Abi, abi};
use crate::communicators::{Served, is_active, served};
use crate::host::{self, Handle, Pointer, call};
use crate::report::{self, Kind, Reason};
use crate::requests::{Operation, launch};
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

/// Why a call does not start here.
pub(crate) enum Refusal {
    /// It is left to the MPI library, on all ranks.
    Left(Reason),
    /// It has failed.
    Failed(tradewind::Error),
}

impl From<tradewind::Error> for Refusal {
    fn from(error: tradewind::Error) -> Self {
        Refusal::Failed(error)
    }
}

/// Longest data of a collective, in bytes of all ranks, that is taken over. The contribution of a
/// nonblocking call is copied into shared memory.
pub(crate) const MOST_BYTES: usize = 256 << 20;

/// Longest block, in bytes, of an all-to-all that is taken over. Each rank copies longer ones in at
/// the start and out at the end, which took up to twice as long as the exchange of the MPI
/// libraries (docs/mpi.md).
pub(crate) const MOST_BYTES_OF_EXCHANGE: usize = 32 << 10;

/// The calls that are taken over, a bit for each kind; the same on all ranks.
static KINDS: AtomicU32 = AtomicU32::new(u32::MAX);

pub(crate) fn set_kinds(bits: u32) {
    KINDS.store(bits, Ordering::Relaxed);
}

/// Starts a call here if tradewind serves its communicator and `start` accepts it; otherwise calls
/// `leave`, which calls the MPI library.
///
/// # Safety
/// `request` points to memory for a handle.
#[inline]
pub(crate) unsafe fn take(
    kind: Kind,
    passed: Handle,
    request: Pointer,
    start: impl FnOnce(&'static Abi, &'static Served) -> Result<Box<Operation>, Refusal>,
    leave: impl FnOnce() -> c_int,
) -> c_int {
    if !is_active() || host::is_inside() {
        return leave();
    }
    let Some(abi) = abi() else { return leave() };
    let communicator = abi.handle(passed);
    let begun = report::now();
    let reason = match served(abi, communicator) {
        None => Reason::Communicator,
        Some(_) if KINDS.load(Ordering::Relaxed) & 1 << kind as u32 == 0 => Reason::Excluded,
        Some(served) => match start(abi, served) {
            Ok(operation) => {
                // SAFETY: the caller's promise.
                let outcome = unsafe { launch(abi, (kind, communicator), operation, request) };
                report::exposed(kind, begun);
                return outcome;
            }
            Err(Refusal::Left(reason)) => reason,
            Err(Refusal::Failed(error)) => {
                log::error!("MPI_{}: {error}", kind.name());
                call!(Comm_call_errhandler(communicator, abi.error_other));
                return abi.error_other;
            }
        },
    };
    report::left(kind, reason);
    leave()
}
