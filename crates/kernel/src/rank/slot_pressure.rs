//! A rank's reaction to full slots: unexpected messages leave the slots and return later.

use super::Rank;
use super::limits::too_large;
use super::live_runs::LiveRuns;
use super::unexpected::{HAND_OVER_UNEXPECTED, LIMIT_BYTES, UnexpectedMessages};
use network::error::Error;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

impl Rank {
    /// Returns the runs that were started and not fetched. The table's lock is released before that
    /// of the messages is taken: the two are never held together, so their order does not matter.
    /// A run that is over stays so, so an outdated answer drops no message of a live run.
    fn live_runs(&self) -> LiveRuns {
        self.run_table().live(&self.memory)
    }

    /// Locks the messages that this rank has taken out of its slots.
    fn unexpected(&self) -> MutexGuard<'_, UnexpectedMessages> {
        self.unexpected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees slots if messages were refused for lack of them: moves unexpected messages out.
    /// Otherwise puts messages of started runs back.
    pub(super) fn relieve_slots(&self) -> Result<(), Error> {
        let has_refused = self.unexpected().has_refused(&self.memory);
        if has_refused {
            self.take_unexpected()?;
        }
        if !self.put_back()? && !has_refused && self.unexpected().has_returning() {
            // Unexpected messages fill the slots that the returning ones need. Moving them out
            // makes progress: a returning message has a started run, so its receive will consume
            // it.
            self.take_unexpected()?;
            self.put_back()?;
        }
        Ok(())
    }

    fn take_unexpected(&self) -> Result<(), Error> {
        self.run_program(HAND_OVER_UNEXPECTED)?;
        let runs = self.live_runs();
        let mut unexpected = self.unexpected();
        unexpected.take_handed_over(&self.memory, &runs);
        self.has_unexpected.store(!unexpected.is_empty(), Ordering::Relaxed);
        if unexpected.bytes <= LIMIT_BYTES {
            return Ok(());
        }
        let way_out = "start collectives in about the same order on all ranks, or set \
            TRADEWIND_INTERNODE=agent";
        let what = "keeping messages of collectives that this rank has not started";
        Err(too_large(what, unexpected.bytes as u64, LIMIT_BYTES as u64, way_out))
    }

    /// Puts messages of runs that have started in the meantime back into slots. Returns true if
    /// there were any, and free slots for them.
    pub(super) fn put_back(&self) -> Result<bool, Error> {
        if !self.has_unexpected.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let runs = self.live_runs();
        let mut unexpected = self.unexpected();
        let is_put_back = unexpected.put_back(&self.memory, &runs);
        self.has_unexpected.store(!unexpected.is_empty(), Ordering::Relaxed);
        drop(unexpected);
        if is_put_back {
            self.notify_program()?;
        }
        Ok(is_put_back)
    }
}
