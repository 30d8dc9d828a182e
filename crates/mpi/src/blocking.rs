//! The blocking collectives: each runs here where that is faster, and otherwise in the MPI library.

use crate::abi::{Abi, abi};
use crate::buffers::predefined_size;
use crate::collectives::{Call, Start};
use crate::communicators::{is_active, served};
use crate::host::{self, Handle};
use crate::lists::Lists;
use crate::mode::Blocking;
use crate::refusal::{Refusal, failed};
use crate::report::{self, Kind, Reason};
use crate::table::{self, BLOCKING, Takeover};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The kinds of which some calls run here, a bit for each by its place among the blocking ones; the
/// same on all ranks.
static KINDS: AtomicU32 = AtomicU32::new(0);

/// The least bytes of a block with which a call of each kind runs here, by its place among the
/// blocking ones; the same on all ranks.
static LEAST: [AtomicU64; BLOCKING] = [const { AtomicU64::new(0) }; BLOCKING];

/// The number and the type of the elements of a block, where every rank passes them.
type Block = Option<(i64, Handle)>;

/// True if the user has excluded calls of all other kinds.
static IS_EXCLUDED: AtomicBool = AtomicBool::new(false);

/// Sets which calls run here. `is_excluded` is true if the user has chosen them.
pub(crate) fn set(takeover: Takeover, is_excluded: bool) {
    let kinds = takeover.kinds() >> Kind::Barrier as u32;
    for (least, kind) in LEAST.iter().zip(Kind::BLOCKING) {
        least.store(takeover.least_block(*kind), Ordering::Relaxed);
    }
    KINDS.store(kinds as u32, Ordering::Relaxed);
    IS_EXCLUDED.store(is_excluded, Ordering::Relaxed);
    table::set(takeover);
}

/// Returns whether a call is shorter than all of its kind that run here: `start` would leave it too,
/// but only after it has found the communicator, which takes as long as the shortest calls.
#[inline]
fn is_short(abi: &Abi, kind: Kind, block: Block) -> bool {
    let Some((count, datatype)) = block else { return false };
    let least = LEAST[kind.place_among_blocking()].load(Ordering::Relaxed);
    if least == 0 {
        return false;
    }
    let (Ok(count), Some(size)) = (u64::try_from(count), predefined_size(abi, datatype)) else {
        return false;
    };
    count.checked_mul(size as u64).is_some_and(|bytes| bytes < least)
}

/// Runs a blocking call here if it is faster than in the MPI library, and `start` accepts it;
/// otherwise calls `leave`, which calls the MPI library.
#[inline]
pub(crate) fn run(
    kind: Kind,
    (passed, block): (Handle, Block),
    start: impl FnOnce(Call<Blocking>) -> Start<Blocking>,
    leave: impl FnOnce() -> c_int,
) -> c_int {
    let kinds = KINDS.load(Ordering::Relaxed);
    if kinds >> kind.place_among_blocking() & 1 == 0 {
        report::left_blocking(kind, left_because(kinds));
        return leave();
    }
    if !is_active() || host::is_inside() {
        return leave();
    }
    let Some(abi) = abi() else { return leave() };
    if is_short(abi, kind, block) {
        report::left_blocking(kind, Reason::Slower);
        return leave();
    }
    let communicator = abi.handle(passed);
    let begun = report::now();
    let reason = match served(abi, communicator) {
        None => Reason::Communicator,
        Some(served) => match served.sizes(kind) {
            None if served.communicator.nodes() > 1 => Reason::Nodes,
            None => Reason::Slower,
            Some(sizes) => {
                let call = Call { abi, served, lists: Lists::Passed, mode: Blocking(sizes) };
                match start(call) {
                    Ok(outcome) => {
                        report::taken_blocking(kind);
                        report::exposed(kind, begun);
                        return outcome;
                    }
                    Err(Refusal::Left(reason)) => reason,
                    Err(Refusal::Failed(error)) => {
                        return failed(abi, (kind, communicator), &error);
                    }
                    // Only examinations end so.
                    Err(Refusal::Accepted) => Reason::Form,
                }
            }
        },
    };
    report::left_blocking(kind, reason);
    leave()
}

#[cold]
fn left_because(kinds: u32) -> Reason {
    match IS_EXCLUDED.load(Ordering::Relaxed) {
        true => Reason::Excluded,
        false if kinds == 0 => Reason::NoTable,
        false => Reason::Slower,
    }
}
