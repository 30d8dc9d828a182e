//! Leaving: a rank's runs go on without it, but only it can see whether they still have something
//! to send.
//!
//! What a run has sent the program keeps until it has arrived, and the node service waits for that
//! ([`crate::unacknowledged`]). A send that the program has not executed yet, because the window is full or
//! an operation before it is not complete, is seen only in the run's frame, and a run that waits
//! for memory is known to nobody but the rank.

use super::Rank;
use network::error::Error;
use std::time::{Duration, Instant};

/// First and longest time between two looks.
const INTERVALS: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(16)];

/// Waits until the program has executed every send of this rank's runs; false when the deadline
/// came first.
pub(super) fn drain(rank: &Rank, deadline: Instant) -> Result<bool, Error> {
    let [mut interval, longest] = INTERVALS;
    loop {
        // A look at the books first: a rank without such a run, as most are, returns at once.
        if !rank.books().has_unsent(&rank.memory) {
            return Ok(true);
        }
        rank.advance(rank.books())?;
        rank.kick()?;
        // Messages that this rank does not want would hold back those that its runs wait for.
        rank.make_room()?;
        if !rank.books().has_unsent(&rank.memory) {
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
