//! Runs that need no thread of their rank.
//!
//! A run that has handed all its messages to the system lacks only what other ranks send to it.
//! Their messages wait in the connections until a thread of the rank waits for the run, or tests
//! it: meanwhile no other rank waits for this one, and a rank that is killed fails none of them.
//! Connections hold a limited number of bytes, so that holds for messages up to this length.

use crate::transport::frame::HEADER_BYTES;
use goal::schedule::{Kind, Schedule};
use std::collections::HashMap;

/// Bytes that connections are made to hold, if the system grants that: a message of 1 MiB with the
/// headers of its segments.
pub(super) const WANTED: u64 = (1 << 20) + (64 << 10);

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
