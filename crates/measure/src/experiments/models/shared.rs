//! Points of measured curves with their plans.

use super::names::{curve, figure, segments};
use crate::experiments::algorithms::CollectiveCall;
use crate::experiments::sharing::Measured;
use crate::results::{Figure, Part, Role};
use collectives::{Algorithm, Collective};
use models::decision::CallForm;
use tradewind::EngineKind;

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
            let form = CallForm::Blocking;
            let bytes = point.x as u64;
            let shape = CollectiveCall { operation, form, ranks, bytes, root: 0 };
            let plans = shape.plans(&segments());
            let plan = plans
                .into_iter()
                .find(|plan| curve(plan) == series.name && plan.algorithm != Algorithm::Join);
            all.extend(plan.map(|plan| Measured { shape, plan, microseconds: point.median }));
        }
    }
    all
}
