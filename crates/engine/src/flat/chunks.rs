//! Reductions of large flat collectives, in chunks that any waiting rank claims.
//!
//! The last rank to arrive begins; waiting ranks take part. A chunk is claimed by one
//! compare-exchange, so a preempted process delays one chunk only.

use crate::error::Error;
use crate::protocol::chunk_claims::next_in_lap;
use crate::reduction::{combine, is_division};
use goal::arithmetic::{self, Arithmetic, DataType};
use shm::completion::Completion;
use shm::memory::SegmentMemory;
use shm::segment::Offset;
use shm::sync::{AtomicU64, Ordering};

shm::shared_lines! {
    /// The shared words of a slot's work.
    pub(crate) struct WorkLine {
        /// Laps with a complete result.
        pub(crate) done: Completion,
        /// `lap << 32 | chunks claimed`.
        claimed: AtomicU64,
        /// `lap << 32 | chunks finished`.
        finished: AtomicU64,
        /// The last lap with a division by zero, plus one.
        failure: AtomicU64,
    }
}

/// Number of laps after which a slot's words are updated even without work: the sign of the
/// difference, in 30 bits, distinguishes laps.
pub(crate) const REFRESH_LAPS: u32 = 1 << 28;

impl WorkLine {
    /// Records that this lap has no work. One rank calls this in every run without work; usually
    /// there is nothing to do.
    #[inline]
    pub(crate) fn pass(&self, lap: u32) {
        if lap.is_multiple_of(REFRESH_LAPS) && lap != 0 {
            self.refresh(lap);
        }
    }

    #[cold]
    fn refresh(&self, lap: u32) {
        let next = u64::from(lap.wrapping_add(1)) << 32;
        // Relaxed: no rank uses the line in a run without work, and the run states order the runs
        // of a slot.
        self.claimed.store(next, Ordering::Relaxed);
        self.finished.store(next, Ordering::Relaxed);
        self.done.set(lap.wrapping_add(1));
    }

    /// Returns whether this lap's reduction divided an integer by zero.
    pub(crate) fn failed(&self, lap: u32) -> bool {
        // Relaxed: ordered by the completion word, which the failing process advanced later and the
        // caller has read.
        self.failure.load(Ordering::Relaxed) == u64::from(lap) + 1
    }
}

/// Locations of one rank's bytes during a large collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContributionLocation {
    /// The contribution, in staging or in the caller's memory. A result in chunks may replace one in
    /// staging; apart from that it does not change until every rank has consumed the run.
    pub(crate) contribution: Offset,
    /// The destination of a result in chunks.
    pub(crate) result: Offset,
    /// The owner fetches the result, so any rank's copy of it suffices.
    pub(crate) fetches: bool,
}

impl ContributionLocation {
    /// Returns a location that holds the contribution, then the result, and is fetched from.
    pub(crate) fn staged(at: Offset) -> Self {
        ContributionLocation { contribution: at, result: at, fetches: true }
    }

    pub(crate) fn write(self, memory: &SegmentMemory, cell: Offset) -> Result<(), Error> {
        let words = [self.contribution.0, self.result.0, u64::from(self.fetches)];
        Ok(memory.write(cell, words.map(u64::to_le_bytes).as_flattened())?)
    }

    pub(crate) fn read(memory: &SegmentMemory, cell: Offset) -> Result<Self, Error> {
        let mut words = [[0; 8]; 3];
        memory.read(cell, words.as_flattened_mut())?;
        let [contribution, result, fetches] = words.map(u64::from_le_bytes);
        Ok(ContributionLocation {
            contribution: Offset(contribution),
            result: Offset(result),
            fetches: fetches != 0,
        })
    }

    /// Returns the first destination of a reduction's result: at the first rank that fetches, or at
    /// rank 0.
    pub(crate) fn first_result(all: &[ContributionLocation]) -> Offset {
        all.iter()
            .find(|locations| locations.fetches)
            .or(all.first())
            .map_or(Offset(0), |locations| locations.result)
    }
}

/// A reduction of all contributions, divided into chunks.
#[derive(Debug)]
pub(crate) struct ChunkedReduction {
    pub(crate) arithmetic: (Arithmetic, DataType),
    pub(crate) locations: Vec<ContributionLocation>,
    /// Length of a contribution.
    pub(crate) bytes: u64,
}

impl ChunkedReduction {
    fn chunks(&self) -> u32 {
        self.bytes.div_ceil(reduce_chunk(self.bytes)) as u32
    }

    /// Executes one chunk. Returns whether an integer was divided by zero.
    fn run(&self, memory: &SegmentMemory, chunk: u32) -> Result<bool, Error> {
        let size = reduce_chunk(self.bytes);
        let from = u64::from(chunk) * size;
        fold_chunk(memory, self.arithmetic, &self.locations, from, size.min(self.bytes - from))
    }

    /// Claims and executes chunks until none is left. Returns whether there were any. All
    /// contributions have arrived.
    pub(crate) fn claim(
        &self,
        memory: &SegmentMemory,
        line: &WorkLine,
        lap: u32,
    ) -> Result<bool, Error> {
        let chunks = self.chunks();
        let mut did_any = false;
        let mut failure = None;
        // A rank that dies with a claimed chunk leaves the work unfinished. The count of finished
        // chunks then never reaches the end, and the waiting ranks detect the death.
        while let Some(chunk) = next_in_lap(&line.claimed, lap, chunks) {
            let outcome = self.run(memory, chunk);
            if !matches!(outcome, Ok(false)) {
                // Relaxed: the count of finished chunks below publishes it.
                line.failure.store(u64::from(lap) + 1, Ordering::Relaxed);
            }
            failure = failure.or(outcome.err());
            did_any = true;
            // The rank that finishes last has acquired the writes of all others through the chain
            // of exchanges.
            if next_in_lap(&line.finished, lap, chunks) == Some(chunks - 1) {
                line.done.set(lap.wrapping_add(1));
            }
        }
        // Not before: the other ranks wait until all chunks are finished.
        failure.map_or(Ok(did_any), Err)
    }
}

/// Returns the size of a chunk: small enough to occupy several ranks, large enough that the claim
/// costs little.
fn reduce_chunk(bytes: u64) -> u64 {
    (bytes / 8).clamp(4 << 10, 64 << 10).next_multiple_of(64)
}

/// Reduces one chunk of all contributions, from the left in rank order, and writes it to every
/// destination. Returns whether an integer was divided by zero.
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
    let Some((left, rest)) = contributions.split_first() else { return Ok(false) };
    if rest.iter().skip(1).any(|later| *later == first) {
        // The first destination is itself a contribution that is still to be read.
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
            })??;
        }
        memory.write(at(first), &accumulator)?;
    } else if rest.is_empty() {
        memory.copy(at(*left), at(first), length)?;
    } else {
        // The first destination accumulates. It may be the left operand, which is read in the same
        // step, and is no later operand (checked above).
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
