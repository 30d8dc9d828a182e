//! Scan and exscan: each of the P ranks gets the m bytes of the ranks up to its own, or below it,
//! combined at `combine` microseconds a byte.

use super::{ceil_log2, reduce};
use crate::parameters::Parameters;

/// Chain: each rank combines what comes with its own and passes it on: (P−1) × (g(m) + L + c×m).
pub fn chain(network: &Parameters, combine: f64, ranks: u32, bytes: u64) -> f64 {
    reduce::chain(network, combine, ranks, bytes)
}

/// In round j every rank gets what the rank 2^j below has combined so far: ⌈log₂ P⌉ × (exchange(m)
/// + c×m).
///
/// Hillis, Steele: "Data Parallel Algorithms", Communications of the ACM 29(12), 1986.
pub fn recursive_doubling(network: &Parameters, combine: f64, ranks: u32, bytes: u64) -> f64 {
    f64::from(ceil_log2(ranks)) * (network.exchange(bytes) + combine * bytes as f64)
}
