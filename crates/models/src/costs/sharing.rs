//! Graphs among ranks of one node under cooperative progress, predicted by
//! [simulation](crate::simulation).

use crate::simulation::{Constants, linked, run};
use collectives::{Choice, Collective};
use serde::{Deserialize, Serialize};

/// Largest number of ranks that is simulated. Beyond it the formulas of pLogP predict.
const MOST_RANKS: u32 = 32;
/// Most segments of a message that is simulated.
const MOST_SEGMENTS: u64 = 1024;

/// Constants of the simulation for one number of ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sharing {
    /// The number of ranks among which the constants were fitted.
    pub ranks: u32,
    /// Number of cores of the machine that ranks may use.
    pub cores: u32,
    /// The constants.
    pub constants: Constants,
    /// Relative error of the fit: three quarters of the fitted times are nearer.
    pub error: f64,
}

impl Sharing {
    /// Constants for a number of ranks: those of the nearest number, by ratio, of which the ranks
    /// share cores too, or have one each too; of any number, if there are none.
    pub fn nearest(all: &[Sharing], ranks: u32) -> Option<&Sharing> {
        let apart = |one: &&Sharing| {
            let low = one.ranks.min(ranks).max(1);
            let high = one.ranks.max(ranks).max(1);
            u64::from(high) * 1_000_000 / u64::from(low)
        };
        let is_alike = |one: &&Sharing| (one.ranks <= one.cores) == (ranks <= one.cores);
        all.iter().filter(is_alike).min_by_key(apart).or_else(|| all.iter().min_by_key(apart))
    }

    /// Returns `true` if the error says something about calls among this number of ranks: if at least
    /// half and at most twice as many were measured, with the same load of the cores, and more times
    /// than a fit can meet exactly.
    pub(crate) fn has_error_of(&self, ranks: u32) -> bool {
        let is_near =
            self.ranks <= ranks.saturating_mul(2) && ranks <= self.ranks.saturating_mul(2);
        let is_alike = (self.ranks <= self.cores) == (ranks <= self.cores);
        is_near && is_alike && self.error > 0.0
    }

    /// Time of a plan, in microseconds; `None` if the plan is none for this call, or too large to
    /// be simulated.
    pub fn predict(
        &self,
        operation: Collective,
        choice: &Choice,
        ranks: u32,
        bytes: u64,
    ) -> Option<f64> {
        let segments = choice.segment_bytes.map_or(1, |segment| bytes.div_ceil(segment.get()));
        if ranks > MOST_RANKS || segments > MOST_SEGMENTS {
            return None;
        }
        let program = linked::program(&linked::call(operation, ranks, bytes), choice).ok()?;
        let cores = self.cores.min(ranks) as usize;
        Some(run(&program, cores, &self.constants).microseconds)
    }

    /// The first constant that cannot be.
    pub(crate) fn check(&self) -> Result<(), (&'static str, f64)> {
        let Constants { start, operation, crossing, switch, combine, copy, fetch } =
            &self.constants;
        let single = [
            ("start", *start),
            ("operation", *operation),
            ("crossing", *crossing),
            ("switch", *switch),
            ("combine", *combine),
            ("error", self.error),
        ];
        let curves = [("copy", copy), ("fetch", fetch)];
        let points =
            curves.into_iter().flat_map(|(name, curve)| curve.0.map(|value| (name, value)));
        match single.into_iter().chain(points).find(|(_, value)| !(0.0..1e9).contains(value)) {
            Some(wrong) => Err(wrong),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::Curve;

    #[test]
    fn ranks_that_share_cores_are_compared_with_such_ranks() {
        let constants = Constants {
            start: 1.0,
            operation: 0.1,
            crossing: 0.1,
            switch: 1.0,
            copy: Curve::default(),
            fetch: Curve::default(),
            combine: 0.0,
        };
        let of = |ranks| Sharing { ranks, cores: 4, constants: constants.clone(), error: 0.0 };
        let nearest = |all: &[Sharing], ranks| Sharing::nearest(all, ranks).map(|one| one.ranks);
        let all = [of(2), of(4), of(16)];
        assert_eq!([3, 4, 5, 64].map(|ranks| nearest(&all, ranks)), [4, 4, 16, 16].map(Some));
        assert_eq!(nearest(&all[..2], 8), Some(4), "there is nothing better");
        assert_eq!(nearest(&[], 8), None);
    }
}
