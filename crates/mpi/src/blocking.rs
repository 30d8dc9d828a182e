//! The blocking collectives: each runs here where that is faster, and otherwise in the MPI library.

use crate::abi::{Abi, abi};
use crate::buffers::predefined_size;
use crate::collectives::{Call, Start};
use crate::communicators::{Served, is_active, served_on};
use crate::host::{Handle, Thread, with_thread};
use crate::kind::Kind;
use crate::lists::Lists;
use crate::mode::Blocking;
use crate::refusal::{Refusal, failed};
use crate::report::{self, Clock, Reason};
use crate::table::{self, Takeover};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The kinds of which some calls run here, a bit for each by its place among the blocking ones; the
/// same on all ranks.
static KINDS: AtomicU32 = AtomicU32::new(0);

/// A block of a call: number and type of its elements.
type Block = (i64, Handle);

/// The block of a call that decides, by its length, in which library the call runs: on all ranks it
/// has the same length, so all of them make the same decision.
#[derive(Clone, Copy)]
pub(crate) enum Decisive {
    /// No such block: calls with lists of blocks, and calls without data.
    None,
    /// The arguments of every rank name it.
    Everywhere(Block),
    /// The arguments of the root name it as the first one, and those of every other rank as the
    /// second one.
    Rooted(c_int, [Block; 2]),
    /// The arguments of every rank name it, on a topology with blocks of one length; on others there is
    /// none.
    OfTopology(Block),
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
    table::set(takeover);
}

impl Decisive {
    /// Returns the length of the call, as the table counts it, if the type is a predefined one:
    /// `start` would find the same, but takes as long for it as the shortest calls.
    #[inline]
    fn bytes(self, kind: Kind, (thread, abi): (&Thread, &Abi), served: &Served) -> Option<u64> {
        let (count, datatype) = match self {
            Decisive::None => return None,
            Decisive::Everywhere(block) => block,
            Decisive::Rooted(root, [at_root, elsewhere]) => {
                if usize::try_from(root).ok()? == served.rank() { at_root } else { elsewhere }
            }
            Decisive::OfTopology(block) => {
                let topology = served.topology.as_ref();
                topology.filter(|topology| topology.has_one_length && topology.sources > 0)?;
                block
            }
        };
        let blocks = if kind.counts_all_blocks() { served.size() as u64 } else { 1 };
        let size = predefined_size(thread, abi, datatype)? as u64;
        u64::try_from(count).ok()?.checked_mul(size)?.checked_mul(blocks)
    }
}

/// Runs a blocking call here if it is faster than in the MPI library, and `start` accepts it;
/// otherwise calls `leave`, which calls the MPI library.
#[inline]
pub(crate) fn run(
    kind: Kind,
    (passed, decisive): (Handle, Decisive),
    start: impl FnOnce(Call<Blocking>) -> Start<Blocking>,
    leave: impl FnOnce() -> c_int,
) -> c_int {
    with_thread(|thread| {
        let leave = || {
            let _inside = thread.enter();
            leave()
        };
        let kinds = KINDS.load(Ordering::Relaxed);
        if kinds >> kind.place_among_blocking() & 1 == 0 {
            report::left(kind, left_because());
            return leave();
        }
        if !is_active() || thread.is_inside() {
            return leave();
        }
        let Some(abi) = abi() else { return leave() };
        let communicator = abi.handle(passed);
        let served = served_on(thread, abi, communicator);
        match decide((kind, decisive), (thread, abi), (communicator, served), start) {
            Ok(outcome) => outcome,
            Err(reason) => {
                report::left(kind, reason);
                leave()
            }
        }
    })
}

/// Runs a call, or returns why it is left.
#[inline]
fn decide(
    (kind, decisive): (Kind, Decisive),
    (thread, abi): (&Thread, &'static Abi),
    (communicator, served): (Handle, Option<&'static Served>),
    start: impl FnOnce(Call<Blocking>) -> Start<Blocking>,
) -> Result<c_int, Reason> {
    let served = served.ok_or(Reason::Communicator)?;
    let Some(sizes) = served.sizes(kind) else {
        let is_one_node = served.communicator.nodes() == 1;
        return Err(if is_one_node { Reason::Slower } else { Reason::Nodes });
    };
    let clock = Clock::start();
    let bytes = decisive.bytes(kind, (thread, abi), served);
    let started = match bytes.is_some_and(|bytes| !sizes.contain(bytes)) {
        true => Err(Refusal::Left(Reason::Slower)),
        false => start(Call { abi, served, lists: Lists::Passed, mode: Blocking(sizes) }),
    };
    match started {
        Ok(outcome) => {
            report::taken_blocking(kind);
            clock.add_to(kind);
            report::compare(kind, served.size());
            Ok(outcome)
        }
        Err(Refusal::Left(reason)) => {
            served.record_external_collective();
            Err(reason)
        }
        Err(Refusal::Failed(error)) => Ok(failed(abi, (kind, served.origin(communicator)), &error)),
        // Only examinations end so.
        Err(Refusal::Accepted) => Err(Reason::Form),
    }
}

#[cold]
fn left_because() -> Reason {
    match IS_EXCLUDED.load(Ordering::Relaxed) {
        true => Reason::Excluded,
        false if IS_MEASURED.load(Ordering::Relaxed) => Reason::Slower,
        false => Reason::NoTable,
    }
}
