//! Plans with what the model of sharing predicts of them.

use crate::experiments::plans::{PlanTimes, plans};
use crate::experiments::sharing::Model;
use crate::rows::{Cores, Row, Run};
use collectives::{Algorithm, Collective};
use models::calibration::TimedCall;
use models::machine_file::Engine;
use std::collections::BTreeMap;

/// A timed plan of a call on an engine, and its predictions.
pub(super) struct Simulated<'r> {
    pub(super) times: PlanTimes<'r>,
    pub(super) row: &'r Row,
    pub(super) engine: Engine,
    /// Microseconds by the model of sharing.
    pub(super) by_sharing: Option<f64>,
}

/// The model of sharing among a number of ranks.
pub(super) struct SharingModel {
    pub(super) ranks: u32,
    pub(super) model: Model,
    /// Fitted without the all-to-all.
    pub(super) without_alltoall: Option<Model>,
}

impl<'r> Simulated<'r> {
    /// The plan, without a simulation; `None` if it was not timed.
    fn of(times: PlanTimes<'r>) -> Option<Self> {
        let row = times.timed?;
        let engine = times.engine?;
        Some(Simulated { times, row, engine, by_sharing: None })
    }

    /// Relative errors by the names of the models; none of a join.
    pub(super) fn errors(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let by_formulas = self.times.predicted.map(Row::median);
        let models = [("pLogP", by_formulas), ("sharing", self.by_sharing)];
        let models = models.into_iter().filter(|_| self.times.plan.algorithm != Algorithm::Join);
        models.filter_map(|(name, time)| Some((name, self.times.error(time?)?)))
    }

    /// The time of a graph; `None` of a join, which has none.
    pub(super) fn graph(&self) -> Option<TimedCall> {
        let PlanTimes { query, plan, .. } = self.times;
        let is_graph = plan.algorithm != Algorithm::Join;
        is_graph.then(|| TimedCall { query, plan, microseconds: self.row.median() })
    }

    pub(super) fn algorithm(&self) -> (Collective, Algorithm) {
        (self.times.query.operation, self.times.plan.algorithm)
    }

    pub(super) fn is_alltoall(&self) -> bool {
        self.times.query.operation == Collective::Alltoall
    }
}

/// The timed plans of a run, and the models of sharing that are fitted to them.
pub(super) fn simulated(run: &Run) -> (Vec<Simulated<'_>>, Vec<SharingModel>) {
    let plans = plans(run, true).into_iter();
    let mut plans: Vec<Simulated<'_>> = plans.filter_map(Simulated::of).collect();
    let models = models_of_sharing(&plans);
    for one in plans.iter_mut().filter(|one| one.engine == Engine::Peers) {
        let model = models.iter().find(|model| model.ranks == one.times.query.ranks);
        one.by_sharing = model.zip(one.graph()).and_then(|(of, graph)| of.model.predict(&graph));
    }
    (plans, models)
}

/// The model of the peers engine for each number of ranks.
fn models_of_sharing(plans: &[Simulated<'_>]) -> Vec<SharingModel> {
    let shared = || plans.iter().filter(|one| one.engine == Engine::Peers);
    let mut cores: BTreeMap<u32, usize> = BTreeMap::new();
    for Simulated { row, .. } in shared() {
        let number = row.cores.as_ref().map_or(row.ranks, Cores::number);
        cores.insert(row.ranks, row.ranks.min(number) as usize);
    }
    let model = |(ranks, cores): (u32, usize)| {
        let of = |has_alltoall: bool| {
            let of_ranks = shared().filter(|one| one.row.ranks == ranks);
            let of_ranks = of_ranks.filter(|one| has_alltoall || !one.is_alltoall());
            let graphs: Vec<TimedCall> = of_ranks.filter_map(Simulated::graph).collect();
            Model::of(&graphs, cores)
        };
        Some(SharingModel { ranks, model: of(true)?, without_alltoall: of(false) })
    };
    cores.into_iter().filter_map(model).collect()
}
