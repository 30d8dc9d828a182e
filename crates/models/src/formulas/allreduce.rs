//! Allreduce: each of the P ranks gets the m bytes of each combined, at `combine` microseconds a
//! byte.

use super::halving::{halving, part};
use super::{alltoall, among, bcast, ceil_log2, core, floor_log2, reduce};
use crate::parameters::Parameters;

/// Recursive doubling: log₂ P × (exchange(m) + c×m).
///
/// If P is not a power of two, ranks beyond the largest power below P first send their contribution
/// to a partner and finally receive the result from it: 2 × (g(m) + L) + c×m more.
///
/// Thakur, Rabenseifner, Gropp: "Optimization of Collective Communication Operations in MPICH",
/// International Journal of High Performance Computing Applications 19(1), 2005.
pub fn recursive_doubling(network: &Parameters, combine: f64, ranks: u32, bytes: u64) -> f64 {
    let combining = combine * bytes as f64;
    let rounds = f64::from(floor_log2(ranks)) * (network.exchange(bytes) + combining);
    let folding = 2.0 * network.arrival(bytes) + combining;
    if core(ranks).1 { rounds + folding } else { rounds }
}

/// Dissemination: ⌈log₂ P⌉ × exchange(m), and c×m for each round and each further binary digit 1 of
/// P−1.
///
/// Bruck, Ho: "Efficient Global Combine Operations in Multi-Port Message-Passing Systems", Parallel
/// Processing Letters 3(4), 1993.
pub fn dissemination(network: &Parameters, combine: f64, ranks: u32, bytes: u64) -> f64 {
    let rounds = ceil_log2(ranks);
    let further_digits = ranks.saturating_sub(1).count_ones().saturating_sub(1);
    let combining = combine * bytes as f64;
    f64::from(rounds) * network.exchange(bytes) + f64::from(rounds + further_digits) * combining
}

/// Every rank sends its contribution to every other one, and combines all: as
/// [`alltoall::one_step`], and (P−1) × c×m more, because the processor that receives also combines.
pub fn rotated_direct(
    network: &Parameters,
    (combine, contention): (f64, f64),
    ranks: u32,
    bytes: u64,
) -> f64 {
    let combining = among(ranks, |others| others * combine * bytes as f64);
    alltoall::one_step(network, contention, ranks, bytes) + combining
}

/// Ring: parts of b = ⌈m/P⌉ bytes are combined on one way round and handed out on another:
/// (P−1) × (2 × exchange(b) + c×b).
pub fn ring(network: &Parameters, combine: f64, ranks: u32, bytes: u64) -> f64 {
    let part = bytes.div_ceil(u64::from(ranks.max(1)));
    among(ranks, |others| others * (2.0 * network.exchange(part) + combine * part as f64))
}

/// Rabenseifner: Σ_{j=1}^{log₂ P} (2 × exchange(m/2^j) + c×m/2^j): the halves of the halves are
/// combined, and come back.
///
/// If P is not a power of two, ranks beyond the largest power below P first send their contribution
/// to a partner and finally receive the result from it: 2 × (g(m) + L) + c×m more. Source as of
/// [`recursive_doubling`].
pub fn rabenseifner(network: &Parameters, combine: f64, ranks: u32, bytes: u64) -> f64 {
    let (core, over) = core(ranks);
    let back: f64 = (1..=floor_log2(core)).map(|round| network.exchange(part(bytes, round))).sum();
    let result = if over { network.arrival(bytes) } else { 0.0 };
    halving(network, combine, ranks, bytes) + back + result
}

/// A binomial reduction, then a binomial broadcast.
pub fn reduce_bcast(network: &Parameters, combine: f64, ranks: u32, bytes: u64) -> f64 {
    reduce::binomial(network, combine, ranks, bytes) + bcast::binomial(network, ranks, bytes)
}
