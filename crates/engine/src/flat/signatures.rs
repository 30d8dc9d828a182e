//! Comparison of the ranks' signatures after a flat collective.

use crate::error::{Error, Outcome};
use crate::flat::executor::FlatExecutor;
use crate::flat::pattern::FlatCollective;
use crate::flat::role::RankSet;
use crate::protocol::arrival;
use crate::signature::{CallKind, Signature};
use shm::sync::Ordering;

impl FlatExecutor {
    /// Returns whether awaited ranks are in another collective than this one.
    #[inline(always)]
    pub(super) fn signatures_differ(&self, run: u64, collective: &FlatCollective) -> bool {
        let mine = arrival::word(run, collective.call.digest24());
        let slot = self.slot(run);
        // Relaxed: ordered by the Acquire loads that found all of them arrived.
        let differs =
            |rank: u32| slot.rank_cells[rank as usize].arrived.load(Ordering::Relaxed) != mine;
        match self.role(collective).compared {
            RankSet::All => (0..self.ranks).any(differs),
            RankSet::One(rank) => differs(rank),
            RankSet::AllBut(rank) => (0..self.ranks).any(|other| other != rank && differs(other)),
            RankSet::First(count) => (0..count).any(|other| other != self.rank && differs(other)),
            RankSet::Sources => {
                collective.blocks.iter().any(|blocks| blocks.source_ranks().any(differs))
            }
        }
    }

    /// Compares the ranks' signatures. Only for a complete run.
    #[inline(always)]
    pub(super) fn check_signatures(
        &self,
        run: u64,
        sequence: u64,
        collective: &FlatCollective,
    ) -> Outcome {
        if !self.signatures_differ(run, collective) {
            return Ok(());
        }
        self.signature_mismatch(run, sequence, collective)
    }

    #[cold]
    fn signature_mismatch(&self, run: u64, sequence: u64, collective: &FlatCollective) -> Outcome {
        let slot = self.slot(run);
        self.state.find_mismatch(sequence, collective.call)?;
        // The journals may have been overwritten; the digests still identify the kinds.
        let kind = |rank: u32| {
            Signature::kind_of(arrival::digest_of(
                slot.rank_cells[rank as usize].arrived.load(Ordering::Relaxed),
            ))
        };
        let calls = (0..self.ranks).map(|rank| match kind(rank) {
            CallKind::None => Signature::new(CallKind::None, 0, 0),
            kind => Signature::new(kind, 0, u64::from(rank == self.rank)),
        });
        Err(Error::Mismatch { sequence, calls: calls.collect() }.into())
    }
}
