//! The blocking collectives: each runs here where that is faster, and otherwise in the MPI library.

use crate::abi::{Abi, abi};
use crate::buffers::predefined_size;
use crate::collectives::{Call, Start};
use crate::communicators::{Served, is_active, served};
use crate::failures;
use crate::host::{Handle, is_inside};
use crate::kind::Kind;
use crate::lists::Lists;
use crate::mode::Blocking;
use crate::refusal::{Refusal, failed};
use crate::report::{self, Clock, Reason};
use crate::table::{self, Sizes, Takeover};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The kinds of which some calls run here, a bit for each by its place among the blocking ones; the
/// same on all ranks.
static KINDS: AtomicU32 = AtomicU32::new(0);

/// The kinds that are examined at each call, in the same form: those with calls that run here, and
/// all of them if calls that are left are counted.
static EXAMINED: AtomicU32 = AtomicU32::new(0);

/// A block of a call: number and type of its elements.
type Block = (i64, Handle);

/// The block of a call that decides, by its length, in which library the call runs: on all ranks it
/// has the same length, so all of them make the same decision.
#[derive(Clone, Copy)]
pub(crate) enum Decisive {
    /// No such block: calls with lists of blocks, of neighbours, and without data.
    None,
    /// The arguments of every rank name it.
    Everywhere(Block),
    /// The arguments of the root name it as the first one, and those of every other rank as the
    /// second one.
    Rooted(c_int, [Block; 2]),
}

/// True if the user has excluded calls of all other kinds.
static IS_EXCLUDED: AtomicBool = AtomicBool::new(false);

/// True if there is a table.
static IS_MEASURED: AtomicBool = AtomicBool::new(false);

/// Sets which calls run here. `is_excluded` is true if the user has chosen them.
pub(crate) fn set(takeover: Takeover, is_excluded: bool) {
    let kinds = takeover.kinds() >> Kind::Barrier as u32;
    KINDS.store(kinds as u32, Ordering::Relaxed);
    IS_EXCLUDED.store(is_excluded, Ordering::Relaxed);
    IS_MEASURED.store(takeover.is_measured, Ordering::Relaxed);
    EXAMINED.fetch_or(kinds as u32, Ordering::Relaxed);
    table::set(takeover);
}

/// Lets all calls be examined, so that those that are left are counted.
pub(crate) fn count_left() {
    EXAMINED.store(u32::MAX, Ordering::Relaxed);
}

/// Returns whether calls of a kind are examined by [`select`]. Others are passed to the MPI library
/// at once: the shortest take less than a hundred nanoseconds.
#[inline(always)]
pub(crate) fn is_examined(kind: Kind) -> bool {
    EXAMINED.load(Ordering::Relaxed) >> kind.place_among_blocking() & 1 != 0
}

impl Decisive {
    /// Returns the length of the call, as the table counts it, if the type is a predefined one:
    /// `start` would find the same, but takes as long for it as the shortest calls.
    #[inline(always)]
    fn bytes(self, kind: Kind, abi: &Abi, served: &Served) -> Option<u64> {
        let (count, datatype) = match self {
            Decisive::None => return None,
            Decisive::Everywhere(block) => block,
            Decisive::Rooted(root, [at_root, elsewhere]) => {
                if usize::try_from(root).ok()? == served.rank() { at_root } else { elsewhere }
            }
        };
        let blocks = if kind.counts_all_blocks() { served.size() as u64 } else { 1 };
        let size = predefined_size(abi, datatype)? as u64;
        u64::try_from(count).ok()?.checked_mul(size)?.checked_mul(blocks)
    }
}

/// A call that runs here if its other arguments allow it.
#[derive(Clone, Copy)]
pub(crate) struct Selected {
    abi: &'static Abi,
    communicator: Handle,
    served: &'static Served,
    sizes: &'static Sizes,
}

/// Selects a call by its kind, its communicator and its length; `None` if it is left to the MPI
/// library. Collectives that functions of the program start in a call that is left are decided like
/// all others.
#[inline(always)]
pub(crate) fn select(kind: Kind, passed: Handle, decisive: Decisive) -> Option<Selected> {
    if KINDS.load(Ordering::Relaxed) >> kind.place_among_blocking() & 1 == 0 {
        report::left(kind, left_because());
        return None;
    }
    if !is_active() {
        return None;
    }
    let abi = abi()?;
    let communicator = abi.handle(passed);
    let Some(served) = served(abi, communicator) else {
        report::left(kind, Reason::Communicator);
        return None;
    };
    // The MPI library reports it.
    if served.has_failed(communicator) {
        report::left(kind, Reason::Failure);
        return None;
    }
    let Some(sizes) = served.sizes(kind) else {
        let is_one_node = served.communicator.nodes() == 1;
        report::left(kind, if is_one_node { Reason::Slower } else { Reason::Nodes });
        return None;
    };
    let bytes = decisive.bytes(kind, abi, served);
    if bytes.is_some_and(|bytes| !sizes.contain(bytes)) {
        served.record_external_collective();
        report::left(kind, Reason::Slower);
        return None;
    }
    // Last: calls that are left need no variable of the thread, which costs a call of the loader.
    (!is_inside()).then_some(Selected { abi, communicator, served, sizes })
}

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
    let awaited = failures::awaiting(communicator);
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
            return failed(abi, (kind, served.origin(communicator)), &error);
        }
        // Only examinations end so.
        Err(Refusal::Accepted) => Reason::Form,
    };
    report::left(kind, reason);
    leave()
}

#[cold]
fn left_because() -> Reason {
    match IS_EXCLUDED.load(Ordering::Relaxed) {
        true => Reason::Excluded,
        false if IS_MEASURED.load(Ordering::Relaxed) => Reason::Slower,
        false => Reason::NoTable,
    }
}
