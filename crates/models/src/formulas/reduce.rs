//! Reduce: the root gets the m bytes of each of the P ranks combined.
//!
//! Trees are those of a broadcast with time running backwards, and where messages meet they are
//! combined at `combine` microseconds a byte.

use super::halving::halving;
use super::{among, ceil_log2, gather, least_degree, segments};
use crate::parameters::Parameters;
use std::num::{NonZeroU32, NonZeroU64};

/// Flat tree: messages come a gap apart and each is combined while the next one is under way;
/// whichever is slower, the network or the processor, determines the rate: L + g(m) + c×m + (P−2) ×
/// max(g(m), or(m) + c×m).
pub fn flat(network: &Parameters, combine: f64, ranks: u32, bytes: u64) -> f64 {
    let gap = network.gap(bytes);
    let combining = combine * bytes as f64;
    let period = gap.max(network.receive_overhead(bytes) + combining);
    among(ranks, |others| network.latency() + gap + combining + (others - 1.0) * period)
}

/// Chain: (P−1) × (g(m) + L + c×m).
pub fn chain(network: &Parameters, combine: f64, ranks: u32, bytes: u64) -> f64 {
    among(ranks, |others| others * (network.arrival(bytes) + combine * bytes as f64))
}

/// Pipeline: the first segment goes all the way, the others follow at the rate of the network or of
/// a processor that receives, combines and sends each, whichever is slower: (P−1) × (g(s) + L +
/// c×s) + (k−1) × max(g(s), or(s) + c×s + os(s)).
pub fn segmented_chain(
    network: &Parameters,
    combine: f64,
    ranks: u32,
    bytes: u64,
    segment: NonZeroU64,
) -> f64 {
    let (size, count) = segments(bytes, segment);
    let combining = combine * size as f64;
    let busy = network.receive_overhead(size) + combining + network.send_overhead(size);
    among(ranks, |others| {
        others * (network.arrival(size) + combining) + (count - 1.0) * network.gap(size).max(busy)
    })
}

/// Binomial tree: ⌈log₂ P⌉ × (g(m) + L + c×m). The longest way up has a message and a combination
/// in each round.
pub fn binomial(network: &Parameters, combine: f64, ranks: u32, bytes: u64) -> f64 {
    f64::from(ceil_log2(ranks)) * (network.arrival(bytes) + combine * bytes as f64)
}

/// Tree of degree d, an upper bound: h times a flat reduction among d + 1 ranks, where the tree of
/// height h, d at each rank, holds P ranks: the smallest h with Σ_{i=0}^{h} d^i ≥ P (2004,
/// section 3).
pub fn dary(network: &Parameters, combine: f64, ranks: u32, bytes: u64, degree: NonZeroU32) -> f64 {
    if degree == NonZeroU32::MIN {
        return chain(network, combine, ranks, bytes);
    }
    let children = degree.get().min(ranks.saturating_sub(1));
    let (mut height, mut capacity, mut level) = (0u32, 1u64, 1u64);
    while capacity < u64::from(ranks) {
        level *= u64::from(degree.get());
        capacity += level;
        height += 1;
    }
    f64::from(height) * flat(network, combine, children + 1, bytes)
}

/// The degree for which [`dary`] is fastest, of 1 to 256 and P−1; of equals the lowest.
pub fn best_degree(network: &Parameters, combine: f64, ranks: u32, bytes: u64) -> NonZeroU32 {
    least_degree(ranks, |degree| dary(network, combine, ranks, bytes, degree))
}

/// Rabenseifner: the halving of [`allreduce::rabenseifner`](super::allreduce::rabenseifner), then a binomial gather of the parts of
/// ⌈m/P⌉ bytes.
pub fn rabenseifner(network: &Parameters, combine: f64, ranks: u32, bytes: u64) -> f64 {
    let (core, _) = super::core(ranks);
    let part = bytes.div_ceil(u64::from(core));
    halving(network, combine, ranks, bytes) + gather::binomial(network, core, part)
}
