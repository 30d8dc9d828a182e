//! The model of cooperative progress, fitted to the simplest algorithms and played for all.

use crate::experiments::algorithms::CollectiveCall;
use collectives::{Algorithm, Collective};
use models::calibration::TimedCall;
use models::costs::Sharing;
use models::simulation::fit::{Sample, fit};
use models::simulation::{Constants, Curve, KNOTS, Program, run};
use models::statistics::percentile;

/// Returns true if the constants are fitted to this algorithm: the simplest of its operation, and
/// one with segments.
pub(super) fn is_fitted(operation: Collective, algorithm: Algorithm) -> bool {
    let segmented = (operation, algorithm) == (Collective::Bcast, Algorithm::SegmentedFlat);
    operation.algorithms().first() == Some(&algorithm) || segmented
}

/// Parameters of all simulations.
pub(super) struct Model {
    pub(super) constants: Constants,
    pub(super) cores: usize,
}

impl Model {
    /// Fitted to these measurements; none without any that it can be fitted to.
    pub(super) fn of<'a>(
        all: impl IntoIterator<Item = &'a TimedCall>,
        cores: usize,
    ) -> Option<Self> {
        let fitted =
            all.into_iter().filter(|one| is_fitted(one.query.operation, one.plan.algorithm));
        let sample = |one: &TimedCall| {
            program(one).map(|program| Sample { program, measured: one.microseconds.max(1e-3) })
        };
        let samples: Vec<Sample> = fitted.filter_map(sample).collect();
        if samples.len() < 2 {
            return None;
        }
        let guess = Constants {
            start: 0.5,
            operation: 0.1,
            crossing: 0.2,
            switch: 1.0,
            copy: Curve(KNOTS.map(|knot| knot as f64 * 1e-4)),
            fetch: Curve(KNOTS.map(|knot| knot as f64 * 5e-5)),
            combine: 1e-4,
        };
        Some(Model { constants: fit(&samples, cores, &guess), cores })
    }

    /// The constants as a machine's file keeps them, with the error against these times.
    pub(super) fn sharing<'a>(
        self,
        ranks: u32,
        cores: u32,
        all: impl IntoIterator<Item = &'a TimedCall>,
    ) -> Sharing {
        let error = |one: &TimedCall| Some((self.predict(one)? / one.microseconds - 1.0).abs());
        let mut errors: Vec<f64> = all.into_iter().filter_map(error).collect();
        errors.sort_by(f64::total_cmp);
        Sharing { ranks, cores, constants: self.constants, error: percentile(&errors, 0.75) }
    }

    /// Predicted time of a plan, in microseconds.
    pub(super) fn predict(&self, one: &TimedCall) -> Option<f64> {
        program(one).map(|program| run(&program, self.cores, &self.constants).microseconds)
    }
}

pub(super) fn program(one: &TimedCall) -> Option<Program> {
    CollectiveCall::from(one.query).program(&one.plan).ok()
}
