//! Waiting until a rank's runs have sent everything, before the rank leaves its job.
//!
//! The program keeps sent packets until they are acknowledged, and the node service waits for that
//! ([`crate::unacknowledged`]). Only the rank can see two other kinds of messages: sends that the
//! program has not executed, because the window is full or an operation before them is incomplete,
//! and sends of runs that wait for memory.
//!
//! Such a send may wait for a rank that has exited and never started its part, or that waits here as
//! well and will never start it. The program has no view of processes, so another backend reports
//! these [`RankExits`]. A rank announces its own one once it has to wait.

use super::Rank;
use super::run_table::GoneRanks;
use network::backend::{DrainOutcome, RankExits};
use network::error::Error;
use std::time::{Duration, Instant};

/// First and longest interval between two checks.
const INTERVALS: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(16)];
/// Number of checks without progress, at the longest interval, after which a run that waits for
/// exited ranks is undeliverable: half a second. A rank that left in order had executed its sends
/// before, and one that never starts the run sends nothing; lost packets arrive within a few periods of the retransmitter. Checks are counted, not
/// time, so that a thread without a core does not mistake its own delay for theirs.
const CHECKS_AFTER_EXIT: u32 = 32;
/// The same if one of the ranks has failed: the program on its node may still execute what it had
/// started.
const CHECKS_AFTER_FAILURE: u32 = 128;

/// Waits until the program has executed every send of this rank's runs that can be executed.
pub(super) fn drain(
    rank: &Rank,
    deadline: Instant,
    exits: &dyn RankExits,
) -> Result<DrainOutcome, Error> {
    let [mut interval, longest] = INTERVALS;
    let mut gone = GoneRanks::default();
    let mut has_announced = false;
    let mut stuck: Option<(u64, u32)> = None;
    loop {
        // Most ranks have no such run and return here, without a system call.
        if rank.run_table().unsent(&rank.memory, &gone).count == 0 {
            return Ok(DrainOutcome::Drained);
        }
        rank.advance(rank.run_table())?;
        rank.notify_program()?;
        // Unexpected messages in the slots would hold back those that the runs wait for.
        rank.relieve_slots()?;
        let unsent = rank.run_table().unsent(&rank.memory, &gone);
        if unsent.count == 0 {
            return Ok(DrainOutcome::Drained);
        }
        // The states of the operations are not read at one instant, so a run may seem stuck while
        // it advances. It is stuck if its position stays the same in all these checks.
        stuck = unsent.stuck_at.filter(|_| !gone.is_empty()).map(|position| {
            let before = stuck.filter(|(before, _)| *before == position);
            (position, before.map_or(0, |(_, checks)| checks + 1))
        });
        let has_failed = gone.exited.iter().any(|rank| rank.has_failed);
        let enough = if has_failed { CHECKS_AFTER_FAILURE } else { CHECKS_AFTER_EXIT };
        if stuck.is_some_and(|(_, checks)| checks >= enough) {
            return Ok(DrainOutcome::Undeliverable { runs: unsent.count });
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(DrainOutcome::TimedOut);
        }
        std::thread::sleep(interval.min(left));
        interval = (2 * interval).min(longest);
        // A run usually advances within a few milliseconds, without a call of the other backend.
        if interval == longest {
            if !std::mem::replace(&mut has_announced, true) {
                let started = rank.run_table().counts.list();
                exits.announce(&started);
            }
            gone = gone_ranks(rank, exits);
        }
    }
}

/// The ranks that can advance none of this rank's runs, or not a certain one.
fn gone_ranks(rank: &Rank, exits: &dyn RankExits) -> GoneRanks {
    let runs = rank.run_table().live(&rank.memory);
    let never_start = runs
        .under_way()
        .map(|run @ (communicator, sequence)| (run, exits.never_start(communicator, sequence)))
        .filter(|(_, ranks)| !ranks.is_empty());
    GoneRanks { never_start: never_start.collect(), exited: exits.exited() }
}
