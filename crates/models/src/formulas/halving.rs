//! The halving of Rabenseifner's algorithm, with which an allreduce and a reduce begin.

use super::{blocks, core, floor_log2};
use crate::parameters::Parameters;

/// The first half of [`rabenseifner`](super::allreduce::rabenseifner), after which each rank of the power of two has its part of
/// the result.
pub(super) fn halving(network: &Parameters, combine: f64, ranks: u32, bytes: u64) -> f64 {
    let (core, over) = core(ranks);
    let halving =
        |round| network.exchange(part(bytes, round)) + combine * part(bytes, round) as f64;
    let rounds: f64 = (1..=floor_log2(core)).map(halving).sum();
    let folding = network.arrival(bytes) + combine * bytes as f64;
    if over { rounds + folding } else { rounds }
}

/// ⌈m/2^j⌉.
pub(super) fn part(bytes: u64, round: u32) -> u64 {
    bytes.div_ceil(blocks(1u64 << round, 1))
}
