//! Allgather: each of the P ranks gets m bytes from each.

use super::{bcast, blocks, core, doublings, gather};
use crate::parameters::Parameters;

pub use super::ring::ring;

/// Recursive doubling: in round j partners exchange the 2^j blocks that they have: Σ_{j=0}^{log₂ P
/// −1} exchange(2^j × m).
///
/// If P is not a power of two, ranks beyond the largest power below P first send their block to a
/// partner and finally receive all blocks from it; messages of the rounds have up to twice the
/// blocks: g(m) + L, the rounds, g(P×m) + L.
pub fn recursive_doubling(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    let (core, over) = core(ranks);
    let share = if over { 2 } else { 1 };
    let most = u64::from(ranks);
    let rounds: f64 = doublings(core)
        .map(|count| network.exchange(blocks((share * count).min(most), bytes)))
        .sum();
    let folding = network.arrival(bytes) + network.arrival(blocks(ranks, bytes));
    if over { rounds + folding } else { rounds }
}

/// Bruck: in round j every rank passes the 2^j blocks that it has, or as many as are still missing,
/// to the rank 2^j before it: Σ_{j=0}^{⌈log₂ P⌉−1} exchange(min(2^j, P − 2^j) × m).
///
/// Bruck, Ho, Kipnis, Upfal, Weathersby: "Efficient Algorithms for All-to-All Communications in
/// Multiport Message-Passing Systems", IEEE Transactions on Parallel and Distributed Systems 8(11),
/// 1997: the concatenation algorithm.
pub fn bruck(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    doublings(ranks)
        .map(|count| network.exchange(blocks(count.min(u64::from(ranks) - count), bytes)))
        .sum()
}

/// A binomial gather of m bytes, then a binomial broadcast of P × m.
pub fn gather_bcast(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    gather::binomial(network, ranks, bytes) + bcast::binomial(network, ranks, blocks(ranks, bytes))
}
