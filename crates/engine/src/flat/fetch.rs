//! Fetching a rank's result from the contributions of a complete flat collective.

use crate::error::{Error, Outcome};
use crate::flat::chunks::ContributionLocation;
use crate::flat::executor::FlatExecutor;
use crate::flat::pattern::{ContributionPlacement, FlatCollective, part_bytes};
use crate::flat::role::{ReducedBy, ResultRule};
use goal::arithmetic::{self, ArithmeticError};
use shm::segment::Offset;
use smallvec::SmallVec;
use std::ops::Range;

/// Piece size of a reduction by the reader: the pieces of all contributions stay in its first-level
/// cache.
const FOLD_BYTES: usize = 8 << 10;

impl FlatExecutor {
    /// Fetches this rank's result.
    #[inline(always)]
    pub(crate) fn fetch(
        &self,
        run: u64,
        collective: &FlatCollective,
        result: &mut [u8],
    ) -> Outcome {
        if let Some(blocks) = &collective.blocks {
            return self.fetch_variable(run, collective, blocks, result);
        }
        let role = self.role(collective);
        match role.result {
            ResultRule::Nothing => Ok(()),
            ResultRule::Blocks { first, sources, index } => {
                let part = part_bytes(collective.bytes, role.division);
                let skip = part * u64::from(index);
                if sources > 1 {
                    self.fetch_blocks(run, collective, (part, skip), result)
                } else if collective.leaves_own && first == self.rank {
                    // The only rank of a communicator.
                    Ok(())
                } else {
                    let at = self.contribution(run, collective, first)?;
                    Ok(self.memory.read(Offset(at.0 + skip), result)?)
                }
            }
            ResultRule::Fold { .. } if role.reduced_by == ReducedBy::Chunks => {
                self.fetch_reduced(run, collective, result)
            }
            ResultRule::Fold { ranks, at } => self.fold(run, collective, (0..ranks, at), result),
            // Neighbour collectives always have blocks.
            ResultRule::Edges => Ok(()),
        }
    }

    /// Returns the location of a rank's contribution.
    #[inline(always)]
    fn contribution(&self, run: u64, collective: &FlatCollective, rank: u32) -> Outcome<Offset> {
        let placement = self.placement(collective);
        let cell = self.cell(run, placement, rank);
        match placement {
            ContributionPlacement::Arena => {
                Ok(ContributionLocation::read(&self.memory, cell)?.contribution)
            }
            _ => Ok(cell),
        }
    }

    /// Copies a block of `part` bytes from every contribution, after its first `skip` bytes.
    fn fetch_blocks(
        &self,
        run: u64,
        collective: &FlatCollective,
        (part, skip): (u64, u64),
        result: &mut [u8],
    ) -> Outcome {
        if part == 0 {
            return Ok(());
        }
        for (rank, piece) in (0..self.ranks).zip(result.chunks_exact_mut(part as usize)) {
            if !(collective.leaves_own && rank == self.rank) {
                self.memory
                    .read(Offset(self.contribution(run, collective, rank)?.0 + skip), piece)?;
            }
        }
        Ok(())
    }

    /// Copies a result that has been reduced in chunks.
    fn fetch_reduced(&self, run: u64, collective: &FlatCollective, result: &mut [u8]) -> Outcome {
        self.claimed_failure(run, collective)?;
        let place = match self.placement(collective) {
            ContributionPlacement::Arena => {
                ContributionLocation::first_result(&self.all_locations(run)?)
            }
            placement => self.cell(run, placement, 0),
        };
        Ok(self.memory.read(place, result)?)
    }

    /// Reduces the contributions of these ranks from the left, in rank order and after their first
    /// `skip` bytes, into private memory.
    fn fold(
        &self,
        run: u64,
        collective: &FlatCollective,
        (ranks, skip): (Range<u32>, u64),
        result: &mut [u8],
    ) -> Outcome {
        let Some((operation, data_type)) = collective.arithmetic else { return Ok(()) };
        // The contributions do not change: their memory is free again only after this rank has
        // consumed the run.
        let mut locations = SmallVec::<[Offset; 8]>::with_capacity(ranks.len());
        for rank in ranks {
            locations.push(self.contribution(run, collective, rank)?);
        }
        // Piece by piece over all contributions: the accumulator stays in the first-level cache.
        let mut failure = None;
        for (index, piece) in result.chunks_mut(FOLD_BYTES).enumerate() {
            let from = skip + (index * FOLD_BYTES) as u64;
            let length = piece.len() as u64;
            let at = |place: &Offset| Offset(place.0 + from);
            let rest = match locations.as_slice() {
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
            Some(failure) => Err(Error::of_reduction(failure).into()),
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
