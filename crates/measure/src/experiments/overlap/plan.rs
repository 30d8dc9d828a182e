//! The requested case, and the repetitions that follow from it.

use super::collective::Collective;
use crate::harness::Error;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The most repetitions: all their times are kept.
pub const MOST_REPETITIONS: u32 = 1_000_000;
/// The longest computation, in microseconds.
pub const MOST_COMPUTATION_US: f64 = 1e7;

/// The node computes so many times as long as the collective takes alone, so that there is time to
/// finish it in …
const TIMES_ALONE: f64 = 10.0;
/// … but no longer than this where that still is twice the collective. Ranks that share a core
/// compute one after the other, so that each computes for its part of that time: long repetitions
/// would see every turn of other processes …
const ENOUGH_COMPUTATION_US: f64 = 10_000.0;
/// … and at least so long that the ranks' leaving a barrier one after the other does not matter.
const LEAST_COMPUTATION_US: f64 = 20.0;
/// Without a wish, the repetitions of a row take about this long.
const BUDGET_US: f64 = 1e6;
/// Bounds of their number.
const REPETITIONS: std::ops::RangeInclusive<f64> = 5.0..=4000.0;
/// The largest skew, as a share of the computation.
const SKEW: u64 = 10;

/// One row to be measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// The collective.
    pub collective: Collective,
    /// Its size in bytes, as [`Collective`] counts them.
    pub bytes: u64,
    /// Length of the computation, in microseconds; `None`: all ranks of a core together
    /// ten times as long as the collective takes alone, each at least 20 µs.
    pub computation_us: Option<f64>,
    /// Repetitions; `None`: as many as take about a second, between 5 and 4000.
    pub repetitions: Option<u32>,
}

impl Case {
    /// A case that leaves open what can be.
    pub fn new(collective: Collective, bytes: u64) -> Self {
        Case { collective, bytes, computation_us: None, repetitions: None }
    }

    /// Returns true if it can be measured.
    ///
    /// ```
    /// use measure::experiments::overlap::{Case, Collective};
    /// let never = Case { repetitions: Some(0), ..Case::new(Collective::Barrier, 0) };
    /// assert!(never.check().is_err());
    /// ```
    ///
    /// # Errors
    /// [`Error::Bytes`], [`Error::Argument`].
    pub fn check(&self) -> Result<(), Error> {
        self.collective.check_bytes(self.bytes)?;
        if let Some(repetitions) =
            self.repetitions.filter(|number| !(1..=MOST_REPETITIONS).contains(number))
        {
            let expected = "from 1 to 1000000";
            return Err(Error::Argument {
                what: "the number of repetitions",
                found: repetitions.to_string(),
                expected,
            });
        }
        if let Some(time) =
            self.computation_us.filter(|time| !(*time > 0.0 && *time <= MOST_COMPUTATION_US))
        {
            let expected = "more than 0 and at most 10000000 µs";
            return Err(Error::Argument {
                what: "the computation",
                found: format!("{time} µs"),
                expected,
            });
        }
        Ok(())
    }
}

/// The repetitions of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Length of the computation, in microseconds.
    pub computation_us: f64,
    /// A first look at how long the collective takes alone, in microseconds.
    pub alone_us: f64,
    /// Repetitions of each kind.
    pub repetitions: u32,
    /// Steps of the computation.
    pub(super) steps: u64,
}

impl Plan {
    /// By how many steps each repetition's start is held up on this rank: up to a tenth of the
    /// computation. One rank's skews are the same in every run with this seed.
    pub(super) fn skews(&self, seed: u64, rank: u32) -> Vec<u64> {
        let mut random = StdRng::seed_from_u64(seed.wrapping_mul(1 << 32) ^ u64::from(rank));
        (0..self.repetitions).map(|_| random.random_range(0..=self.steps / SKEW)).collect()
    }
}

/// A computation that such a collective could be finished in, by so many ranks on each core.
pub(super) fn computation_for(alone_us: f64, ranks_per_core: u32) -> f64 {
    let of_the_node = (TIMES_ALONE * alone_us).min(ENOUGH_COMPUTATION_US.max(2.0 * alone_us));
    (of_the_node / f64::from(ranks_per_core)).clamp(LEAST_COMPUTATION_US, MOST_COMPUTATION_US)
}

/// Number of repetitions of this length.
pub(super) fn repetitions_within_budget(each_us: f64) -> u32 {
    (BUDGET_US / each_us.max(1e-3)).clamp(*REPETITIONS.start(), *REPETITIONS.end()) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_cannot_be_done_is_named() {
        let usual = Case::new(Collective::Allreduce, 8);
        assert!(usual.check().is_ok());
        for repetitions in [0, MOST_REPETITIONS + 1] {
            let error =
                Case { repetitions: Some(repetitions), ..usual }.check().expect_err("out of range");
            assert!(error.to_string().contains(&repetitions.to_string()), "{error}");
        }
        for time in [0.0, -1.0, f64::NAN, f64::INFINITY, 2e7] {
            let error =
                Case { computation_us: Some(time), ..usual }.check().expect_err("out of range");
            assert!(error.to_string().contains("computation"), "{error}");
        }
    }

    #[test]
    fn every_rank_has_skews_of_its_own_and_has_them_again() {
        let plan = Plan { computation_us: 100.0, alone_us: 1.0, repetitions: 50, steps: 100_000 };
        assert_eq!(plan.skews(7, 1), plan.skews(7, 1));
        assert_ne!(plan.skews(7, 1), plan.skews(7, 2));
        assert_ne!(plan.skews(7, 1), plan.skews(8, 1));
        assert!(plan.skews(7, 1).iter().all(|skew| *skew <= 10_000));
    }

    proptest! {
        #[test]
        fn a_computation_leaves_time_for_the_collective(alone_us in 0.001..1e6, ranks_per_core in 1u32..100) {
            let computation_us = computation_for(alone_us, ranks_per_core);
            prop_assert!(computation_us * f64::from(ranks_per_core) >= 1.999 * alone_us);
            prop_assert!((LEAST_COMPUTATION_US..=MOST_COMPUTATION_US).contains(&computation_us));
        }

        #[test]
        fn repetitions_stay_within_bounds(each_us in proptest::num::f64::ANY) {
            prop_assert!((5..=4000).contains(&repetitions_within_budget(each_us)));
        }
    }
}
