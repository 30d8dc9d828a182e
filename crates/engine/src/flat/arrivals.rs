//! Arrivals at a flat collective: publishing this rank's, and waiting for those of other ranks.

use crate::error::Outcome;
use crate::flat::chunks;
use crate::flat::executor::FlatExecutor;
use crate::flat::pattern::{ContributionPlacement, FlatCollective};
use crate::flat::role::{RankSet, ReducedBy};
use crate::protocol::arrival;
use crate::state::RankCell;
use shm::futex;
use shm::memory::Purpose;
use shm::prefetch::{demote, prefetch};
use shm::sync::{Ordering, fence};

/// Number of slots to prefetch ahead for reading: a line transfer between cores takes about as long
/// as two back-to-back small collectives.
const AHEAD: u64 = 2;

/// As [`AHEAD`], for writing, on a rank that waits for none. Far enough that no rank polls the slot
/// yet or prefetches it for reading.
const AHEAD_TO_WRITE: u64 = 4;

impl FlatExecutor {
    /// Arrives at the collective. The last rank to arrive begins the chunked work, if there is any.
    #[inline(always)]
    pub(super) fn arrive(&self, run: u64, collective: &FlatCollective) -> Outcome {
        let slot = self.slot(run);
        let role = self.role(collective);
        // The completion word stands still in runs without chunked work. Laps are compared by the
        // sign of their difference, so the word must not fall behind by half of their range.
        if self.rank == 0 && role.reduced_by == ReducedBy::Reader {
            slot.work.pass(Self::lap(run));
        }
        if !role.awaited {
            // No rank polls this word: a store would only move the line.
            if Self::lap(run).is_multiple_of(chunks::REFRESH_LAPS) {
                // The sign of the difference distinguishes words, so a word that is never written
                // would at some point appear to be new.
                let word = arrival::word(run, collective.call.digest24());
                arrival::arrive(&slot.rank_cells[self.rank as usize].arrived, word);
            }
            return Ok(());
        }
        arrival::arrive(
            &slot.rank_cells[self.rank as usize].arrived,
            arrival::word(run, collective.call.digest24()),
        );
        if role.reduced_by == ReducedBy::Chunks {
            // If two ranks arrive last at the same time, at least one of them sees the other's
            // arrival and begins the work.
            fence(Ordering::SeqCst);
            self.help(run, collective)?;
        }
        if arrival::must_wake(&self.sleepers.word, || self.have_arrived(run, role.wakes_after)) {
            // A rank that is killed before this call leaves the sleepers to their next liveness
            // check.
            futex::wake_all(&self.sleepers.word);
        }
        Ok(())
    }

    /// Returns the bytes of a cell from its arrival word to the end of the contribution behind it.
    #[inline(always)]
    fn arrival_bytes(&self, collective: &FlatCollective) -> usize {
        let contribution = match self.placement(collective) {
            ContributionPlacement::Inline => collective.bytes,
            _ => 0,
        };
        size_of::<u64>() + contribution as usize
    }

    /// Moves this rank's arrival to the cache that all share. For nonblocking calls: other
    /// ranks compute before they read it, so the lines have time to move. Readers then get them
    /// faster than from this rank's cache.
    #[inline(always)]
    pub(crate) fn demote_arrival(&self, run: u64, collective: &FlatCollective) {
        // Where only a root is awaited, its start would lose as much time as the other ranks gain.
        if self.role(collective).waits_for == RankSet::All {
            let cell = &raw const self.slot(run).rank_cells[self.rank as usize];
            demote(cell.cast(), self.arrival_bytes(collective));
        }
    }

    /// Prefetches lines of later slots. Called when all awaited ranks had already arrived.
    #[inline(always)]
    pub(crate) fn prefetch_next(&self, run: u64, collective: &FlatCollective) {
        let bytes = self.arrival_bytes(collective);
        let prefetch_cell = |run: u64, rank: u32, purpose: Purpose| {
            let cell = &raw const self.slot(run).rank_cells[rank as usize];
            prefetch(cell.cast(), bytes, purpose);
        };
        match self.role(collective).waits_for {
            // If the awaited ranks do not wait for this one, they are ahead, and the contributions
            // of their later calls can be transferred while this call ends.
            RankSet::First(count) => {
                let others = || (0..count).filter(|rank| *rank != self.rank);
                others().for_each(|rank| prefetch_cell(run + AHEAD, rank, Purpose::Read));
                // The first rank of a scan leaves at once. Its next stores would wait for this call's
                // store, which waits for a line in the next rank's cache.
                if collective.is_scan() && others().next().is_none() {
                    prefetch_cell(run + AHEAD_TO_WRITE, self.rank, Purpose::Write);
                }
            }
            // No rank looks at this rank's next cell before it has this rank's arrival at this run,
            // which has just left.
            RankSet::All => prefetch_cell(run + 1, self.rank, Purpose::Write),
            RankSet::One(_) | RankSet::AllBut(_) | RankSet::Sources => {}
        }
    }

    /// Returns whether all ranks that this collective waits for have arrived.
    #[inline(always)]
    pub(crate) fn have_all_arrived(&self, run: u64, collective: &FlatCollective) -> bool {
        match (self.role(collective).waits_for, &collective.blocks) {
            (RankSet::Sources, Some(blocks)) => {
                let rank_cells = &*self.slot(run).rank_cells;
                let arrived = |rank: u32| {
                    rank == self.rank
                        || arrival::has_arrived(&rank_cells[rank as usize].arrived, run)
                };
                blocks.source_ranks().all(arrived)
            }
            (awaited, _) => self.have_arrived(run, awaited),
        }
    }

    #[inline(always)]
    fn have_arrived(&self, run: u64, awaited: RankSet) -> bool {
        let rank_cells = &*self.slot(run).rank_cells;
        let arrived = |rank_cell: &RankCell| arrival::has_arrived(&rank_cell.arrived, run);
        match awaited {
            RankSet::All => {
                // This rank usually has arrived itself, so its own word is tested last.
                let (before, after) = rank_cells.split_at(self.rank as usize + 1);
                after.iter().chain(before).all(arrived)
            }
            RankSet::One(rank) => arrived(&rank_cells[rank as usize]),
            RankSet::AllBut(rank) => {
                let (before, after) = rank_cells.split_at(rank as usize);
                before.iter().chain(&after[1..]).all(arrived)
            }
            // The caller tests the sources.
            RankSet::Sources => true,
            // This rank has started the run, and may be one that does not publish its arrival.
            RankSet::First(count) => (0..count)
                .zip(rank_cells.iter())
                .all(|(rank, rank_cell)| rank == self.rank || arrived(rank_cell)),
        }
    }
}
