//! Runs that need no thread of their rank.
//!
//! A run that has handed all its messages to the system lacks only what other ranks send to it.
//! Their messages wait in the connections until a thread of the rank waits for the run, or tests
//! it: meanwhile no other rank waits for this one, and a rank that is killed fails none of them.
//! Connections hold a limited number of bytes, so that holds for short messages.

use crate::transport::frame::HEADER_BYTES;
use goal::schedule::{Kind, Schedule};
use std::collections::HashMap;

/// Bytes that a connection holds while neither end has a thread for it: the system begins with 64
/// KiB for what has arrived, and with more for what has not been sent, which holds the headers.
const HELD: u64 = 65 << 10;

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

/// Returns true if so many bytes of all runs under way fit the connections.
pub(super) fn fits(exchanged: u64) -> bool {
    exchanged <= HELD
}

/// Returns true if a run of the schedule needs no thread between its start and the wait for its
/// end. Where that is so on every rank, none waits for another one that computes.
///
/// ```
/// use goal::{compile::compile, graph::{Access, Graph}};
/// use network::direct::needs_no_thread;
///
/// let exchange = |bytes| {
///     let mut graph = Graph::new(0, 2);
///     let input = graph.buffer(Access::Input, bytes);
///     let output = graph.buffer(Access::Output, bytes);
///     graph.send(input, 1, 0);
///     graph.receive(output, 1, 0);
///     compile(&graph).expect("in order")
/// };
/// assert!(needs_no_thread(&exchange(8)));
/// assert!(!needs_no_thread(&exchange(1 << 20)), "connections do not hold so much");
/// ```
pub fn needs_no_thread(schedule: &Schedule) -> bool {
    fits(exchanged(schedule)) && schedule.view().sends_at_start()
}
