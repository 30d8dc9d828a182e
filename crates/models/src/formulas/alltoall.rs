//! All-to-all: each of the P ranks gets m bytes from each.

use super::{among, blocks};
use crate::parameters::Parameters;
use std::num::NonZeroU32;

/// Between which times a direct exchange lies, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Nothing but the processors is busy.
    pub lower: f64,
    /// Each rank's messages follow each other on one way.
    pub upper: f64,
}

impl Bounds {
    /// Lower + (Upper − Lower) × γ. 2004, section 5.1: the contention ratio γ is a constant of the
    /// network; the paper's had 2/5. Not bounded by 0 and 1: beyond them it says that the network
    /// does better or worse than the bounds.
    pub fn at(self, contention: f64) -> f64 {
        self.lower + (self.upper - self.lower) * contention
    }
}

/// The bounds of the direct exchange, in 2004, table 3: lower (P−1) × os(m) + (P−1) × or(m) + L,
/// upper (P−1) × g(m) + (P−1) × or(m) + L.
///
/// ```
/// use models::{formulas::alltoall, parameters::Parameters};
/// let network = Parameters::linear(10.0, (1.0, 0.0), (2.0, 0.0), (6.0, 0.0))?;
/// let bounds = alltoall::bounds(&network, 4, 100);
/// assert_eq!((bounds.lower, bounds.upper), (19.0, 34.0)); // 3×1 + 3×2 + 10, 3×6 + 3×2 + 10
/// assert_eq!(bounds.at(2.0 / 5.0), 25.0);
/// # Ok::<(), models::parameters::ParametersError>(())
/// ```
pub fn bounds(network: &Parameters, ranks: u32, bytes: u64) -> Bounds {
    let bound = |sending: f64| {
        among(ranks, |others| {
            others * sending + others * network.receive_overhead(bytes) + network.latency()
        })
    };
    Bounds { lower: bound(network.send_overhead(bytes)), upper: bound(network.gap(bytes)) }
}

/// Direct exchange, rotated or not: between its [`bounds`] by the contention ratio, and never less
/// than nothing. 2004, section 5.1.
pub fn direct(network: &Parameters, contention: f64, ranks: u32, bytes: u64) -> f64 {
    bounds(network, ranks, bytes).at(contention).max(0.0)
}

/// Every rank sends the same to every other one: the [`direct`] exchange, but never less than the
/// exchange with one of them. γ is fitted to exchanges among many ranks, and among few may lead
/// below that.
pub fn one_step(network: &Parameters, contention: f64, ranks: u32, bytes: u64) -> f64 {
    let exchange = among(ranks, |_| network.exchange(bytes));
    direct(network, contention, ranks, bytes).max(exchange)
}

/// Pairwise: (P−1) × exchange(m).
pub fn pairwise(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    among(ranks, |others| others * network.exchange(bytes))
}

/// Bruck: in round j each rank passes on the blocks with 2^j in their remaining distance.
/// [`multiphase`] of degree 2.
pub fn bruck(network: &Parameters, ranks: u32, bytes: u64) -> f64 {
    const TWO: NonZeroU32 = NonZeroU32::new(2).expect("not zero");
    multiphase(network, ranks, bytes, TWO)
}

/// Multiphase: in phase j each rank exchanges with the d−1 ranks that are multiples of d^j away,
/// and passes on the blocks with that digit of their remaining distance in base d: Σ over phases j
/// and digits c of exchange(n(j, c) × m), where n(j, c) of the numbers 0 … P−1 have digit c at
/// place j. Degree P is [`pairwise`], degree 2 [`bruck`].
///
/// Bokhari: "Multiphase Complete Exchange on Paragon, SP2 and CS-2", ICASE Report 95-61, 1995; in
/// the form of Bruck et al., 1997, it needs no power of d. Blocks are gathered and scattered by the
/// messages' own lists, so the permutations between phases cost nothing of their own.
pub fn multiphase(network: &Parameters, ranks: u32, bytes: u64, degree: NonZeroU32) -> f64 {
    let ranks = u64::from(ranks);
    let degree = u64::from(degree.get().max(2));
    let mut total = 0.0;
    let mut place = 1;
    while place < ranks {
        for digit in 1..degree.min(ranks.div_ceil(place)) {
            total += network.exchange(blocks(with_digit(ranks, place, degree, digit), bytes));
        }
        place *= degree;
    }
    total
}

/// Returns how many of 0 … limit−1 have this digit at this place.
pub(crate) fn with_digit(limit: u64, place: u64, degree: u64, digit: u64) -> u64 {
    let cycle = place * degree;
    let from = place * digit;
    limit / cycle * place + (limit % cycle).saturating_sub(from).min(place)
}

/// The degree for which [`multiphase`] is fastest, of equals the lowest.
pub fn best_degree(network: &Parameters, ranks: u32, bytes: u64) -> NonZeroU32 {
    let mut best = (NonZeroU32::MIN.saturating_add(1), bruck(network, ranks, bytes));
    // Degrees between √P and P differ in the sizes of two phases only; the powers of two among them
    // are near enough.
    let few = (3..=ranks.isqrt().saturating_add(1).min(64)).filter_map(NonZeroU32::new);
    let many =
        std::iter::successors(NonZeroU32::new(4), |degree| degree.checked_mul(NonZeroU32::new(2)?));
    let whole = NonZeroU32::new(ranks).filter(|ranks| ranks.get() > 2);
    for degree in few.chain(many.take_while(|degree| degree.get() < ranks)).chain(whole) {
        let cost = multiphase(network, ranks, bytes, degree);
        if cost < best.1 {
            best = (degree, cost);
        }
    }
    best.0
}
