//! Barrier: messages without bytes.

use super::{allgather, allreduce, bcast, ceil_log2, gather};
use crate::parameters::Parameters;

/// Dissemination: ⌈log₂ P⌉ × exchange(0).
///
/// Hensgen, Finkel, Manber: "Two Algorithms for Barrier Synchronization", International Journal of
/// Parallel Programming 17(1), 1988.
pub fn dissemination(network: &Parameters, ranks: u32) -> f64 {
    f64::from(ceil_log2(ranks)) * network.exchange(0)
}

/// Recursive doubling: ⌊log₂ P⌋ × exchange(0), and 2 × (g(0) + L) more where P is no power of two.
pub fn recursive_doubling(network: &Parameters, ranks: u32) -> f64 {
    allreduce::recursive_doubling(network, 0.0, ranks, 0)
}

/// A binomial tree up and down: ⌈log₂ P⌉ × (g(0) + L) + ⌊log₂ P⌋ × g(0) + ⌈log₂ P⌉ × L.
pub fn tree(network: &Parameters, ranks: u32) -> f64 {
    allgather::gather_bcast(network, ranks, 0)
}

/// All ranks send to one, which sends to all: 2 × ((P−1) × g(0) + L).
pub fn flat(network: &Parameters, ranks: u32) -> f64 {
    gather::flat(network, ranks, 0) + bcast::flat(network, ranks, 0)
}
