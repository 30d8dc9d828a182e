//! Costs of each algorithm: one function for each formula.
//!
//! "2004, table n" is Barchet-Estefanel, Mounié: "Performance Characterisation of Intra-Cluster
//! Collective Communications", 2004. Every function takes the
//! [`Parameters`](crate::parameters::Parameters), the number of ranks P and the bytes m as
//! [`Collective`](collectives::Collective) defines them, and returns microseconds from the moment
//! at which all ranks start until the last one is done. One rank needs no message and no time.
//!
//! The rules that the formulas follow: a rank sends one message after the other, each [`gap`] after
//! the one before; a message has arrived [`latency`] + [`gap`] after it was sent and can be passed
//! on from then on; messages to one rank arrive a [`gap`] apart. The paper's formulas assume that
//! sending and receiving at once disturb each other not at all; those derived here reckon with the
//! processor that has to do both ([`exchange`]).
//!
//! The tests compare each formula with a simulation of the algorithm under these rules:
//!
//! | operation | algorithm | formula from | against the rules |
//! |---|---|---|---|
//! | bcast | flat | 2004, table 1 | exact |
//! | bcast | flat-rendezvous | 2004, table 1 | exact for 2 ranks, below for more: answers may be awaited while others are served |
//! | bcast | segmented-flat | 2004, table 1 | exact |
//! | bcast | chain, chain-rendezvous | 2004, table 1 | exact |
//! | bcast | segmented-chain | 2004, table 1 | exact while the processor keeps up (os + or ≤ g) |
//! | bcast | binary | 2004, table 1 | upper bound |
//! | bcast | binomial | 2004, table 1 | exact for powers of two; between, not beyond the powers of two around P |
//! | bcast | binomial-rendezvous | 2004, table 1 | exact for powers of two |
//! | bcast | segmented-binomial | 2004, table 1 | exact for powers of two if only whole messages are passed on, an upper bound if segments are |
//! | bcast | d-ary | derived | exact |
//! | bcast | scatter-allgather | derived | never more than a gap a level longer, where messages meet; shorter, because ranks begin their rounds before all have their part |
//! | bcast | two-tree | derived | from a gap shorter to a gap a level longer, where segments of the two trees meet |
//! | scatter, gather | flat, chain, pipelined-chain | 2004, table 2 | exact |
//! | scatter, gather | binomial | 2004, table 2 | exact for powers of two, upper bound otherwise |
//! | alltoall | direct, rotated-direct | 2004, table 3 | the rotated exchange lies between the bounds (γ from 0 to 1) |
//! | barrier, allgather, allreduce | rotated-direct | 2004, table 3 | as the exchange; combinations may overlap with messages |
//! | alltoall | bruck, pairwise, multiphase | derived | exact |
//! | reduce | flat, chain, segmented-chain | derived | exact; segmented-chain from 3 ranks on |
//! | reduce | binomial | derived | exact for powers of two while combining keeps up (or + c×m ≤ g) |
//! | reduce | d-ary | 2004, section 3 | upper bound |
//! | allgather, allreduce, reduce_scatter | ring, pairwise, bruck | derived | exact |
//! | barrier | dissemination | derived | exact |
//! | allreduce | dissemination | derived | exact where combining takes no time, else an upper bound |
//! | barrier, allgather, allreduce, reduce_scatter | recursive-doubling, recursive-halving, rabenseifner | derived | exact for powers of two |
//! | scan, exscan | chain, recursive-doubling | derived | chain exact; the other up to a gap a round longer, and shorter between powers of two |
//! | barrier | flat, tree | derived | as their two parts |
//! | reduce | rabenseifner | derived | as its two parts |
//! | allgather, allreduce, reduce_scatter | gather-bcast, reduce-bcast, reduce-then-scatter | derived | as their two parts |
//!
//! The tables' names for the sizes: m bytes, s bytes a segment, k = ⌈m/s⌉ segments (the last may be
//! shorter and is reckoned as a whole one).
//!
//! [`gap`]: crate::parameters::Parameters::gap
//! [`latency`]: crate::parameters::Parameters::latency
//! [`exchange`]: crate::parameters::Parameters::exchange

pub mod allgather;
pub mod allreduce;
pub mod alltoall;
pub mod barrier;
pub mod bcast;
pub mod gather;
mod halving;
pub mod reduce;
pub mod reduce_scatter;
mod ring;
pub mod scan;
pub mod scatter;

use std::num::{NonZeroU32, NonZeroU64};

/// A cost that one rank does not have; the argument is the number of the others.
fn among(ranks: u32, cost: impl FnOnce(f64) -> f64) -> f64 {
    if ranks < 2 { 0.0 } else { cost(f64::from(ranks - 1)) }
}

/// ⌊log₂ ranks⌋, for at least one rank.
fn floor_log2(ranks: u32) -> u32 {
    ranks.max(1).ilog2()
}

/// ⌈log₂ ranks⌉, for at least one rank.
fn ceil_log2(ranks: u32) -> u32 {
    match ranks {
        ..=1 => 0,
        _ => (ranks - 1).ilog2() + 1,
    }
}

/// 1, 2, 4, … below the number of ranks.
fn doublings(ranks: u32) -> impl Iterator<Item = u64> {
    (0..ceil_log2(ranks)).map(|round| 1 << round)
}

/// This many blocks in one message.
fn blocks(count: impl Into<u64>, bytes: u64) -> u64 {
    count.into().saturating_mul(bytes)
}

/// The size of a segment that is no longer than the message, and the number of segments.
pub(crate) fn segments(bytes: u64, segment: NonZeroU64) -> (u64, f64) {
    let size = segment.get().min(bytes);
    (size, bytes.div_ceil(segment.get()).max(1) as f64)
}

/// The largest power of two that is not above the number of ranks, and whether that leaves ranks
/// over.
fn core(ranks: u32) -> (u32, bool) {
    let core = 1 << floor_log2(ranks);
    (core, core < ranks)
}

/// The degree of a tree for which a cost is least: of 1, a chain, to 256 and P−1, a flat tree; of
/// equals the lowest.
fn least_degree(ranks: u32, cost: impl Fn(NonZeroU32) -> f64) -> NonZeroU32 {
    // The search must not take longer the more ranks there are.
    const HIGHEST: u32 = 256;
    let flat = ranks.saturating_sub(1);
    let mut best = (NonZeroU32::MIN, cost(NonZeroU32::MIN));
    for degree in (2..=flat.min(HIGHEST)).chain([flat]).filter_map(NonZeroU32::new) {
        let cost = cost(degree);
        if cost < best.1 {
            best = (degree, cost);
        }
    }
    best.0
}
