//! The selection of calls, of all forms: each runs here where that is faster, and otherwise in the
//! MPI library.

use crate::abi::{Abi, abi};
use crate::buffers::predefined_size;
use crate::communicators::{Served, is_active, served};
use crate::host::{Handle, is_inside};
use crate::kind::Kind;
use crate::reason::Reason;
use crate::report;
use crate::table::{self, Sizes, Takeover};
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The kinds of each form of which some calls run here, a bit for each by its place; the same on all
/// ranks.
static KINDS: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];

/// The kinds that are examined at each call, likewise: those with calls that run here, and all of
/// them if calls that are left are counted.
static EXAMINED: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];

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

/// [`Reason`] of the calls that are left, for kinds that never run here.
static REASON_OF_OTHERS: AtomicUsize = AtomicUsize::new(Reason::Job as usize);

/// Sets the reason of the calls that are left, for kinds that never run here.
pub(crate) fn leave_others(reason: Reason) {
    // Relaxed: calls of the program follow the initialization, which sets it.
    REASON_OF_OTHERS.store(reason as usize, Ordering::Relaxed);
}

/// Sets which calls run here. `is_excluded` is true if the user has chosen them.
pub(crate) fn set(takeover: Takeover, is_excluded: bool) {
    let taken = takeover.kinds();
    for kind in Kind::ALL.iter().filter(|kind| taken & kind.bit() != 0) {
        let bit = 1 << kind.collective as u32;
        KINDS[kind.form as usize].fetch_or(bit, Ordering::Relaxed);
        EXAMINED[kind.form as usize].fetch_or(bit, Ordering::Relaxed);
    }
    leave_others(match is_excluded {
        true => Reason::Excluded,
        false => takeover.reason_of_others(),
    });
    table::set(takeover);
}

/// Lets all calls be examined, so that those that are left are counted.
pub(crate) fn count_left() {
    EXAMINED.iter().for_each(|kinds| kinds.store(u32::MAX, Ordering::Relaxed));
}

/// Returns whether calls of a kind are examined by [`select`]. Others are passed to the MPI library
/// at once: the shortest take less than a hundred nanoseconds.
#[inline(always)]
pub(crate) fn is_examined(kind: Kind) -> bool {
    is_in(&EXAMINED, kind)
}

#[inline(always)]
fn is_in(kinds: &[AtomicU32; 3], kind: Kind) -> bool {
    kinds[kind.form as usize].load(Ordering::Relaxed) >> kind.collective as u32 & 1 != 0
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
    pub(crate) abi: &'static Abi,
    pub(crate) communicator: Handle,
    pub(crate) served: &'static Served,
    pub(crate) sizes: &'static Sizes,
}

/// Selects a call by its kind, its communicator and its length; `None` if it is left to the MPI
/// library. Collectives that functions of the program start in a call that is left are decided like
/// all others.
#[inline(always)]
pub(crate) fn select(kind: Kind, passed: Handle, decisive: Decisive) -> Option<Selected> {
    if !is_in(&KINDS, kind) {
        report::left(kind, left_because());
        return None;
    }
    if !is_active() {
        return None;
    }
    let abi = abi()?;
    let communicator = abi.handle(passed);
    // It has no counterpart, and need not be looked up.
    let is_self = communicator == abi.comm_self;
    let Some(served) = (!is_self).then(|| served(abi, communicator)).flatten() else {
        report::left(kind, Reason::Communicator);
        return None;
    };
    // The MPI library reports it.
    if served.has_failed(communicator) {
        report::left(kind, Reason::Failure);
        return None;
    }
    let Some(sizes) = served.sizes(kind) else {
        report::left(kind, left_because_of_kind(served));
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

/// Why all calls of a kind on a communicator are left.
#[cold]
fn left_because_of_kind(served: &Served) -> Reason {
    match served.communicator.nodes() {
        1 => left_because(),
        _ => Reason::Nodes,
    }
}

/// Why all calls of a kind are left.
#[cold]
fn left_because() -> Reason {
    Reason::ALL.get(REASON_OF_OTHERS.load(Ordering::Relaxed)).copied().unwrap_or(Reason::Job)
}
