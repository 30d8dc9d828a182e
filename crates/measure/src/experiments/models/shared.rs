//! The model of sharing, fitted to the simplest algorithms and played for all.

use super::names::{curve, figure, segments};
use crate::experiments::algorithms::CollectiveCall;
use crate::results::{Figure, Part, Role};
use collectives::{Algorithm, Choice, Collective};
use models::simulation::fit::{Sample, fit};
use models::simulation::{Constants, Curve, KNOTS, Program, run};
use tradewind::EngineKind;

/// A point of a measured curve, with the plan that it is of.
pub(super) struct Measured {
    pub(super) shape: CollectiveCall,
    pub(super) plan: Choice,
    pub(super) microseconds: f64,
}

/// All points of one number of ranks under an engine, without joins.
pub(super) fn measured(part: &Part, ranks: u32, engine: EngineKind) -> Vec<Measured> {
    let mut all = Vec::new();
    for operation in Collective::ALL {
        let Some(figure) = part.figure(&figure(*operation, ranks, engine)) else { continue };
        all.extend(of_figure(figure, *operation, ranks));
    }
    all
}

fn of_figure(figure: &Figure, operation: Collective, ranks: u32) -> Vec<Measured> {
    let mut all = Vec::new();
    for series in figure.series.iter().filter(|series| series.role == Role::Measured) {
        for point in &series.points {
            let shape = CollectiveCall { operation, ranks, bytes: point.x as u64, root: 0 };
            let plans = shape.plans(&segments());
            let plan = plans
                .into_iter()
                .find(|plan| curve(plan) == series.name && plan.algorithm != Algorithm::Join);
            all.extend(plan.map(|plan| Measured { shape, plan, microseconds: point.median }));
        }
    }
    all
}

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
        all: impl IntoIterator<Item = &'a Measured>,
        cores: usize,
    ) -> Option<Self> {
        let fitted =
            all.into_iter().filter(|one| is_fitted(one.shape.operation, one.plan.algorithm));
        let sample = |one: &Measured| {
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

    /// Predicted time of a plan, in microseconds.
    pub(super) fn predict(&self, one: &Measured) -> Option<f64> {
        program(one).map(|program| run(&program, self.cores, &self.constants).microseconds)
    }
}

pub(super) fn program(one: &Measured) -> Option<Program> {
    one.shape.program(&one.plan, goal::limits::EAGER_ON_NODE).ok()
}
