//! The ring of an allgather, which is also the second half of a broadcast.

use super::among;
use crate::parameters::Parameters;

/// Ring: in each of P−1 rounds every rank passes on the block that came last: (P−1) × exchange(m).
pub fn ring(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    among(ranks, |others| others * network.exchange(bytes))
}
