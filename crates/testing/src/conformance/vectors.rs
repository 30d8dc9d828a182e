//! Programs written by hand, with the bytes they must give.
//!
//! Every vector runs several rounds with other bytes in each, so that what is left over from an
//! earlier round shows.

mod arithmetic;
mod blocks;
mod edges;
mod faults;
mod joins;
mod messages;
mod wildcards;

use crate::conformance::engine::{Round, RoundOutcome};
use crate::conformance::vector::{Expected, Vector};
use goal::graph::{Block, Graph, Vertex};

/// All of them.
pub fn all() -> Vec<Vector> {
    let groups = [
        arithmetic::vectors(),
        blocks::vectors(),
        messages::vectors(),
        edges::vectors(),
        wildcards::vectors(),
        joins::vectors(),
        faults::vectors(),
    ];
    groups.into_iter().flatten().collect()
}

/// How many rounds a vector runs.
const ROUNDS: u64 = 3;

/// What output buffers hold before a run.
const UNWRITTEN: u8 = 0xee;

/// An output buffer before a run.
fn blank(length: usize) -> Vec<u8> {
    vec![UNWRITTEN; length]
}

/// Bytes that differ from one seed to another and from one place to another.
fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(step).collect()
}

/// The empty graphs of so many ranks.
fn world(ranks: u32) -> Vec<Graph> {
    (0..ranks).map(|rank| Graph::new(rank, ranks)).collect()
}

/// A vector whose bytes are known: `round` gives the buffers of a round before and after the run.
fn exact(
    name: impl Into<String>,
    program: Vec<Graph>,
    round: impl Fn(u64) -> (Round, Round),
) -> Vector {
    let (inputs, expected) = (0..ROUNDS).map(round).unzip();
    Vector { name: name.into(), program, inputs, expected: Expected::Bytes(expected) }
}

/// A vector whose outcome is judged by a check of each round: its number and its buffers.
fn checked(
    name: impl Into<String>,
    program: Vec<Graph>,
    inputs: impl Fn(u64) -> Round,
    check: impl Fn(u64, &Round) -> Result<(), String> + Send + Sync + 'static,
) -> Vector {
    let inputs = (0..ROUNDS).map(inputs).collect();
    let check = move |outcomes: &[RoundOutcome]| {
        (0..).zip(outcomes).try_for_each(|(round, outcome)| {
            check(round, &outcome.buffers).map_err(|text| format!("round {round}: {text}"))
        })
    };
    Vector { name: name.into(), program, inputs, expected: Expected::Checked(Box::new(check)) }
}

/// The little-endian number at the start of a buffer.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Adds edges so that each vertex requires the one before it in the list.
fn chain(graph: &mut Graph, vertices: &[Vertex]) {
    for pair in vertices.windows(2) {
        graph.requires(pair[1], pair[0]);
    }
}

/// Cuts a block into parts of equal length.
fn parts(block: Block, count: u64) -> Vec<Block> {
    let length = block.length / count;
    (0..count).map(|index| block.part(index * length, length)).collect()
}
