//! Runs that need no thread of their rank.
//!
//! A run that has handed all its messages to the system lacks only what other ranks send to it.
//! Their messages wait in the connections until a thread of the rank waits for the run, or tests
//! it: meanwhile no other rank waits for this one. Connections hold a limited number of bytes, so
//! that holds for messages up to this length.
//!
//! A sender without credit requests permission for the shortest message, too, perhaps because of a
//! third rank. So the background thread looks at the connections at intervals while such runs are
//! under way: a rank that waits for an answer waits for one interval, not for this rank's next call.
//! It looks as often once the rank has used matched messages, which need no call of this rank to
//! leave their sender.

use crate::transport::frame::HEADER_BYTES;
use goal::schedule::{Kind, Schedule};
use std::collections::HashMap;

/// Work that must advance without a call of the rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackgroundNeed {
    /// Nothing: no run is under way, or only runs that calls wait for.
    Nothing,
    /// Runs that have sent everything: a look at intervals suffices.
    Looks,
    /// Whatever arrives, or is to be sent.
    Always,
}

/// Bytes that connections are made to hold, if the system grants that: a message of 1 MiB with the
/// headers of its segments.
pub(super) const WANTED: u64 = (1 << 20) + (64 << 10);

/// Bytes in one direction, headers included, up to which a start takes what has arrived.
pub(super) const SHORT: u64 = 65 << 10;

/// Returns the largest number of bytes that a run exchanges with one rank in one direction, headers
/// included.
pub(super) fn exchanged(schedule: &Schedule) -> u64 {
    let mut sums: HashMap<(bool, Option<u32>), u64> = HashMap::new();
    for record in schedule.view().operations() {
        if let kind @ (Kind::Send | Kind::Receive) = record.kind() {
            let sum = sums.entry((kind == Kind::Send, record.peer())).or_default();
            *sum = sum.saturating_add(record.bytes).saturating_add(HEADER_BYTES as u64);
        }
    }
    sums.into_values().max().unwrap_or(0)
}
