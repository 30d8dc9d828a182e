//! The calls that are measured, in both forms and on both sides.

use crate::abi::Abi;
use crate::collective_names::{self, int};
use crate::completion;
use crate::host::{Handle, Pointer, call};
use crate::kind::Kind;
use std::ffi::c_int;
use std::time::{Duration, Instant};

/// Bytes of a block, of which collectives send or receive one for each rank, or one in all.
const BLOCKS: [usize; 8] = [8, 128, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// The longest block of calls of which only some ranks have the lengths: it decides about calls of
/// any length.
pub(super) const LONG_BLOCK: usize = 16 << 20;

/// The blocks of such calls.
const BLOCKS_OF_UNKNOWN: [usize; 9] =
    [8, 128, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, LONG_BLOCK];

/// A communicator for the measured collectives.
pub(super) struct Group {
    pub(super) communicator: Handle,
    /// The same ranks as a ring.
    pub(super) ring: Handle,
    pub(super) size: usize,
    /// The rank of this process in it.
    pub(super) rank: usize,
    /// This rank is in a group of that size.
    pub(super) takes_part: bool,
}

/// Side that runs a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Library,
    Here,
}

/// The computation and the lateness beside which a nonblocking call is timed.
#[derive(Clone, Copy, Default)]
pub(super) struct Load {
    /// Seconds of computation between start and completion.
    pub(super) computation: f64,
    /// Each rank in turn starts late, by half of the computation.
    pub(super) is_late: bool,
    pub(super) root: usize,
}

/// The blocks with which a kind is measured; `None` for persistent ones, which go by the nonblocking
/// ones, and for those with lists of types, which are read in each call.
pub(super) fn blocks_of(kind: Kind) -> Option<&'static [usize]> {
    match kind.blocking_form() {
        _ if kind.measured_form() != kind => None,
        Kind::Barrier => Some(&[0]),
        Kind::Alltoallw | Kind::Neighbor_alltoallw => None,
        _ if kind.has_unknown_lengths() => Some(&BLOCKS_OF_UNKNOWN),
        _ => Some(&BLOCKS),
    }
}

/// Number of blocks in the longest buffer of a call.
pub(super) fn blocks_in_buffer(kind: Kind, ranks: usize) -> usize {
    match kind.blocking_form() {
        Kind::Barrier
        | Kind::Bcast
        | Kind::Reduce
        | Kind::Allreduce
        | Kind::Scan
        | Kind::Exscan => 1,
        Kind::Neighbor_allgather
        | Kind::Neighbor_allgatherv
        | Kind::Neighbor_alltoall
        | Kind::Neighbor_alltoallv => 2,
        _ => ranks,
    }
}

/// The length of a call as the decision sees it.
pub(super) fn length(kind: Kind, block: usize, ranks: usize) -> usize {
    if kind.counts_all_blocks() { block * ranks } else { block }
}

/// Computes for this time.
fn compute(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Calls of one collective, with blocks of one size.
pub(super) struct Calls {
    kind: Kind,
    abi: &'static Abi,
    communicator: Handle,
    ring: Handle,
    size: usize,
    rank: usize,
    takes_part: bool,
    sent: Pointer,
    received: Pointer,
    byte: Handle,
    double: Handle,
    sum: Handle,
    /// Bytes of a block, and its floating-point numbers.
    bytes: c_int,
    numbers: c_int,
    counts: Vec<c_int>,
    numbers_of_all: Vec<c_int>,
    displacements: Vec<c_int>,
}

impl Calls {
    /// `buffers` are long enough for a block to and from each rank, as long as the calls are used.
    pub(super) fn new(
        abi: &'static Abi,
        group: &Group,
        (kind, block): (Kind, usize),
        (double, sum): (Handle, Handle),
        (sent, received): (Pointer, Pointer),
    ) -> Self {
        let bytes = block as c_int;
        Calls {
            kind,
            abi,
            communicator: group.communicator,
            ring: group.ring,
            size: group.size,
            rank: group.rank,
            takes_part: group.takes_part,
            sent,
            received,
            byte: abi.byte,
            double,
            sum,
            bytes,
            numbers: bytes / 8,
            counts: vec![bytes; group.size],
            numbers_of_all: vec![bytes / 8; group.size],
            displacements: (0..group.size as c_int).map(|rank| rank * bytes).collect(),
        }
    }

    /// Calls the collective `count` times, and returns the time of a call in seconds. A blocking one
    /// has each rank as root in turn. Of a nonblocking one it is the time inside the start and the
    /// completion.
    pub(super) fn repeat(&self, side: Side, count: usize, load: Load) -> f64 {
        if !self.takes_part {
            return 0.0;
        }
        if self.kind.is_blocking() {
            call!(Barrier(self.communicator));
            let begun = Instant::now();
            for number in 0..count {
                self.call(side, (number % self.size) as c_int, std::ptr::null_mut());
            }
            return begun.elapsed().as_secs_f64() / count as f64;
        }
        let computation = Duration::from_secs_f64(load.computation);
        let exposed = (0..count).map(|number| {
            let is_late = load.is_late && number % self.size == self.rank;
            let delay = if is_late { computation / 2 } else { Duration::ZERO };
            self.expose(side, load.root as c_int, (delay, computation))
        });
        exposed.sum::<f64>() / count as f64
    }

    /// Calls a nonblocking collective after a delay, and returns the time inside its start and its
    /// completion.
    fn expose(&self, side: Side, root: c_int, (delay, load): (Duration, Duration)) -> f64 {
        let mut in_memory: isize = 0;
        let request: Pointer = (&raw mut in_memory).cast();
        call!(Barrier(self.communicator));
        compute(delay);
        let begun = Instant::now();
        self.call(side, root, request);
        let started = Instant::now();
        compute(load);
        let computed = Instant::now();
        let status = self.abi.ignored_status();
        match side {
            Side::Library => call!(Wait(request, status)),
            Side::Here => completion::wait(request, status),
        };
        ((started - begun) + computed.elapsed()).as_secs_f64()
    }

    /// Calls the collective. `request` receives the request of a nonblocking one.
    fn call(&self, side: Side, root: c_int, request: Pointer) -> c_int {
        /// Both forms of a collective, with the same arguments on both sides.
        macro_rules! forms {
            ($library:ident $here:path, $start:ident $start_here:path, ($($argument:expr),*)) => {
                match (side, self.kind.is_blocking()) {
                    (Side::Library, true) => call!($library($($argument),*)),
                    (Side::Library, false) => call!($start($($argument,)* request)),
                    // SAFETY: the buffers are long enough for a block of each rank, the lists have
                    // a number for each, and the request has space for a handle.
                    (Side::Here, true) => unsafe { $here($($argument),*) },
                    // SAFETY: as above.
                    (Side::Here, false) => unsafe { $start_here($($argument,)* request) },
                }
            };
        }
        let Calls { communicator: c, ring, sent: s, received: r, byte: t, bytes: n, .. } = *self;
        let Calls { double: d, sum, numbers: m, .. } = *self;
        let counts = self.counts.as_ptr();
        let numbers = self.numbers_of_all.as_ptr();
        let at = self.displacements.as_ptr();
        match self.kind.blocking_form() {
            Kind::Barrier => forms!(
                Barrier collective_names::MPI_Barrier,
                Ibarrier collective_names::MPI_Ibarrier, (c)
            ),
            Kind::Bcast => forms!(
                Bcast int::MPI_Bcast, Ibcast int::MPI_Ibcast,
                (r, n, t, root, c)
            ),
            Kind::Gather => forms!(
                Gather int::MPI_Gather, Igather int::MPI_Igather,
                (s, n, t, r, n, t, root, c)
            ),
            Kind::Gatherv => forms!(
                Gatherv int::MPI_Gatherv, Igatherv int::MPI_Igatherv,
                (s, n, t, r, counts, at, t, root, c)
            ),
            Kind::Scatter => forms!(
                Scatter int::MPI_Scatter, Iscatter int::MPI_Iscatter,
                (s, n, t, r, n, t, root, c)
            ),
            Kind::Scatterv => forms!(
                Scatterv int::MPI_Scatterv, Iscatterv int::MPI_Iscatterv,
                (s, counts, at, t, r, n, t, root, c)
            ),
            Kind::Allgather => forms!(
                Allgather int::MPI_Allgather, Iallgather int::MPI_Iallgather,
                (s, n, t, r, n, t, c)
            ),
            Kind::Allgatherv => forms!(
                Allgatherv int::MPI_Allgatherv, Iallgatherv int::MPI_Iallgatherv,
                (s, n, t, r, counts, at, t, c)
            ),
            Kind::Alltoall => forms!(
                Alltoall int::MPI_Alltoall, Ialltoall int::MPI_Ialltoall,
                (s, n, t, r, n, t, c)
            ),
            Kind::Alltoallv => forms!(
                Alltoallv int::MPI_Alltoallv, Ialltoallv int::MPI_Ialltoallv,
                (s, counts, at, t, r, counts, at, t, c)
            ),
            Kind::Reduce => forms!(
                Reduce int::MPI_Reduce, Ireduce int::MPI_Ireduce,
                (s, r, m, d, sum, root, c)
            ),
            Kind::Allreduce => forms!(
                Allreduce int::MPI_Allreduce, Iallreduce int::MPI_Iallreduce,
                (s, r, m, d, sum, c)
            ),
            Kind::Reduce_scatter => forms!(
                Reduce_scatter int::MPI_Reduce_scatter, Ireduce_scatter int::MPI_Ireduce_scatter,
                (s, r, numbers, d, sum, c)
            ),
            Kind::Reduce_scatter_block => forms!(
                Reduce_scatter_block int::MPI_Reduce_scatter_block, Ireduce_scatter_block int::MPI_Ireduce_scatter_block,
                (s, r, m, d, sum, c)
            ),
            Kind::Scan => forms!(
                Scan int::MPI_Scan, Iscan int::MPI_Iscan,
                (s, r, m, d, sum, c)
            ),
            Kind::Exscan => forms!(
                Exscan int::MPI_Exscan, Iexscan int::MPI_Iexscan,
                (s, r, m, d, sum, c)
            ),
            Kind::Neighbor_allgather => forms!(
                Neighbor_allgather int::MPI_Neighbor_allgather, Ineighbor_allgather int::MPI_Ineighbor_allgather,
                (s, n, t, r, n, t, ring)
            ),
            Kind::Neighbor_allgatherv => forms!(
                Neighbor_allgatherv int::MPI_Neighbor_allgatherv, Ineighbor_allgatherv int::MPI_Ineighbor_allgatherv,
                (s, n, t, r, counts, at, t, ring)
            ),
            Kind::Neighbor_alltoall => forms!(
                Neighbor_alltoall int::MPI_Neighbor_alltoall, Ineighbor_alltoall int::MPI_Ineighbor_alltoall,
                (s, n, t, r, n, t, ring)
            ),
            Kind::Neighbor_alltoallv => forms!(
                Neighbor_alltoallv int::MPI_Neighbor_alltoallv, Ineighbor_alltoallv int::MPI_Ineighbor_alltoallv,
                (s, counts, at, t, r, counts, at, t, ring)
            ),
            // No other kind is measured.
            _ => 0,
        }
    }
}
