//! What a rank takes from the contributions of a meeting that is complete.

use crate::error::{Error, Outcome};
use crate::meeting::{Meeting, Pattern, Travel, Work};
use crate::ring::Ring;
use crate::work::Places;
use goal::arithmetic::{self, ArithmeticError};
use shm::segment::Offset;
use smallvec::SmallVec;
use std::ops::Range;

/// A rank that reduces by itself goes over all contributions in pieces that stay in its first
/// cache.
const FOLD_BYTES: usize = 8 << 10;

impl Ring {
    /// Takes this rank's result.
    pub(crate) fn fetch(&self, run: u64, meeting: &Meeting, result: &mut [u8]) -> Outcome {
        if let Some(blocks) = &meeting.blocks {
            return self.fetch_parcels(run, meeting, blocks, result);
        }
        let (rank, ranks) = (u64::from(self.rank), u64::from(self.ranks));
        match meeting.pattern {
            Pattern::Barrier => Ok(()),
            Pattern::Broadcast { root } => {
                Ok(self.memory.read(self.contribution(run, meeting, root)?, result)?)
            }
            Pattern::Scatter { root } => {
                let skip = meeting.bytes / ranks * rank;
                Ok(self
                    .memory
                    .read(Offset(self.contribution(run, meeting, root)?.0 + skip), result)?)
            }
            Pattern::Gather | Pattern::GatherTo { .. } => {
                self.fetch_blocks(run, meeting, (meeting.bytes, 0), result)
            }
            Pattern::Exchange => {
                let part = meeting.bytes / ranks;
                self.fetch_blocks(run, meeting, (part, part * rank), result)
            }
            Pattern::Reduce if self.work(meeting) == Work::Claimed => {
                self.fetch_reduced(run, meeting, result)
            }
            Pattern::Reduce | Pattern::ReduceTo { .. } => {
                self.fold(run, meeting, (0..self.ranks, 0), result)
            }
            Pattern::ReduceScatter { at, .. } => {
                self.fold(run, meeting, (0..self.ranks, at), result)
            }
            Pattern::Scan => self.fold(run, meeting, (0..self.rank + 1, 0), result),
            Pattern::Exscan => self.fold(run, meeting, (0..self.rank, 0), result),
            // They always have blocks of their own.
            Pattern::Neighbors => Ok(()),
        }
    }

    /// Where a rank's contribution lies.
    #[inline]
    fn contribution(&self, run: u64, meeting: &Meeting, rank: u32) -> Outcome<Offset> {
        let travel = self.travel(meeting);
        let cell = self.cell(run, travel, rank);
        match travel {
            Travel::Arena => Ok(Places::read(&self.memory, cell)?.kept()),
            _ => Ok(cell),
        }
    }

    /// Takes a block of `part` bytes from every contribution, behind the first `skip` bytes.
    fn fetch_blocks(
        &self,
        run: u64,
        meeting: &Meeting,
        (part, skip): (u64, u64),
        result: &mut [u8],
    ) -> Outcome {
        if part == 0 {
            return Ok(());
        }
        for (rank, piece) in (0..self.ranks).zip(result.chunks_exact_mut(part as usize)) {
            if !(meeting.leaves_own && rank == self.rank) {
                self.memory.read(Offset(self.contribution(run, meeting, rank)?.0 + skip), piece)?;
            }
        }
        Ok(())
    }

    /// Takes what others may have reduced already.
    fn fetch_reduced(&self, run: u64, meeting: &Meeting, result: &mut [u8]) -> Outcome {
        self.claimed_failure(run, meeting)?;
        let place = match self.travel(meeting) {
            Travel::Arena => {
                let all = self.all_places(run)?;
                if Places::owners_reduce(&all) {
                    return self.fold(run, meeting, (0..self.ranks, 0), result);
                }
                Places::first_result(&all)
            }
            travel => self.cell(run, travel, 0),
        };
        Ok(self.memory.read(place, result)?)
    }

    /// Folds the contributions of these ranks from the left, in rank order and behind their first
    /// `skip` bytes, into this rank's own memory.
    fn fold(
        &self,
        run: u64,
        meeting: &Meeting,
        (ranks, skip): (Range<u32>, u64),
        result: &mut [u8],
    ) -> Outcome {
        let Some((operation, data_type)) = meeting.arithmetic else { return Ok(()) };
        let mut places = SmallVec::<[Offset; 8]>::with_capacity(ranks.len());
        for rank in ranks {
            places.push(self.contribution(run, meeting, rank)?);
        }
        let mut failure = None;
        for (index, piece) in result.chunks_mut(FOLD_BYTES).enumerate() {
            let (from, length) = (skip + (index * FOLD_BYTES) as u64, piece.len() as u64);
            let at = |place: &Offset| Offset(place.0 + from);
            let rest = match places.as_slice() {
                [first, second, rest @ ..] => {
                    let applied = self.memory.inspect(at(first), length, |left| {
                        self.memory.inspect(at(second), length, |right| {
                            arithmetic::apply(operation, data_type, left, right, piece)
                        })
                    })??;
                    note(&mut failure, applied);
                    rest
                }
                [only] => {
                    self.memory.read(at(only), piece)?;
                    &[]
                }
                [] => &[],
            };
            for place in rest {
                let applied = self.memory.inspect(at(place), length, |right| {
                    arithmetic::apply_in_place_left(operation, data_type, piece, right)
                })?;
                note(&mut failure, applied);
            }
        }
        match failure {
            None => Ok(()),
            Some(failure) => Err(Error::of_reduction(failure, self.rank).into()),
        }
    }
}

/// Keeps the first failure.
#[inline(always)]
fn note(first: &mut Option<ArithmeticError>, applied: Result<(), ArithmeticError>) {
    if let Err(failure) = applied {
        first.get_or_insert(failure);
    }
}
