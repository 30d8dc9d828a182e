//! Candidates of a call: predictions of the models, and the plans that are timed.

use super::grid::{EFFORT, MEASURE_ALL, MODELS_ONLY, UNTIL, segments};
use crate::experiments::algorithms::CollectiveCall;
use crate::harness::{Error, Setting, StepContext, agreement};
use collectives::Choice;
use models::builtin;
use models::decision::Query;
use models::machine_file::Machine;
use models::prediction::{Models, USUALLY_HELD};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Candidates at most.
const MOST: usize = 6;
/// Bounds of the models' error: a fit may look better or worse than it is. Flat collectives of a few
/// kilobytes have two speeds, of which the models may have been fitted to the faster one, so plans
/// that are predicted to take 1.7 times as long are always timed, too.
const ERRORS: [f64; 2] = [0.26, 0.5];
/// The error where it is not known.
const UNKNOWN_ERROR: f64 = 0.3;

/// Extent of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Nothing.
    ModelsOnly,
    /// The models' choice and candidates within their error of the best, until this time.
    Close { until: Option<Duration> },
    /// Every algorithm.
    All,
}

impl Extent {
    pub(super) fn of(setting: &Setting) -> Self {
        match setting.options.get(EFFORT).map(String::as_str) {
            Some(MODELS_ONLY) => Extent::ModelsOnly,
            Some(MEASURE_ALL) => Extent::All,
            _ => {
                let until = setting.options.get(UNTIL).and_then(|until| until.parse().ok());
                Extent::Close { until: until.map(Duration::from_millis) }
            }
        }
    }
}

/// Candidates of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Candidates {
    /// Plans with their predicted times in microseconds: the models' choice, then the fastest first.
    pub(super) predicted: Vec<(Choice, f64)>,
    /// Plans that are measured; none if the models decide.
    pub(super) measured: Vec<Choice>,
}

/// Candidates of a call on one node, the same on all ranks: rank 0 predicts, because simulations
/// take time.
pub(super) fn of(
    here: &StepContext<'_>,
    collective: &CollectiveCall,
    extent: Extent,
) -> Result<Candidates, Error> {
    let every = || collective.plans(&segments());
    on_all_ranks(here, &collective.query(), every, extent)
}

/// Candidates of a call between nodes, the same on all ranks. With [`Extent::All`] rank 0 may add
/// some.
pub(super) fn of_query(
    here: &StepContext<'_>,
    query: &Query,
    extent: Extent,
    more: Vec<Choice>,
) -> Result<Candidates, Error> {
    on_all_ranks(here, query, || more, extent)
}

fn on_all_ranks(
    here: &StepContext<'_>,
    query: &Query,
    every: impl FnOnce() -> Vec<Choice>,
    extent: Extent,
) -> Result<Candidates, Error> {
    let own = (here.world.rank() == 0).then(|| {
        let models = here.directory.and_then(models_of);
        let found = select(models.as_deref(), query, every, extent);
        (found.predicted, found.measured)
    });
    let (predicted, measured) = agreement::of_first(here.world, own.as_ref())?;
    Ok(Candidates { predicted, measured })
}

/// The models of a table between nodes.
pub(super) fn of_table(machine: &Machine) -> Models {
    Models::of(machine).with_connected_ranks(USUALLY_HELD).beside(builtin::models())
}

/// The models of a directory's machine, read once in a process for each version of its file.
pub(super) fn models_of(directory: &Path) -> Option<Arc<Models>> {
    type Known = BTreeMap<PathBuf, (SystemTime, Arc<Models>)>;
    static KNOWN: Mutex<Known> = Mutex::new(BTreeMap::new());
    let path = directory.join("machine.json");
    let written = path.metadata().and_then(|file| file.modified()).ok()?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((version, models)) = known.get(directory)
        && *version == written
    {
        return Some(Arc::clone(models));
    }
    let models = Arc::new(of_table(&Machine::read(&path).ok()?));
    known.insert(directory.to_owned(), (written, Arc::clone(&models)));
    Some(models)
}

fn select(
    models: Option<&Models>,
    query: &Query,
    every: impl FnOnce() -> Vec<Choice>,
    extent: Extent,
) -> Candidates {
    let all = models.map(|models| models.candidates(query)).unwrap_or_default();
    let mut predicted: Vec<(Choice, f64)> = Vec::new();
    for one in all {
        // The same plan on a slower engine is no other candidate of a job.
        if !predicted.iter().any(|(plan, _)| *plan == one.plan) {
            predicted.push((one.plan, one.microseconds));
        }
    }
    let least = predicted.first().map(|(_, time)| *time);
    if let Some(chosen) = models.and_then(|models| models.choose(query))
        && let Some(at) = predicted.iter().position(|(plan, _)| *plan == chosen.plan)
    {
        predicted[..=at].rotate_right(1);
    }
    let measured = match (extent, least) {
        (Extent::ModelsOnly, _) => Vec::new(),
        (Extent::Close { until: Some(until) }, _) if now() >= until => Vec::new(),
        (Extent::All, _) | (_, None) => {
            let mut plans = every();
            for (plan, _) in &predicted {
                if !plans.contains(plan) {
                    plans.push(*plan);
                }
            }
            plans
        }
        (Extent::Close { .. }, Some(least)) => {
            let error = models.and_then(|models| models.error(query)).unwrap_or(UNKNOWN_ERROR);
            let error = error.clamp(ERRORS[0], ERRORS[1]);
            let most = least * (1.0 + error) / (1.0 - error);
            // The models' choice, too: between nodes it may be slower by more than their error.
            let (choice, others) = predicted.split_at(1);
            let close = others.iter().filter(|(_, time)| *time <= most);
            choice.iter().chain(close).map(|(plan, _)| *plan).take(MOST).collect()
        }
    };
    // One candidate leaves nothing to decide.
    let measured = if measured.len() > 1 { measured } else { Vec::new() };
    Candidates { predicted, measured }
}

/// Time since the epoch.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use collectives::{Algorithm, Collective};
    use models::costs::{FlatCosts, FlatPoint};
    use models::machine::{Fingerprint, PairClass};
    use models::machine_file::Engine;
    use models::parameters::Parameters;
    use tradewind::CallForm;

    #[test]
    fn the_clock_decides_where_the_models_do_not() {
        let mut machine = Machine::new(Fingerprint::default());
        let network =
            Parameters::linear(1.0, (0.25, 0.0), (0.25, 0.0), (0.5, 0.001)).expect("valid");
        machine.engine_mut(Engine::Peers).classes.insert(PairClass::SameSocket, network);
        let flat = |microseconds| {
            FlatCosts::new(vec![FlatPoint { ranks: 2, bytes: 8, microseconds }]).expect("a time")
        };
        let form = CallForm::Blocking;
        let call =
            CollectiveCall { operation: Collective::Bcast, form, ranks: 2, bytes: 8, root: 0 };
        let mut of = |microseconds, extent| {
            let costs = [(Collective::Bcast, flat(microseconds))].into();
            machine.flat.insert(form, costs);
            select(Some(&Models::of(&machine)), &call.query(), || call.plans(&segments()), extent)
        };
        let close = Extent::Close { until: None };
        let sure = of(0.1, close);
        assert_eq!((sure.predicted[0].0.algorithm, sure.measured.len()), (Algorithm::Join, 0));
        let unsure = of(1.4, close);
        assert!(unsure.measured.len() > 1 && unsure.measured.len() <= MOST, "{unsure:?}");
        let over = Extent::Close { until: Some(Duration::ZERO) };
        assert!(of(1.4, over).measured.is_empty());
        assert!(of(1.4, Extent::ModelsOnly).measured.is_empty());
        assert!(of(0.1, Extent::All).measured.len() > MOST);
        assert!(
            select(None, &call.query(), || call.plans(&segments()), close).measured.len() > 1,
            "there are no models"
        );
    }
}
