//! A rank that leaves with runs under way.
//!
//! It sends what its runs have left to send, as far as other ranks can still make them advance. A
//! run may wait for ranks that have exited, or that are about to: those make it advance no more, so
//! it does not hold this rank. Two ranks that leave at once, each with a run that the other has
//! never started, both wait until the deadline.

use super::driver::Driver;
use crate::backend::{DrainOutcome, LostRank, RankExits};
use crate::error::Error;
use crate::runs::run_context::RunKey;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two looks, first and last. A run usually advances within a few of the first ones.
const INTERVALS: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(20)];
/// Number of looks in a row after which a run counts as stuck. Reports of exits may overtake
/// messages that the same ranks have sent before.
const LOOKS: u32 = 5;

/// Waits until this rank has nothing left to send.
pub(super) fn drain(
    driver: &Arc<Driver>,
    deadline: Instant,
    exits: &dyn RankExits,
) -> Result<DrainOutcome, Error> {
    let [mut interval, longest] = INTERVALS;
    let mut stuck_looks = 0;
    loop {
        let mut unsent = None;
        if let Some(mut engine) = driver.try_lock() {
            engine.poll()?;
            let runs = engine.unsent();
            // A socket that is closed with unread data resets its connection, and the kernel then
            // discards what it has not sent. So this rank leaves when the kernels of the others
            // have everything.
            if runs.is_empty() && !engine.has_unacknowledged() {
                return Ok(DrainOutcome::Drained);
            }
            unsent = Some(runs);
        }
        if Instant::now() >= deadline {
            return Ok(DrainOutcome::TimedOut);
        }
        std::thread::sleep(interval);
        interval = (2 * interval).min(longest);
        let Some(runs) = unsent.filter(|_| interval == longest) else { continue };
        stuck_looks =
            if are_stuck(&runs, &driver.losses.all(), exits) { stuck_looks + 1 } else { 0 };
        if stuck_looks >= LOOKS {
            return Ok(DrainOutcome::Undeliverable { runs: runs.len() });
        }
    }
}

/// Returns true if there are runs, and each waits for ranks that never make it advance.
fn are_stuck(runs: &[(RunKey, Vec<u32>)], lost: &[LostRank], exits: &dyn RankExits) -> bool {
    let exited = exits.exited();
    let is_gone = |rank: &u32| {
        lost.iter().any(|one| one.rank == *rank) || exited.iter().any(|one| one.rank == *rank)
    };
    let is_stuck = |(key, awaited): &(RunKey, Vec<u32>)| {
        // A rank that has announced its exit from another engine has left this one before.
        let leaving = exits.never_start(key.communicator, key.sequence);
        awaited.iter().all(|rank| is_gone(rank) || leaving.contains(rank))
    };
    !runs.is_empty() && runs.iter().all(is_stuck)
}
