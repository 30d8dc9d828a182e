//! Gather: the root gets m bytes from each of the P ranks.
//!
//! Scatter with time running backwards: "once modelling the Scatter we have a good approximation
//! with the Gather model" (2004, section 4). What the root of a scatter sends one gap after the
//! other, the root of a gather receives in that way.

use super::scatter;
use crate::parameters::Parameters;

/// Flat tree: (P−1) × g(m) + L. All send at once; the root receives a gap apart.
pub fn flat(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    scatter::flat(network, ranks, bytes)
}

/// Chain: Σ_{j=1}^{P−1} g(j × m) + (P−1) × L. Each rank adds its block to what it passes on.
pub fn chain(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    scatter::chain(network, ranks, bytes)
}

/// Pipelined chain: (P−1) × (g(m) + L). Each rank sends its own block first, then those that come
/// to it.
pub fn pipelined_chain(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    scatter::pipelined_chain(network, ranks, bytes)
}

/// Binomial tree: Σ_{j=0}^{⌈log₂ P⌉−1} g(2^j × m) + ⌈log₂ P⌉ × L. Each rank passes on its subtree's
/// blocks as one message.
pub fn binomial(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    scatter::binomial(network, ranks, bytes)
}
