//! Reduce-scatter: each of the P ranks gets its block of m bytes, combined from all, at `combine`
//! microseconds a byte. A contribution has P × m bytes.

use super::halving::halving;
use super::{among, blocks, core, reduce, scatter};
use crate::parameters::Parameters;

/// Ring: blocks are combined on their way round: (P−1) × (exchange(m) + c×m).
pub fn ring(network: &Parameters, combine: f64, ranks: u32, bytes: u64) -> f64 {
    among(ranks, |others| others * (network.exchange(bytes) + combine * bytes as f64))
}

/// Pairwise: in each of P−1 rounds every rank gets its block from another one: (P−1) × (exchange(m)
/// + c×m).
pub fn pairwise(network: &Parameters, combine: f64, ranks: u32, bytes: u64) -> f64 {
    ring(network, combine, ranks, bytes)
}

/// Recursive halving: Σ_{j=1}^{log₂ P} (exchange(P×m/2^j) + c×P×m/2^j).
///
/// If P is not a power of two, ranks beyond the largest power below P first send their contribution
/// to a partner and finally receive their block from it: 2 × L + g(P×m) + c×P×m + g(m) more.
pub fn recursive_halving(network: &Parameters, combine: f64, ranks: u32, bytes: u64) -> f64 {
    let block = if core(ranks).1 { network.arrival(bytes) } else { 0.0 };
    halving(network, combine, ranks, blocks(ranks, bytes)) + block
}

/// A binomial reduction of P × m bytes, then a binomial scatter.
pub fn reduce_then_scatter(network: &Parameters, combine: f64, ranks: u32, bytes: u64) -> f64 {
    reduce::binomial(network, combine, ranks, blocks(ranks, bytes))
        + scatter::binomial(network, ranks, bytes)
}
