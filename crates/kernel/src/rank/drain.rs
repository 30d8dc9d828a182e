//! Waiting until a rank's runs have sent everything, before the rank leaves its job.
//!
//! The program keeps sent packets until they are acknowledged, and the node service waits for that
//! ([`crate::unacknowledged`]). Only the rank can see two other kinds of messages: sends that the
//! program has not executed, because the window is full or an operation before them is incomplete,
//! and sends of runs that wait for memory.

use super::Rank;
use network::error::Error;
use std::time::{Duration, Instant};

/// First and longest interval between two checks.
const INTERVALS: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(16)];

/// Waits until the program has executed every send of this rank's runs; returns false if the
/// deadline comes first.
pub(super) fn drain(rank: &Rank, deadline: Instant) -> Result<bool, Error> {
    let [mut interval, longest] = INTERVALS;
    loop {
        // Most ranks have no such run and return here, without a system call.
        if !rank.run_table().has_unsent(&rank.memory) {
            return Ok(true);
        }
        rank.advance(rank.run_table())?;
        rank.notify_program()?;
        // Unexpected messages in the slots would hold back those that the runs wait for.
        rank.relieve_slots()?;
        if !rank.run_table().has_unsent(&rank.memory) {
            return Ok(true);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        std::thread::sleep(interval.min(left));
        interval = (2 * interval).min(longest);
    }
}
