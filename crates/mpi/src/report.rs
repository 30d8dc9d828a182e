//! Counts of the calls that were taken over or left to the MPI library, and the time that the
//! program spent in them.

use crate::abi::Abi;
use crate::host::{Handle, Pointer, call};
use std::ffi::c_int;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

macro_rules! kinds {
    ($($kind:ident),* $(,)?) => {
        /// A collective of MPI: nonblocking, persistent or blocking.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        #[allow(non_camel_case_types, reason = "the names of the MPI standard")]
        pub(crate) enum Kind { $($kind),* }

        impl Kind {
            pub(crate) const ALL: &[Kind] = &[$(Kind::$kind),*];

            /// The kind's place in a set of kinds.
            pub(crate) fn bit(self) -> u128 {
                1 << self as u32
            }

            /// Name of the call without `MPI_`.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Kind::$kind => stringify!($kind)),* }
            }
        }
    };
}

kinds! {
    Ibarrier, Ibcast, Igather, Igatherv, Iscatter, Iscatterv, Iallgather, Iallgatherv, Ialltoall,
    Ialltoallv, Ialltoallw, Ireduce, Iallreduce, Ireduce_scatter, Ireduce_scatter_block, Iscan,
    Iexscan, Ineighbor_allgather, Ineighbor_allgatherv, Ineighbor_alltoall, Ineighbor_alltoallv,
    Ineighbor_alltoallw,
    Barrier_init, Bcast_init, Gather_init, Gatherv_init, Scatter_init, Scatterv_init,
    Allgather_init, Allgatherv_init, Alltoall_init, Alltoallv_init, Alltoallw_init,
    Reduce_init, Allreduce_init, Reduce_scatter_init, Reduce_scatter_block_init, Scan_init,
    Exscan_init, Neighbor_allgather_init, Neighbor_allgatherv_init, Neighbor_alltoall_init,
    Neighbor_alltoallv_init, Neighbor_alltoallw_init,
    Barrier, Bcast, Gather, Gatherv, Scatter, Scatterv, Allgather, Allgatherv, Alltoall, Alltoallv,
    Alltoallw, Reduce, Allreduce, Reduce_scatter, Reduce_scatter_block, Scan, Exscan,
    Neighbor_allgather, Neighbor_allgatherv, Neighbor_alltoall, Neighbor_alltoallv,
    Neighbor_alltoallw,
}

impl Kind {
    /// The blocking ones.
    pub(crate) const BLOCKING: &[Kind] = Kind::ALL.split_at(Kind::Barrier as usize).1;

    /// The set of the blocking ones.
    pub(crate) const ALL_BLOCKING: u128 = Kind::END - (1 << Kind::Barrier as u32);

    /// The set of all others.
    pub(crate) const ALL_BACKGROUND: u128 = (1 << Kind::Barrier as u32) - 1;

    const END: u128 = 1 << Kind::ALL.len();

    /// The length of a blocking one counts the blocks of all ranks.
    pub(crate) fn counts_all_blocks(self) -> bool {
        use Kind::*;
        matches!(
            self,
            Gather
                | Scatter
                | Allgather
                | Allgatherv
                | Alltoall
                | Reduce_scatter
                | Reduce_scatter_block
        )
    }

    /// The place of a blocking one among them.
    pub(crate) fn place_among_blocking(self) -> usize {
        (self as usize).wrapping_sub(Kind::Barrier as usize)
    }
}

/// Why a call is left to the MPI library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Reason {
    /// Tradewind does not serve the communicator.
    Communicator,
    /// The user has excluded the call.
    Excluded,
    /// The buffers are too long.
    Length,
    /// The arguments are invalid: the MPI library reports that.
    Arguments,
    /// The form is not served.
    Form,
    /// The communicator has ranks on several nodes, and the start would wait for them.
    Nodes,
    /// The first rank has no shared memory for the communicator of a persistent collective.
    Memory,
    /// No table says which blocking calls are faster here.
    NoTable,
    /// By the table the blocking call is not surely faster here.
    Slower,
}

const REASONS: usize = 9;

struct Counts {
    taken: AtomicU64,
    left: [AtomicU64; REASONS],
    /// Nanoseconds inside the start and the completion of calls that were taken.
    exposed: AtomicU64,
}

static COUNTS: [Counts; Kind::ALL.len()] = [const {
    Counts {
        taken: AtomicU64::new(0),
        left: [const { AtomicU64::new(0) }; REASONS],
        exposed: AtomicU64::new(0),
    }
}; Kind::ALL.len()];

/// True if there will be a report. Then each call is timed, by two reads of the clock, and the calls
/// that are left are counted, by a locked instruction each.
static TIMES: AtomicBool = AtomicBool::new(false);

pub(crate) fn measure_times() {
    TIMES.store(true, Ordering::Relaxed);
}

/// Counts a call that was taken. Callers hold the lock of the requests, so no count is lost, and a
/// locked instruction is spared.
pub(crate) fn taken(kind: Kind) {
    let taken = &COUNTS[kind as usize].taken;
    taken.store(taken.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Counts a blocking call that was taken, if there will be a report.
#[inline]
pub(crate) fn taken_blocking(kind: Kind) {
    if TIMES.load(Ordering::Relaxed) {
        COUNTS[kind as usize].taken.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a call that was left, if there will be a report; for a persistent collective, its
/// initialization.
#[inline]
pub(crate) fn left(kind: Kind, reason: Reason) {
    if TIMES.load(Ordering::Relaxed) {
        COUNTS[kind as usize].left[reason as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// The start of a call, if times are measured.
#[inline]
pub(crate) fn now() -> Option<Instant> {
    TIMES.load(Ordering::Relaxed).then(Instant::now)
}

/// Adds the time since `start` to a collective.
#[inline]
pub(crate) fn exposed(kind: Kind, start: Option<Instant>) {
    if let Some(start) = start {
        let time = start.elapsed().as_nanos() as u64;
        COUNTS[kind as usize].exposed.fetch_add(time, Ordering::Relaxed);
    }
}

/// Number of values of a collective in the sum over all ranks.
const VALUES: usize = REASONS + 2;

/// Sums the counts of all ranks at rank 0 of the world, which prints them. `sum` is the handle of
/// MPI_SUM and `element` that of a type of 64 bits.
pub(crate) fn print(abi: &Abi, rank: c_int, (element, sum): (Handle, Handle), served: &str) {
    let mut own = [0u64; VALUES * Kind::ALL.len()];
    for (counts, values) in COUNTS.iter().zip(own.chunks_exact_mut(VALUES)) {
        values[0] = counts.taken.load(Ordering::Relaxed);
        values[1] = counts.exposed.load(Ordering::Relaxed);
        for (value, left) in values[2..].iter_mut().zip(&counts.left) {
            *value = left.load(Ordering::Relaxed);
        }
    }
    let mut all = own;
    let from = own.as_mut_ptr();
    let to = all.as_mut_ptr();
    let count = own.len() as c_int;
    call!(Reduce(from.cast(), to.cast::<u8>() as Pointer, count, element, sum, 0, abi.comm_world));
    if rank == 0 {
        // One write: lines of several processes stay whole.
        eprint!("{}", text(&all, served));
    }
}

fn text(all: &[u64], served: &str) -> String {
    let mut text = format!("tradewind: {served}\n");
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "tradewind: {:<30}{:>10}{:>10}  {:>14}  left because of",
        "collective (all ranks)", "taken", "left", "exposed each"
    );
    for (kind, values) in Kind::ALL.iter().zip(all.chunks_exact(VALUES)) {
        let [taken, exposed, left @ ..] = values else { continue };
        let total: u64 = left.iter().sum();
        if *taken + total == 0 {
            continue;
        }
        let reasons = [
            "communicator",
            "TRADEWIND_MPI_ONLY",
            "length",
            "arguments",
            "form",
            "nodes",
            "memory",
            "no table",
            "not faster",
        ];
        let reasons: Vec<String> = reasons
            .iter()
            .zip(left)
            .filter(|(_, count)| **count > 0)
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        let each = match taken {
            0 => String::new(),
            _ => format!("{:.2} µs", *exposed as f64 / *taken as f64 / 1000.0),
        };
        let name = format!("MPI_{}", kind.name());
        let _ = writeln!(
            text,
            "tradewind: {name:<30}{taken:>10}{total:>10}  {each:>14}  {}",
            reasons.join(", ")
        );
    }
    text
}
