//! What large collectives leave to do, cut into chunks that whoever is there claims.
//!
//! The last rank to arrive begins; ranks that wait take part. A chunk is claimed by one
//! compare-exchange, so a process that is taken off its core holds up one chunk and nobody else's.

use crate::error::Error;
use crate::flat::pattern::{FlatCollective, Pattern};
use crate::protocol::chunk_claims::next_in_lap;
use goal::arithmetic::{self, Arithmetic, ArithmeticError, DataType};
use shm::completion::Completion;
use shm::memory::{Operands, SegmentMemory};
use shm::segment::Offset;
use shm::sync::{AtomicU64, Ordering};

shm::shared_lines! {
    /// The shared words of the work in a slot.
    pub(crate) struct WorkLine {
        /// Laps whose result is there.
        pub(crate) done: Completion,
        /// `lap << 32 | chunks claimed`.
        claimed: AtomicU64,
        /// `lap << 32 | chunks finished`.
        finished: AtomicU64,
        /// One more than the last lap in which an integer was divided by zero.
        failure: AtomicU64,
    }
}

/// Laps after which a slot's words are brought up to date even if nobody had work in it: counts are
/// told apart by the sign of their difference, in 30 bits.
pub(crate) const REFRESH_LAPS: u32 = 1 << 28;

impl WorkLine {
    /// Notes that this lap leaves no work. One rank does so in every run without work; most times
    /// nothing is to be done.
    #[inline]
    pub(crate) fn pass(&self, lap: u32) {
        if lap.is_multiple_of(REFRESH_LAPS) && lap != 0 {
            self.refresh(lap);
        }
    }

    #[cold]
    fn refresh(&self, lap: u32) {
        let next = u64::from(lap.wrapping_add(1)) << 32;
        // Relaxed: nobody uses the line in a run without work, and the runs of a slot are ordered
        // by its run states.
        self.claimed.store(next, Ordering::Relaxed);
        self.finished.store(next, Ordering::Relaxed);
        self.done.set(lap.wrapping_add(1));
    }

    /// Whether this lap's reduction divided an integer by zero.
    pub(crate) fn failed(&self, lap: u32) -> bool {
        // Ordered by the completion word, which the failing process advanced later and the caller
        // has looked at.
        self.failure.load(Ordering::Relaxed) == u64::from(lap) + 1
    }
}

/// Where one rank's bytes lie during a large collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContributionLocation {
    /// Its contribution.
    pub(crate) contribution: Offset,
    /// Where its result goes.
    pub(crate) result: Offset,
    /// Where its contribution can be copied for those who fetch their result themselves; 0 when the
    /// contribution stays as it is until every rank has consumed the run.
    pub(crate) spare: Offset,
    /// The result is fetched by its owner: another rank's copy of it will do.
    pub(crate) fetches: bool,
}

impl ContributionLocation {
    /// A contribution that is read, overwritten by the result and fetched from.
    pub(crate) fn staged(at: Offset) -> Self {
        ContributionLocation { contribution: at, result: at, spare: Offset(0), fetches: true }
    }

    pub(crate) fn write(self, memory: &SegmentMemory, cell: Offset) -> Result<(), Error> {
        let words = [self.contribution.0, self.result.0, self.spare.0, u64::from(self.fetches)];
        Ok(memory.write(cell, words.map(u64::to_le_bytes).as_flattened())?)
    }

    pub(crate) fn read(memory: &SegmentMemory, cell: Offset) -> Result<Self, Error> {
        let mut words = [[0; 8]; 4];
        memory.read(cell, words.as_flattened_mut())?;
        let [contribution, result, spare, fetches] = words.map(u64::from_le_bytes);
        Ok(ContributionLocation {
            contribution: Offset(contribution),
            result: Offset(result),
            spare: Offset(spare),
            fetches: fetches != 0,
        })
    }

    /// Whether the contribution is a staged copy, which stays as it is until every rank has
    /// consumed the run unless a reduction puts its result there.
    fn is_staged(&self) -> bool {
        self.fetches && self.result == self.contribution
    }

    /// Whether every rank reduces for itself when it fetches. With two ranks that moves every line
    /// between the cores once; one rank's result would have to placement back.
    pub(crate) fn readers_reduce(all: &[ContributionLocation]) -> bool {
        all.len() <= 2 && all.iter().all(ContributionLocation::is_staged)
    }

    /// Where the contribution is to be fetched from when the run is complete.
    pub(crate) fn kept(&self) -> Offset {
        if self.spare.0 == 0 { self.contribution } else { self.spare }
    }

    /// Where a reduction's result is put first: with the first rank that fetches it, or with rank
    /// 0.
    pub(crate) fn first_result(all: &[ContributionLocation]) -> Offset {
        all.iter()
            .find(|locations| locations.fetches)
            .or(all.first())
            .map_or(Offset(0), |locations| locations.result)
    }
}

/// ChunkedWork that is cut into chunks.
#[derive(Debug)]
pub(crate) enum ChunkedWork {
    /// Fold all contributions of `bytes` bytes.
    Reduce { arithmetic: (Arithmetic, DataType), locations: Vec<ContributionLocation>, bytes: u64 },
    /// Copy: from, to, length.
    Copy(Vec<(Offset, Offset, u64)>),
}

/// The largest chunk of a copy.
const COPY_CHUNK: u64 = 64 << 10;

impl ChunkedWork {
    /// What a large collective leaves to do when all have come; `None` when those who fetch need
    /// nothing done for them.
    pub(crate) fn new(
        collective: &FlatCollective,
        in_arena: bool,
        locations: Vec<ContributionLocation>,
    ) -> Option<ChunkedWork> {
        if let (Pattern::Reduce, Some(arithmetic)) = (collective.pattern, collective.arithmetic) {
            if in_arena && ContributionLocation::readers_reduce(&locations) {
                return None;
            }
            return Some(ChunkedWork::Reduce { arithmetic, locations, bytes: collective.bytes });
        }
        let mut copies = Vec::new();
        let somebody_fetches = locations.iter().any(|locations| locations.fetches);
        let part = collective.bytes / locations.len() as u64;
        for (rank, from) in (0u64..).zip(&locations) {
            if from.spare.0 != 0 && somebody_fetches {
                copies.push((from.contribution, from.spare, collective.bytes));
            }
            let leaves = |other: u64| collective.leaves_own && other == rank;
            for (other, to) in
                (0u64..).zip(&locations).filter(|(other, to)| !to.fetches && !leaves(*other))
            {
                let at = |offset: Offset, by: u64| Offset(offset.0 + by);
                match collective.pattern {
                    Pattern::Gather => {
                        copies.push((
                            from.contribution,
                            at(to.result, rank * collective.bytes),
                            collective.bytes,
                        ));
                    }
                    Pattern::Exchange => {
                        copies.push((
                            at(from.contribution, other * part),
                            at(to.result, rank * part),
                            part,
                        ));
                    }
                    Pattern::Broadcast { root } if rank == u64::from(root) && other != rank => {
                        copies.push((from.contribution, to.result, collective.bytes));
                    }
                    _ => {}
                }
            }
        }
        copies.retain(|(from, to, _)| from != to);
        (!copies.is_empty()).then_some(ChunkedWork::Copy(copies))
    }

    fn chunks(&self) -> u32 {
        match self {
            ChunkedWork::Reduce { bytes, .. } => bytes.div_ceil(reduce_chunk(*bytes)) as u32,
            ChunkedWork::Copy(copies) => {
                copies.iter().map(|(_, _, length)| length.div_ceil(COPY_CHUNK) as u32).sum()
            }
        }
    }

    /// Does one chunk; true when an integer was divided by zero.
    fn run(&self, memory: &SegmentMemory, chunk: u32) -> Result<bool, Error> {
        match self {
            ChunkedWork::Reduce { arithmetic, locations, bytes } => {
                let size = reduce_chunk(*bytes);
                let from = u64::from(chunk) * size;
                fold_chunk(memory, *arithmetic, locations, from, size.min(bytes - from))
            }
            ChunkedWork::Copy(copies) => {
                let mut before = u64::from(chunk);
                for (from, to, length) in copies {
                    let pieces = length.div_ceil(COPY_CHUNK);
                    if before < pieces {
                        let at = before * COPY_CHUNK;
                        let bytes = COPY_CHUNK.min(length - at);
                        memory.copy(Offset(from.0 + at), Offset(to.0 + at), bytes)?;
                        return Ok(false);
                    }
                    before -= pieces;
                }
                Ok(false)
            }
        }
    }

    /// Claims and does chunks until none is left; true when it did any. All contributions have
    /// arrived.
    pub(crate) fn claim(
        &self,
        memory: &SegmentMemory,
        line: &WorkLine,
        lap: u32,
    ) -> Result<bool, Error> {
        let chunks = self.chunks();
        let mut did_any = false;
        while let Some(chunk) = next_in_lap(&line.claimed, lap, chunks) {
            if self.run(memory, chunk)? {
                line.failure.store(u64::from(lap) + 1, Ordering::Relaxed);
            }
            did_any = true;
            // The last to finish has acquired, through the chain of exchanges, what all others
            // wrote.
            if next_in_lap(&line.finished, lap, chunks) == Some(chunks - 1) {
                line.done.set(lap.wrapping_add(1));
            }
        }
        Ok(did_any)
    }
}

/// Bytes of a chunk: small enough that several ranks find work, large enough that claiming it costs
/// nothing beside it.
fn reduce_chunk(bytes: u64) -> u64 {
    (bytes / 8).clamp(4 << 10, 64 << 10).next_multiple_of(64)
}

/// Folds one chunk of all contributions, from the left in rank order, and puts it wherever it is
/// wanted; true when an integer was divided by zero.
fn fold_chunk(
    memory: &SegmentMemory,
    arithmetic: (Arithmetic, DataType),
    locations: &[ContributionLocation],
    from: u64,
    length: u64,
) -> Result<bool, Error> {
    let at = |offset: Offset| Offset(offset.0 + from);
    let first = ContributionLocation::first_result(locations);
    let contributions: Vec<Offset> =
        locations.iter().map(|locations| locations.contribution).collect();
    let mut failed = false;
    let (Some(left), rest) = (contributions.first(), contributions.get(1..).unwrap_or(&[])) else {
        return Ok(false);
    };
    if rest.iter().skip(1).any(|later| *later == first) {
        // The first result's place is itself a contribution that is still to be read.
        let mut accumulator = vec![0; length as usize];
        memory.read(at(*left), &mut accumulator)?;
        for right in rest {
            failed |= memory.inspect(at(*right), length, |bytes| {
                is_division(arithmetic::apply_in_place_left(
                    arithmetic.0,
                    arithmetic.1,
                    &mut accumulator,
                    bytes,
                ))
            })?;
        }
        memory.write(at(first), &accumulator)?;
    } else if rest.is_empty() {
        memory.copy(at(*left), at(first), length)?;
    } else {
        let mut left = *left;
        for right in rest {
            failed |= combine(memory, arithmetic, at(left), at(*right), at(first), length)?;
            left = first;
        }
    }
    for locations in
        locations.iter().filter(|locations| !locations.fetches && locations.result != first)
    {
        memory.copy(at(first), at(locations.result), length)?;
    }
    Ok(failed)
}

/// destination = left ∘ right within the segment; true when an integer was divided by zero.
pub(crate) fn combine(
    memory: &SegmentMemory,
    (operation, data_type): (Arithmetic, DataType),
    left: Offset,
    right: Offset,
    destination: Offset,
    length: u64,
) -> Result<bool, Error> {
    Ok(memory.combine(left, right, destination, length, |operands| match operands {
        Operands::Apart { left, right, destination } => {
            is_division(arithmetic::apply(operation, data_type, left, right, destination))
        }
        Operands::OntoLeft { left, right } => {
            is_division(arithmetic::apply_in_place_left(operation, data_type, left, right))
        }
        Operands::OntoRight { left, right } => {
            is_division(arithmetic::apply_in_place_right(operation, data_type, left, right))
        }
        Operands::AllOne(bytes) => {
            let copy = bytes.to_vec();
            is_division(arithmetic::apply_in_place_left(operation, data_type, bytes, &copy))
        }
    })?)
}

/// A validated schedule allows no other failure than a division by zero.
fn is_division(outcome: Result<(), ArithmeticError>) -> bool {
    matches!(outcome, Err(ArithmeticError::DivisionByZero { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_found_after_any_number_of_laps_without() {
        let line = WorkLine {
            done: Completion::new(),
            claimed: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            failure: AtomicU64::new(0),
        };
        for refresh in 0..40u64 {
            line.pass((refresh * u64::from(REFRESH_LAPS)) as u32);
            let lap = (refresh * u64::from(REFRESH_LAPS) + 77) as u32;
            assert!(!line.done.reached(lap.wrapping_add(1)), "lap {lap}");
            assert_eq!(next_in_lap(&line.claimed, lap, 1), Some(0), "lap {lap}");
            assert_eq!(next_in_lap(&line.finished, lap, 1), Some(0), "lap {lap}");
            line.done.set(lap.wrapping_add(1));
            assert!(line.done.reached(lap.wrapping_add(1)));
        }
    }
}
