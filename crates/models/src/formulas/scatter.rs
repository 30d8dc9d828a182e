//! Scatter: each of the P ranks gets its m bytes from the root.

use super::{among, blocks, ceil_log2, doublings};
use crate::parameters::Parameters;

/// Flat tree: (P−1) × g(m) + L. 2004, table 2.
pub fn flat(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    among(ranks, |others| others * network.gap(bytes) + network.latency())
}

/// Chain: Σ_{j=1}^{P−1} g(j × m) + (P−1) × L. 2004, table 2. Takes time linear in P to evaluate.
pub fn chain(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    among(ranks, |others| {
        let gaps: f64 = (1..ranks).map(|count| network.gap(blocks(count, bytes))).sum();
        gaps + others * network.latency()
    })
}

/// Pipelined chain: (P−1) × (g(m) + L). 2004, table 2.
pub fn pipelined_chain(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    among(ranks, |others| others * network.arrival(bytes))
}

/// Binomial tree: Σ_{j=0}^{⌈log₂ P⌉−1} g(2^j × m) + ⌈log₂ P⌉ × L. 2004, table 2.
///
/// ```
/// use models::{formulas::scatter, parameters::Parameters};
/// let network = Parameters::linear(10.0, (0.0, 0.0), (0.0, 0.0), (2.0, 0.5))?;
/// // Four, two and one blocks of 8 bytes: (2 + 16) + (2 + 8) + (2 + 4), and three latencies.
/// assert_eq!(scatter::binomial(&network, 8, 8), 34.0 + 30.0);
/// # Ok::<(), models::parameters::ParametersError>(())
/// ```
pub fn binomial(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    let gaps: f64 = doublings(ranks).map(|count| network.gap(blocks(count, bytes))).sum();
    gaps + f64::from(ceil_log2(ranks)) * network.latency()
}
