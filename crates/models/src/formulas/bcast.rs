//! Broadcast of the root's m bytes to all P ranks.

use super::{among, ceil_log2, floor_log2, least_degree, scatter, segments};
use crate::parameters::Parameters;
use std::num::{NonZeroU32, NonZeroU64};

/// Flat tree: (P−1) × g(m) + L. 2004, table 1.
///
/// ```
/// use models::{formulas::bcast, parameters::Parameters};
/// let network = Parameters::linear(10.0, (0.0, 0.0), (0.0, 0.0), (2.0, 0.5))?;
/// assert_eq!(bcast::flat(&network, 4, 8), 3.0 * 6.0 + 10.0);
/// # Ok::<(), models::parameters::ParametersError>(())
/// ```
pub fn flat(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    among(ranks, |others| others * network.gap(bytes) + network.latency())
}

/// Flat tree with rendezvous: (P−1) × g(m) + 2 × g(1) + 3 × L. 2004, table 1.
///
/// One request and its answer are seen; the others' are taken to go on behind the messages.
pub fn flat_rendezvous(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    among(ranks, |others| {
        others * network.gap(bytes) + 2.0 * network.gap(1) + 3.0 * network.latency()
    })
}

/// Segmented flat tree: (P−1) × (g(s) × k) + L. 2004, table 1.
pub fn segmented_flat(network: &Parameters, ranks: u32, bytes: u64, segment: NonZeroU64) -> f64 {
    let (size, count) = segments(bytes, segment);
    among(ranks, |others| others * (network.gap(size) * count) + network.latency())
}

/// Chain: (P−1) × (g(m) + L). 2004, table 1.
pub fn chain(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    among(ranks, |others| others * network.arrival(bytes))
}

/// Chain with rendezvous: (P−1) × (g(m) + 2 × g(1) + 3 × L). 2004, table 1.
pub fn chain_rendezvous(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    among(ranks, |others| others * (network.gap(bytes) + rendezvous(network)))
}

/// Segmented chain, or pipeline: (P−1) × (g(s) + L) + g(s) × (k−1). 2004, table 1.
pub fn segmented_chain(network: &Parameters, ranks: u32, bytes: u64, segment: NonZeroU64) -> f64 {
    let (size, count) = segments(bytes, segment);
    among(ranks, |others| others * network.arrival(size) + network.gap(size) * (count - 1.0))
}

/// Binary tree, an upper bound: ⌈log₂ P⌉ × (2 × g(m) + L). 2004, table 1.
pub fn binary(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    f64::from(ceil_log2(ranks)) * (2.0 * network.gap(bytes) + network.latency())
}

/// Binomial tree: ⌊log₂ P⌋ × g(m) + ⌈log₂ P⌉ × L. 2004, table 1.
pub fn binomial(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    f64::from(floor_log2(ranks)) * network.gap(bytes)
        + f64::from(ceil_log2(ranks)) * network.latency()
}

/// Binomial tree with rendezvous: ⌊log₂ P⌋ × g(m) + ⌈log₂ P⌉ × (2 × g(1) + 3 × L). 2004, table 1.
pub fn binomial_rendezvous(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    f64::from(floor_log2(ranks)) * network.gap(bytes)
        + f64::from(ceil_log2(ranks)) * rendezvous(network)
}

/// Segmented binomial tree: ⌊log₂ P⌋ × g(s) × k + ⌈log₂ P⌉ × L. 2004, table 1.
pub fn segmented_binomial(
    network: &Parameters,
    ranks: u32,
    bytes: u64,
    segment: NonZeroU64,
) -> f64 {
    let (size, count) = segments(bytes, segment);
    f64::from(floor_log2(ranks)) * network.gap(size) * count
        + f64::from(ceil_log2(ranks)) * network.latency()
}

/// Tree of degree d with ranks numbered level by level, so that rank i passes on to d×i + 1 …
/// d×i + d.
///
/// The c-th child of a rank has the message c × g(m) + L after the rank itself, so a rank has it
/// after digits × g(m) + depth × L, where the digits are the sum of the c's on its way down. These
/// c's are the digits of its number in the numeral system of base d with the digits 1 … d: no
/// number has more digits than P−1, so the last rank is either P−1, or one with a number as long,
/// agrees with it up to some place, has a digit one lower there and only digits d behind it, or the
/// last one of the level above, with digits d throughout.
pub fn dary(network: &Parameters, ranks: u32, bytes: u64, degree: NonZeroU32) -> f64 {
    if degree == NonZeroU32::MIN {
        return chain(network, ranks, bytes);
    }
    let gap = network.gap(bytes);
    let latency = network.latency();
    among(ranks, |_| {
        let digits = way_down(ranks - 1, degree);
        let degree = f64::from(degree.get());
        let depth = digits.len() as f64;
        let mut latest = (depth - 1.0) * (degree * gap + latency);
        let mut above = 0.0;
        for (place, digit) in digits.iter().map(|digit| f64::from(*digit)).enumerate() {
            if digit > 1.0 {
                let behind = depth - 1.0 - place as f64;
                latest =
                    latest.max((above + digit - 1.0 + behind * degree) * gap + depth * latency);
            }
            above += digit;
        }
        latest.max(above * gap + depth * latency)
    })
}

/// The degree for which [`dary`] is fastest, of 1, a chain, to 256 and P−1, a flat tree; of equals
/// the lowest.
///
/// Kielmann, Bal, Gorlatch, Verstoep, Hofman: "Network Performance-aware Collective Communication
/// for Clustered Wide Area Systems", Parallel Computing 27(11), 2001, take the tree's shape from
/// the parameters in this way.
pub fn best_degree(network: &Parameters, ranks: u32, bytes: u64) -> NonZeroU32 {
    least_degree(ranks, |degree| dary(network, ranks, bytes, degree))
}

/// The root scatters P parts of b = ⌈m/P⌉ bytes down a binomial tree, and the parts go round a
/// ring: Σ_{j=0}^{⌈log₂ P⌉−1} g(2^j × b) + ⌈log₂ P⌉ × L + (P−1) × exchange(b).
///
/// Barnett, Payne, van de Geijn, Watts: "Broadcasting on Meshes with Wormhole Routing", Journal of
/// Parallel and Distributed Computing 35(2), 1996. The first sum is 2004, table 2; each round of
/// the ring is one exchange.
pub fn scatter_allgather(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    let part = bytes.div_ceil(u64::from(ranks.max(1)));
    scatter::binomial(network, ranks, part) + super::ring::ring(network, ranks, part)
}

/// Two binary trees over the other ranks, each a pipeline for one half of the message:
/// (⌊log₂(P−1)⌋ + 1) × (2 × g(s) + L) + (k−1) × 2 × g(s), where k segments are one half.
///
/// Sanders, Speck, Träff: "Two-tree Algorithms for Full Bandwidth Broadcast, Reduction and Scan",
/// Parallel Computing 35(12), 2009. A rank is inner in one tree at most, where it sends each
/// segment to two children, so that a segment follows the other after 2 × g(s). The root serves the
/// two trees in turn, at the same rate. The first segment comes down a level within 2 × g(s) + L,
/// and from the root to the trees' roots is one more level.
pub fn two_tree(network: &Parameters, ranks: u32, bytes: u64, segment: NonZeroU64) -> f64 {
    let (size, count) = segments(bytes.div_ceil(2), segment);
    let period = 2.0 * network.gap(size);
    among(ranks, |_| {
        let levels = f64::from(floor_log2(ranks - 1) + 1);
        levels * (period + network.latency()) + (count - 1.0) * period
    })
}

/// A request, its answer, and the latency of the message itself: 2 × g(1) + 3 × L.
fn rendezvous(network: &Parameters) -> f64 {
    2.0 * network.gap(1) + 3.0 * network.latency()
}

/// Which child to go to at each level to come from the root to this number; the degree is at least
/// 2.
fn way_down(mut number: u32, degree: NonZeroU32) -> Vec<u32> {
    let mut digits = Vec::new();
    while number > 0 {
        digits.push((number - 1) % degree + 1);
        number = (number - 1) / degree;
    }
    digits.reverse();
    digits
}
