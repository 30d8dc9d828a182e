//! Measurement of collectives, here and in the MPI library in turns, for the table by which later jobs
//! take them over, and for their reports.
//!
//! A blocking collective is timed in calls that follow one another, with each rank as root in turn. A
//! nonblocking one is timed beside a computation as long as the call alone, in two situations: the ranks
//! start together, and each in turn is late by half of the computation. Each repetition has one root,
//! as many programs do, so what one rank saves at the cost of another does not count.
//!
//! `tradewind tune --mpi` calls [`tradewind_mpi_tune`] in each rank of a job.

mod calls;
mod noise;
mod summary;

use crate::abi::{Abi, abi, library_name};
use crate::communicators::{self, created};
use crate::host::{Handle, Pointer, call};
use crate::kind::{Collective, Kind};
use crate::life;
use crate::settings::Settings;
use calls::{Calls, Group, LONG_BLOCK, Load, Side, blocks_in_buffer, blocks_of, length};
use models::machine::Topology;
use models::mpi_table::{MpiRow, MpiSize, MpiTable, MpiTimes};
use models::statistics::median;
use noise::{LoadMeter, cores_of};
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};
use summary::{Measured, Summary};
use tradewind::{DataType, Op};

/// Repetitions in turns.
const ROUNDS: usize = 9;

/// The same of calls that take milliseconds, as in libraries that wait without yielding the core.
const ROUNDS_OF_SLOW: usize = 3;

/// Time of a slow call, in seconds.
const SLOW: f64 = 0.002;

/// Most times the repetitions are made where their result is close to the limit of the decision.
const MOST_BATCHES: usize = 3;

/// Bytes of each of a rank's two buffers, at most. With many ranks the longest blocks are then left
/// out of collectives with a block for each of them.
const MOST_BYTES: usize = 64 << 20;

/// Longest computation beside a nonblocking call, in seconds. Calls that take longer mostly wait for
/// other ranks to get a core.
const LONGEST_COMPUTATION: f64 = 0.001;

/// Most calls in a repetition.
const MOST_CALLS: f64 = 2000.0;

/// Most calls before the measurement. The first ones create what the later ones use, and touch the
/// pages of buffers that are used in rotation for the first time.
const WARM_UP: usize = 600;

/// Time of these calls, in seconds, from which no more are made.
const WARM_UP_TIME: f64 = 0.025;

/// The same in repetitions: no more than that many take.
const WARM_UP_REPETITIONS: usize = 3;

/// Calls that show how many fit into the time.
const FEW: usize = 4;

/// Measures the collectives of the MPI library that this process has loaded, and adds the
/// result to the table in the file `out`, unless that is null. Rows that others have disturbed are
/// added only if `is_quick` is 1. `seconds` is the time for all of it. To be called in each
/// rank of a job instead of all other functions of MPI; returns the status for the process. At the
/// end `show` is called with a terminated string that describes the result, on rank 0.
///
/// # Safety
/// `out` is null or a terminated string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tradewind_mpi_tune(
    out: *const c_char,
    seconds: f64,
    is_quick: c_int,
    show: extern "C" fn(*const c_char),
) -> c_int {
    // SAFETY: the caller's promise.
    let out = (!out.is_null()).then(|| unsafe { CStr::from_ptr(out) }.to_bytes());
    let out = out.map(|bytes| Path::new(OsStr::from_bytes(bytes)));
    let Ok(time) = Duration::try_from_secs_f64(seconds) else { return 1 };
    life::before_initialization();
    let nothing: Pointer = std::ptr::null_mut();
    if call!(Init(nothing.cast(), nothing)) != 0 {
        return 1;
    }
    life::enter(Settings::for_measurements);
    let status = match measure_and_keep(out, time, is_quick == 1) {
        Ok(text) => {
            if let Some(text) = text.and_then(|text| CString::new(text).ok()) {
                show(text.as_ptr());
            }
            0
        }
        Err(why) => {
            // All ranks fail alike, unless the table cannot be written.
            if abi().is_none_or(|abi| rank_in_world(abi) == 0) {
                log::error!("nothing was written: {why}");
            }
            1
        }
    };
    life::finalize();
    status
}

fn rank_in_world(abi: &Abi) -> c_int {
    let mut rank = 0;
    call!(Comm_rank(abi.comm_world, &raw mut rank));
    rank
}

/// Why tradewind serves no communicator, and the way out.
fn why_nothing_runs(abi: &Abi) -> String {
    let mut ranks = 0;
    call!(Comm_size(abi.comm_world, &raw mut ranks));
    if ranks > 1 {
        return "tradewind runs nothing here, for the reason above".to_owned();
    }
    format!(
        "there is one rank: start several, by `mpiexec -n 2 tradewind tune --mpi`; if the launcher has \
         started several, it is not that of {}, which was loaded: name the directory of its own library \
         by --mpi PLACE",
        library_name()
    )
}

/// Returns a description of the result on rank 0.
fn measure_and_keep(
    out: Option<&Path>,
    time: Duration,
    is_quick: bool,
) -> Result<Option<String>, String> {
    let abi = abi().ok_or("the MPI library is not known")?;
    let world = communicators::served(abi, abi.comm_world).ok_or_else(|| why_nothing_runs(abi))?;
    if world.communicator.nodes() != 1 {
        return Err(
            "the ranks are on several nodes, where collectives are left to the MPI library, \
                    unless TRADEWIND_MPI_ONLY names them"
                .into(),
        );
    }
    let summary = Measurement::new(abi, (world.rank(), world.size()), time).summary();
    if world.rank() != 0 {
        return Ok(None);
    }
    if let Some(out) = out {
        let topology = Topology::here();
        let here = topology.fingerprint();
        let table = MpiTable::new(here.clone(), summary.rows(is_quick));
        MpiTable::to_be_replaced(out, here)
            .and_then(|old| old.replaced_by(table).write(out))
            .map_err(|error| error.to_string())?;
    }
    Ok(Some(summary.text(out, is_quick)))
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

impl Measurement {
    fn new(abi: &'static Abi, (rank, ranks): (usize, usize), time: Duration) -> Self {
        let mut elements = abi.elements.iter();
        let double = elements.find(|(element, _)| *element == DataType::F64);
        // An exchange with two neighbours has two blocks.
        let longest = (LONG_BLOCK * ranks.max(2)).min(MOST_BYTES) / 8;
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
    fn summary(mut self) -> Summary {
        let begun = Instant::now();
        let cores = cores_of(|own| self.largest(own));
        let powers = std::iter::successors(Some(2), |size| Some(2 * size));
        let mut sizes: Vec<usize> = powers.take_while(|size| *size < self.ranks).collect();
        sizes.push(self.ranks);
        // The communicators of the whole job first: the time may be over before the others.
        sizes.reverse();
        let groups: Vec<Group> = sizes.into_iter().map(|size| self.group(size)).collect();
        let mut measured: Vec<Kind> =
            Kind::ALL.into_iter().filter(|kind| blocks_of(*kind).is_some()).collect();
        // The barriers first, and of all others the nonblocking ones, which the rule leaves more often.
        let order = |kind: &Kind| {
            let is_barrier = kind.collective == Collective::Barrier;
            (!is_barrier, kind.is_blocking() != is_barrier)
        };
        measured.sort_by_key(order);
        let situations = |kind: &Kind| if kind.is_blocking() { 1 } else { 2 };
        let times =
            |kind: &Kind| blocks_of(*kind).map_or(0, |blocks| blocks.len() * situations(kind));
        let all: usize = groups.len() * measured.iter().map(times).sum::<usize>();
        let share = self.time.as_secs_f64() / (all * 2 * (ROUNDS + WARM_UP_REPETITIONS)) as f64;
        let mut summary = Summary::default();
        let mut done = 0;
        for of_kind in measured.chunk_by(|one, other| order(one) == order(other)) {
            for group in &groups {
                for kind in of_kind {
                    match self.measured(group, *kind, (share, &cores)) {
                        Some(one) => {
                            summary.measured.push(one);
                            done += times(kind);
                        }
                        None => summary.unreached.push((*kind, group.size)),
                    }
                }
            }
        }
        summary.whole = begun.elapsed().mul_f64(all as f64 / done.max(1) as f64);
        summary
    }

    /// As [`row`](Self::row), with the load of these cores meanwhile.
    fn measured(
        &mut self,
        group: &Group,
        kind: Kind,
        (share, cores): (f64, &[usize]),
    ) -> Option<Measured> {
        let meter = LoadMeter::start(cores);
        let row = self.row(group, kind, share)?;
        let load = meter.load(|own| self.combined(&[own], self.sum)[0]);
        Some(Measured { row, load })
    }

    /// Measures a collective at all lengths; `None` if the time is over before the last one. A row
    /// with a part of the lengths would decide about calls of unknown length, and would replace a
    /// whole row of an earlier measurement.
    fn row(&mut self, group: &Group, kind: Kind, share: f64) -> Option<MpiRow> {
        let blocks = blocks_of(kind).unwrap_or_default();
        let fits = |block: &&usize| **block * blocks_in_buffer(kind, group.size) <= MOST_BYTES;
        let mut sizes = Vec::new();
        for block in blocks.iter().take_while(fits) {
            if self.is_over() {
                return None;
            }
            sizes.push(self.times(group, (kind, *block), share));
            // One length at which calls are left decides about all of unknown length. The times are
            // the same on all ranks.
            if kind.has_unknown_lengths() && sizes.last().is_some_and(|size| !size.is_taken()) {
                break;
            }
        }
        Some(MpiRow {
            library: library_name(),
            job: self.ranks as u32,
            ranks: group.size as u32,
            collective: kind.name().to_owned(),
            sizes,
        })
    }

    /// Creates communicators of this number of ranks; the ranks that are left over take no part.
    fn group(&self, size: usize) -> Group {
        let abi = self.abi;
        let number = self.rank / size;
        let made = |parent, new: Result<Handle, c_int>| {
            let new = new.unwrap_or(abi.comm_null);
            created(abi, parent, new);
            new
        };
        let world = abi.comm_world;
        let part = abi.written(|at| call!(Comm_split(world, number as c_int, 0, at)));
        let communicator = made(world, part);
        let takes_part = (number + 1) * size <= self.ranks;
        let mut members = 0;
        call!(Comm_size(communicator, &raw mut members));
        let is_periodic = 1;
        let ring = |at| {
            call!(Cart_create(communicator, 1, &raw const members, &raw const is_periodic, 0, at))
        };
        let ring = match members {
            ..2 => abi.comm_null,
            _ => made(communicator, abi.written(ring)),
        };
        Group { communicator, ring, size, rank: self.rank % size, takes_part }
    }

    /// Returns whether the time is over, alike on all ranks.
    fn is_over(&self) -> bool {
        let has_ended = self.rank == 0 && self.end.is_some_and(|end| Instant::now() >= end);
        let own = f64::from(u8::from(has_ended));
        self.largest(&[own])[0] > 0.0
    }

    /// The maximum over all ranks of each number.
    fn largest(&self, own: &[f64]) -> Vec<f64> {
        self.combined(own, self.maximum)
    }

    /// The numbers of all ranks, combined by this operation.
    fn combined(&self, own: &[f64], operation: Handle) -> Vec<f64> {
        let mut all = own.to_vec();
        let from: Pointer = own.as_ptr().cast_mut().cast();
        let to: Pointer = all.as_mut_ptr().cast();
        let count = own.len() as c_int;
        call!(Allreduce(from, to, count, self.double, operation, self.abi.comm_world));
        all
    }

    /// The mean over all ranks of each number.
    fn mean(&self, group: &Group, own: &[f64]) -> Vec<f64> {
        let members = (self.ranks / group.size * group.size) as f64;
        self.combined(own, self.sum).into_iter().map(|sum| sum / members).collect()
    }

    /// Makes the calls before a measurement, alike on all ranks.
    fn warm_up(&self, calls: &Calls, side: Side, share: f64) {
        let time = WARM_UP_TIME.min(share * WARM_UP_REPETITIONS as f64);
        let begun = Instant::now();
        let mut made = 0;
        while made < WARM_UP && self.largest(&[begun.elapsed().as_secs_f64()])[0] < time {
            let count = made.max(FEW).min(WARM_UP - made);
            calls.repeat(side, count, Load::default());
            made += count;
        }
    }

    /// Times a collective with blocks of `block` bytes, for about `share` seconds a repetition.
    fn times(&mut self, group: &Group, (kind, block): (Kind, usize), share: f64) -> MpiSize {
        let buffers = (self.sent.as_mut_ptr().cast(), self.received.as_mut_ptr().cast());
        let calls = Calls::new(self.abi, group, (kind, block), (self.double, self.sum), buffers);
        let sides = [Side::Library, Side::Here];
        // With the barrier before each nonblocking call, which takes longer than most of them where ranks
        // share cores: the time for all of it counts both.
        let first = sides.map(|side| {
            self.warm_up(&calls, side, share);
            let begun = Instant::now();
            calls.repeat(side, FEW, Load::default());
            begun.elapsed().as_secs_f64() / FEW as f64
        });
        let slowest = self.largest(&first).into_iter().fold(1e-9, f64::max);
        let count = (share / slowest).clamp(1.0, MOST_CALLS) as usize;
        let rounds = if slowest > SLOW { ROUNDS_OF_SLOW } else { ROUNDS };
        let bytes = length(kind, block, group.size) as u64;
        if kind.is_blocking() {
            let mut samples = Samples::default();
            loop {
                self.repeat(&mut samples, group, rounds, |side, _| {
                    calls.repeat(side, count, Load::default())
                });
                let size = samples.size(bytes);
                if !size.is_close() || samples.count >= MOST_BATCHES * rounds {
                    return size;
                }
            }
        }
        // Beside a computation that takes as long as the call alone.
        let alone = calls.repeat(Side::Library, count.div_ceil(8), Load::default());
        let computation = self.largest(&[alone])[0].min(LONGEST_COMPUTATION);
        let count = count.div_ceil(3).next_multiple_of(group.size);
        let mut situations = [false, true].map(|is_late| (is_late, Samples::default()));
        loop {
            for (is_late, samples) in &mut situations {
                self.repeat(samples, group, rounds, |side, round| {
                    let root = round % group.size;
                    calls.repeat(side, count, Load { computation, is_late: *is_late, root })
                });
            }
            let [(_, together), (_, late)] = &situations;
            let size = MpiSize { late: Some(late.times()), ..together.size(bytes) };
            if !size.is_close() || together.count >= MOST_BATCHES * rounds {
                return size;
            }
        }
    }

    /// Adds repetitions in turns, of which `time` makes one and returns its time.
    fn repeat(
        &self,
        samples: &mut Samples,
        group: &Group,
        rounds: usize,
        time: impl Fn(Side, usize) -> f64,
    ) {
        let sides = [Side::Library, Side::Here];
        let own: Vec<f64> = (0..rounds)
            .flat_map(|round| {
                // Each side first in every other round of a root.
                let order = if (round / group.size).is_multiple_of(2) { [0, 1] } else { [1, 0] };
                let mut times = [0.0; 2];
                order.into_iter().for_each(|side| times[side] = time(sides[side], round));
                times
            })
            .collect();
        // The same on all ranks, so all of them decide alike how often they repeat. A call lasts until
        // the slowest rank has its result; reports have means of all ranks.
        samples.slowest.extend(self.largest(&own));
        samples.means.extend(self.mean(group, &own));
        samples.count += rounds;
    }
}

/// Times of repetitions in seconds, of both sides in turns.
#[derive(Default)]
struct Samples {
    slowest: Vec<f64>,
    means: Vec<f64>,
    /// Number of repetitions.
    count: usize,
}

impl Samples {
    fn times(&self) -> MpiTimes {
        let medians =
            (median_of(&self.slowest, Side::Library), median_of(&self.slowest, Side::Here));
        MpiTimes::new(medians, &self.ratios())
    }

    fn size(&self, bytes: u64) -> MpiSize {
        let MpiTimes { library, tradewind, .. } = self.times();
        let library_mean = Some(median_of(&self.means, Side::Library));
        MpiSize { library_mean, ..MpiSize::new(bytes, (library, tradewind), &self.ratios()) }
    }

    fn ratios(&self) -> Vec<f64> {
        self.slowest.chunks(2).map(|pair| pair[1] / pair[0]).collect()
    }
}

/// The median time of a side in microseconds, of times in seconds of both sides in turns.
fn median_of(all: &[f64], side: Side) -> f64 {
    let of_side = all.iter().skip((side == Side::Here).into()).step_by(2);
    median(&of_side.map(|time| 1e6 * time).collect::<Vec<_>>())
}
