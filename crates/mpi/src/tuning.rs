//! Measurement of the blocking collectives, here and in the MPI library in turns, for the table by
//! which later jobs take them over.
//!
//! `tradewind tune --mpi` calls [`tradewind_mpi_tune`] in each rank of a job.

use crate::abi::{Abi, abi, library_name};
use crate::collective_names::{self, int};
use crate::communicators::{self, created};
use crate::host::{Handle, Pointer, call};
use crate::life;
use crate::report::Kind;
use crate::settings::Settings;
use models::machine::Topology;
use models::mpi_table::{MpiRow, MpiSize, MpiTable};
use models::statistics::median;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};
use tradewind::{DataType, Op};

/// Bytes of a block, of which collectives send or receive one for each rank, or one in all.
const BLOCKS: [usize; 8] = [8, 128, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Repetitions in turns.
const ROUNDS: usize = 9;

/// Most times the repetitions are made where their result is close to the limit of the decision.
const MOST_BATCHES: usize = 3;

/// Bytes of each of a rank's two buffers, at most. With many ranks the longest blocks are then left
/// out of collectives with a block for each of them.
const MOST_BYTES: usize = 16 << 20;

/// Most calls in a repetition.
const MOST_CALLS: f64 = 2000.0;

/// Calls before the measurement: the first ones create what the later ones use.
const WARM_UP: usize = 3;

/// Side that runs a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Library,
    Here,
}

/// Measures the blocking collectives of the MPI library that this process has loaded, and adds the
/// result to the table in the file `out`. `seconds` is the time for all of it. To be called in each
/// rank of a job instead of all other functions of MPI; returns the status for the process. When
/// the table is written, `show` is called with a terminated string that describes the result, on
/// rank 0.
///
/// # Safety
/// `out` is a terminated string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tradewind_mpi_tune(
    out: *const c_char,
    seconds: f64,
    show: extern "C" fn(*const c_char),
) -> c_int {
    // SAFETY: the caller's promise.
    let out = OsStr::from_bytes(unsafe { CStr::from_ptr(out) }.to_bytes());
    let Ok(time) = Duration::try_from_secs_f64(seconds) else { return 1 };
    life::before_initialization();
    let nothing: Pointer = std::ptr::null_mut();
    if call!(Init(nothing.cast(), nothing)) != 0 {
        return 1;
    }
    life::enter(Settings::for_measurements);
    let status = match measure_and_keep(Path::new(out), time) {
        Ok(text) => {
            if let Some(text) = text.and_then(|text| CString::new(text).ok()) {
                show(text.as_ptr());
            }
            0
        }
        Err(why) => {
            log::error!("nothing was written: {why}");
            1
        }
    };
    life::finalize();
    status
}

/// Returns a description of the result on rank 0.
fn measure_and_keep(out: &Path, time: Duration) -> Result<Option<String>, String> {
    let abi = abi().ok_or("the MPI library is not known")?;
    let world = communicators::served(abi, abi.comm_world).ok_or("tradewind runs nothing here")?;
    if world.communicator.nodes() != 1 {
        return Err("the ranks are on several nodes, where blocking collectives are left to the \
                    MPI library"
            .into());
    }
    let job = Measurement::new(abi, (world.rank(), world.size()), time);
    let rows = job.rows();
    if world.rank() != 0 {
        return Ok(None);
    }
    let text = text(&rows, out);
    let topology = Topology::here();
    let here = topology.fingerprint();
    let kept = MpiTable::to_be_replaced(out, here)
        .and_then(|old| old.replaced_by(MpiTable::new(here.clone(), rows)).write(out));
    kept.map(|()| Some(text)).map_err(|error| error.to_string())
}

/// A measurement in a job.
struct Measurement {
    abi: &'static Abi,
    rank: usize,
    ranks: usize,
    /// Handles of the type of 64-bit floating-point numbers, of the sum and of the maximum.
    double: Handle,
    sum: Handle,
    maximum: Handle,
    /// `None` if the time ends after all of it.
    end: Option<Instant>,
    time: Duration,
    /// Memory for a block to and from each rank.
    sent: Vec<u64>,
    received: Vec<u64>,
}

/// A communicator for the measured collectives.
struct Group {
    communicator: Handle,
    /// The same ranks as a ring.
    ring: Handle,
    size: usize,
    /// This rank is in a group of that size.
    takes_part: bool,
}

impl Measurement {
    fn new(abi: &'static Abi, (rank, ranks): (usize, usize), time: Duration) -> Self {
        let mut elements = abi.elements.iter();
        let double = elements.find(|(element, _)| *element == DataType::F64);
        // An exchange with two neighbours has two blocks.
        let longest = (BLOCKS[BLOCKS.len() - 1] * ranks.max(2)).min(MOST_BYTES) / 8;
        Measurement {
            abi,
            rank,
            ranks,
            double: double.map_or(abi.datatype_null, |(_, handle)| *handle),
            sum: abi.operation(Op::Sum),
            maximum: abi.operation(Op::Maximum),
            end: Instant::now().checked_add(time),
            time,
            sent: vec![0; longest],
            received: vec![0; longest],
        }
    }

    /// Measures all collectives on communicators of several sizes.
    fn rows(mut self) -> Vec<MpiRow> {
        let powers = std::iter::successors(Some(2), |size| Some(2 * size));
        let mut sizes: Vec<usize> = powers.take_while(|size| *size < self.ranks).collect();
        sizes.push(self.ranks);
        // The communicators of the whole job first: the time may be over before the others.
        sizes.reverse();
        let measured: Vec<Kind> =
            Kind::BLOCKING.iter().copied().filter(|kind| blocks_of(*kind).is_some()).collect();
        let library = library_name();
        let mut rows = Vec::new();
        let count = sizes.len() * measured.len() * BLOCKS.len();
        let share = self.time.as_secs_f64() / count as f64 / (2 * ROUNDS) as f64;
        for size in sizes {
            let group = self.group(size);
            for kind in &measured {
                let blocks = blocks_of(*kind).unwrap_or_default();
                let fits = |block: &&usize| **block * blocks_in_buffer(*kind, size) <= MOST_BYTES;
                let blocks: Vec<usize> = blocks.iter().take_while(fits).copied().collect();
                let sizes = blocks.iter().map_while(|block| {
                    (!self.is_over()).then(|| self.times(&group, (*kind, *block), share))
                });
                let sizes: Vec<MpiSize> = sizes.collect();
                // A row with a part of the lengths would decide about calls of unknown length, and
                // would replace a whole row of an earlier measurement.
                if sizes.len() < blocks.len() {
                    continue;
                }
                rows.push(MpiRow {
                    library: library.clone(),
                    job: self.ranks as u32,
                    ranks: size as u32,
                    collective: kind.name().to_owned(),
                    sizes,
                });
            }
        }
        rows
    }

    /// Creates communicators of this number of ranks; the ranks that are left over take no part.
    fn group(&self, size: usize) -> Group {
        let abi = self.abi;
        let number = self.rank / size;
        let [mut communicator, mut ring] = [0isize; 2];
        let [at, ring_at]: [Pointer; 2] = [(&raw mut communicator).cast(), (&raw mut ring).cast()];
        call!(Comm_split(abi.comm_world, number as c_int, 0, at));
        // SAFETY: the MPI library has written the handle.
        let communicator = unsafe {
            created(abi, abi.comm_world, at);
            abi.read(at, 0)
        };
        let takes_part = (number + 1) * size <= self.ranks;
        let mut members = 0;
        call!(Comm_size(communicator, &raw mut members));
        let is_periodic = 1;
        let dimension = &raw const members;
        let periodic = &raw const is_periodic;
        if members > 1 {
            call!(Cart_create(communicator, 1, dimension, periodic, 0, ring_at));
            // SAFETY: as above.
            unsafe { created(abi, communicator, ring_at) };
        }
        // SAFETY: the variable is as large as the handles of every ABI.
        let ring = unsafe { abi.read(ring_at, 0) };
        Group { communicator, ring, size, takes_part }
    }

    /// Returns whether the time is over, alike on all ranks.
    fn is_over(&self) -> bool {
        let has_ended = self.rank == 0 && self.end.is_some_and(|end| Instant::now() >= end);
        let own = f64::from(u8::from(has_ended));
        self.largest(&[own])[0] > 0.0
    }

    /// The maximum over all ranks of each number.
    fn largest(&self, own: &[f64]) -> Vec<f64> {
        let mut all = own.to_vec();
        let from: Pointer = own.as_ptr().cast_mut().cast();
        let to: Pointer = all.as_mut_ptr().cast();
        let count = own.len() as c_int;
        call!(Allreduce(from, to, count, self.double, self.maximum, self.abi.comm_world));
        all
    }

    /// Times a collective with blocks of `block` bytes, for about `share` seconds a repetition.
    fn times(&mut self, group: &Group, (kind, block): (Kind, usize), share: f64) -> MpiSize {
        let mut arguments = Arguments::new(self, group, block);
        let mut repeat = |side, calls| match group.takes_part {
            true => arguments.repeat(kind, side, calls),
            false => 0.0,
        };
        let sides = [Side::Library, Side::Here];
        let first = sides.map(|side| {
            repeat(side, WARM_UP);
            repeat(side, 2)
        });
        let slowest = self.largest(&first).into_iter().fold(1e-9, f64::max);
        let calls = (share / slowest).clamp(1.0, MOST_CALLS) as usize;
        let mut all = Vec::new();
        loop {
            let own: Vec<f64> = (0..ROUNDS)
                .flat_map(|round| {
                    // In turns, and each side first in every other round.
                    let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
                    let mut times = [0.0; 2];
                    order.into_iter().for_each(|side| times[side] = repeat(sides[side], calls));
                    times
                })
                .collect();
            // The same on all ranks, so all of them end together.
            all.extend(self.largest(&own));
            let of = |side: usize| all.iter().skip(side).step_by(2).map(|time| 1e6 * time);
            let [library, here] = [0, 1].map(|side| median(&of(side).collect::<Vec<_>>()));
            let ratios: Vec<f64> = all.chunks(2).map(|pair| pair[1] / pair[0]).collect();
            let bytes = length(kind, block, group.size) as u64;
            let result = MpiSize::new(bytes, (library, here), &ratios);
            if !result.is_close() || all.len() >= MOST_BATCHES * 2 * ROUNDS {
                return result;
            }
        }
    }
}

/// The blocks with which a kind is measured; `None` for those that are not.
fn blocks_of(kind: Kind) -> Option<&'static [usize]> {
    match kind {
        Kind::Barrier => Some(&[0]),
        // Their lists of types are read in each call: no table says when that is worth it.
        Kind::Alltoallw | Kind::Neighbor_alltoallw => None,
        _ => Some(&BLOCKS),
    }
}

/// Number of blocks in the longest buffer of a call.
fn blocks_in_buffer(kind: Kind, ranks: usize) -> usize {
    match kind {
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
fn length(kind: Kind, block: usize, ranks: usize) -> usize {
    if kind.counts_all_blocks() { block * ranks } else { block }
}

/// The arguments of calls with blocks of one size.
struct Arguments {
    communicator: Handle,
    ring: Handle,
    size: usize,
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

impl Arguments {
    fn new(job: &mut Measurement, group: &Group, block: usize) -> Self {
        let bytes = block as c_int;
        Arguments {
            communicator: group.communicator,
            ring: group.ring,
            size: group.size,
            sent: job.sent.as_mut_ptr().cast(),
            received: job.received.as_mut_ptr().cast(),
            byte: job.abi.byte,
            double: job.double,
            sum: job.sum,
            bytes,
            numbers: bytes / 8,
            counts: vec![bytes; group.size],
            numbers_of_all: vec![bytes / 8; group.size],
            displacements: (0..group.size as c_int).map(|rank| rank * bytes).collect(),
        }
    }

    /// Calls a collective, with each rank as root in turn, and returns the time of a call in seconds.
    fn repeat(&mut self, kind: Kind, side: Side, calls: usize) -> f64 {
        call!(Barrier(self.communicator));
        let begun = Instant::now();
        for call in 0..calls {
            self.call(kind, side, (call % self.size) as c_int);
        }
        begun.elapsed().as_secs_f64() / calls as f64
    }

    fn call(&self, kind: Kind, side: Side, root: c_int) -> c_int {
        /// One function with the same arguments on both sides.
        macro_rules! both {
            ($library:ident $here:path, ($($argument:expr),*)) => {
                match side {
                    Side::Library => call!($library($($argument),*)),
                    // SAFETY: the buffers are long enough for a block of each rank, and the lists
                    // have a number for each.
                    Side::Here => unsafe { $here($($argument),*) },
                }
            };
        }
        let Arguments { communicator: c, ring, sent: s, received: r, byte: t, bytes: n, .. } =
            *self;
        let Arguments { double: d, sum, numbers: m, .. } = *self;
        let counts = self.counts.as_ptr();
        let numbers = self.numbers_of_all.as_ptr();
        let at = self.displacements.as_ptr();
        match kind {
            Kind::Barrier => both!(Barrier collective_names::MPI_Barrier, (c)),
            Kind::Bcast => both!(Bcast int::MPI_Bcast, (r, n, t, root, c)),
            Kind::Gather => both!(Gather int::MPI_Gather, (s, n, t, r, n, t, root, c)),
            Kind::Gatherv => {
                both!(Gatherv int::MPI_Gatherv, (s, n, t, r, counts, at, t, root, c))
            }
            Kind::Scatter => both!(Scatter int::MPI_Scatter, (s, n, t, r, n, t, root, c)),
            Kind::Scatterv => {
                both!(Scatterv int::MPI_Scatterv, (s, counts, at, t, r, n, t, root, c))
            }
            Kind::Allgather => both!(Allgather int::MPI_Allgather, (s, n, t, r, n, t, c)),
            Kind::Allgatherv => {
                both!(Allgatherv int::MPI_Allgatherv, (s, n, t, r, counts, at, t, c))
            }
            Kind::Alltoall => both!(Alltoall int::MPI_Alltoall, (s, n, t, r, n, t, c)),
            Kind::Alltoallv => {
                both!(Alltoallv int::MPI_Alltoallv, (s, counts, at, t, r, counts, at, t, c))
            }
            Kind::Reduce => both!(Reduce int::MPI_Reduce, (s, r, m, d, sum, root, c)),
            Kind::Allreduce => both!(Allreduce int::MPI_Allreduce, (s, r, m, d, sum, c)),
            Kind::Reduce_scatter => {
                both!(Reduce_scatter int::MPI_Reduce_scatter, (s, r, numbers, d, sum, c))
            }
            Kind::Reduce_scatter_block => {
                both!(Reduce_scatter_block int::MPI_Reduce_scatter_block, (s, r, m, d, sum, c))
            }
            Kind::Scan => both!(Scan int::MPI_Scan, (s, r, m, d, sum, c)),
            Kind::Exscan => both!(Exscan int::MPI_Exscan, (s, r, m, d, sum, c)),
            Kind::Neighbor_allgather => {
                both!(Neighbor_allgather int::MPI_Neighbor_allgather, (s, n, t, r, n, t, ring))
            }
            Kind::Neighbor_allgatherv => both!(
                Neighbor_allgatherv int::MPI_Neighbor_allgatherv,
                (s, n, t, r, counts, at, t, ring)
            ),
            Kind::Neighbor_alltoall => {
                both!(Neighbor_alltoall int::MPI_Neighbor_alltoall, (s, n, t, r, n, t, ring))
            }
            Kind::Neighbor_alltoallv => both!(
                Neighbor_alltoallv int::MPI_Neighbor_alltoallv,
                (s, counts, at, t, r, counts, at, t, ring)
            ),
            // No other kind is measured.
            _ => 0,
        }
    }
}

/// The rows as a table: the ratios of the times, here to the library, and the sizes taken over.
fn text(rows: &[MpiRow], out: &Path) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{:<24}{:>6}  bytes: time here / in the MPI library", "", "ranks");
    for row in rows {
        let _ = write!(text, "MPI_{:<20}{:>6}  ", row.collective, row.ranks);
        for size in &row.sizes {
            let mark = if size.is_faster() { "*" } else { "" };
            let _ = write!(text, " {}: {:.2}{mark}", size.bytes, size.ratio);
        }
        text.push('\n');
    }
    text.push_str("* runs on tradewind from now on, as calls do between two such sizes\n");
    let _ = writeln!(text, "written to {}", out.display());
    text
}
