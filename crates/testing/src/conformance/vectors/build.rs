//! Construction of vectors, with the data that they have in common.

use crate::conformance::engine::{Round, RoundOutcome};
use crate::conformance::vector::{Expected, Vector};
use goal::graph::{Block, Graph, Vertex};

/// Number of rounds of a vector.
pub(super) const ROUNDS: u64 = 3;

/// Initial value of each byte of an output buffer.
pub(super) const UNWRITTEN: u8 = 0xee;

/// Returns an output buffer in its initial state.
pub(super) fn blank(length: usize) -> Vec<u8> {
    vec![UNWRITTEN; length]
}

/// Returns bytes that depend on seed and position.
pub(super) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(step).collect()
}

/// Returns an empty graph for each of these ranks.
pub(super) fn world(ranks: u32) -> Vec<Graph> {
    (0..ranks).map(|rank| Graph::new(rank, ranks)).collect()
}

/// Returns a vector with fixed results: `round` returns the buffers of a round before and after the
/// run.
pub(super) fn exact(
    name: impl Into<String>,
    program: Vec<Graph>,
    round: impl Fn(u64) -> (Round, Round),
) -> Vector {
    let (inputs, expected) = (0..ROUNDS).map(round).unzip();
    Vector { name: name.into(), program, inputs, expected: Expected::Bytes(expected) }
}

/// Returns a vector with a check of each round, called with the round's number and buffers.
pub(super) fn checked(
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

/// Returns the little-endian number at the start of a buffer.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Adds edges so that each vertex requires the one before it in the list.
pub(super) fn chain(graph: &mut Graph, vertices: &[Vertex]) {
    for pair in vertices.windows(2) {
        graph.requires(pair[1], pair[0]);
    }
}

/// Cuts a block into parts of equal length.
pub(super) fn parts(block: Block, count: u64) -> Vec<Block> {
    let length = block.length / count;
    (0..count).map(|index| block.part(index * length, length)).collect()
}
