//! Candidates of a call: predictions of the models, and the plans that are timed.

use super::purpose::{Purpose, between_nodes};
use super::table::{FILE, of_table};
use crate::experiments::algorithms::{CollectiveCall, SEGMENTS};
use crate::harness::{Error, Setting, StepContext, agreement};
use crate::rows::{Chooser, Measurements};
use collectives::Choice;
use models::builtin;
use models::decision::rules::{self, MachineClass};
use models::decision::{DecisionTable, Query};
use models::machine_file::{Engine, Machine};
use models::prediction::{Models, Prediction, USUALLY_HELD};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The option with the extent of the measurement.
pub const EFFORT: &str = "measure";
/// Value of [`EFFORT`]: nothing.
pub const MODELS_ONLY: &str = "models-only";
/// Value of [`EFFORT`]: every algorithm.
pub const MEASURE_ALL: &str = "measure-all";
/// The option with the end of the time for candidates, in milliseconds since the epoch.
pub const UNTIL: &str = "until";

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
    pub(super) fn of(purpose: Purpose, setting: &Setting) -> Self {
        match setting.options.get(EFFORT).map(String::as_str) {
            _ if purpose != Purpose::Decision => Extent::All,
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Candidates {
    /// Plans with their predicted times in microseconds: the models' choice, then the fastest first.
    pub(super) predicted: Vec<(Choice, f64)>,
    /// Plans that are measured; none if the models decide.
    pub(super) measured: Vec<Choice>,
    /// Plans that are chosen, on an engine of the job.
    pub(super) chosen: Vec<(Chooser, Choice)>,
}

/// A plan with its engine between nodes.
type EnginePlan = (Option<Engine>, Choice);

/// Candidates of a job.
struct Job {
    /// Calls run in the kernel.
    has_kernel: bool,
    /// Every plan, besides those that the models predict.
    every: Vec<Choice>,
    /// Plans that are timed, unless no plan of the call is.
    more: Vec<Choice>,
}

impl Job {
    fn has(&self, engine: Option<Engine>) -> bool {
        (engine == Some(Engine::Kernel)) == self.has_kernel
    }
}

/// Candidates of a call, the same on all ranks: rank 0 predicts, because simulations take time.
pub(super) fn of(
    here: &StepContext<'_>,
    query: &Query,
    purpose: Purpose,
    extent: Extent,
) -> Result<Candidates, Error> {
    let own = (here.world.rank() == 0).then(|| {
        let models = here.directory.and_then(models_of);
        let call = CollectiveCall::from(*query);
        let is_alone = query.nodes() == 1;
        // Calibration has every plan anyway, and no machine's choices yet. On one node all plans that
        // may be chosen are candidates.
        let choices = match purpose {
            Purpose::Check => choices(here, query, models.as_deref()),
            Purpose::Decision if !is_alone => choices(here, query, models.as_deref()),
            Purpose::Decision | Purpose::Calibration => Vec::new(),
        };
        // A built-in rule may select a plan that cannot be called here.
        let is_called = |plan: &Choice| !is_alone || call.admits(plan);
        let job = Job {
            has_kernel: here.shape.nodes.as_ref().is_some_and(|nodes| nodes.has_kernel()),
            every: if is_alone { call.plans(&SEGMENTS) } else { Vec::new() },
            more: choices.iter().map(|(_, (_, plan))| *plan).filter(is_called).collect(),
        };
        let mut found = select(models.as_deref(), query, &job, extent);
        let others = choices.into_iter().filter(|(_, (engine, _))| job.has(*engine));
        found.chosen.extend(others.filter_map(|(by, (_, plan))| Some((by?, plan))));
        found
    });
    agreement::of_first(here.world, own.as_ref())
}

/// The choices of the directory's table and of the built-in parameters: their segments are those of
/// another size, or of another machine. Between nodes there is a further one, which would be built in
/// with the kernel as an engine, or without it.
fn choices(
    here: &StepContext<'_>,
    query: &Query,
    models: Option<&Models>,
) -> Vec<(Option<Chooser>, EnginePlan)> {
    let table = here.directory.and_then(|place| DecisionTable::read(&place.join(FILE)).ok());
    let range = table.and_then(|table| table.look_up(query).ok().map(|found| *found.range));
    let by_table = range.map(|range| (Some(Chooser::Table), (range.engine, range.plan)));
    if query.nodes() == 1 {
        let class = MachineClass::of(query.ranks, here.shape.shared_cores);
        let built_in = (Some(Chooser::BuiltIn), (None, rules::plan(query, class)));
        return by_table.into_iter().chain([built_in]).collect();
    }
    let is_usual = models.is_none_or(|models| models.has(Engine::Kernel));
    let built_in = [true, false].into_iter().filter_map(|has_kernel| {
        let models = builtin::models().clone().with_connected_ranks(USUALLY_HELD);
        let models = models.only(|engine| has_kernel || engine != Engine::Kernel);
        let by = (has_kernel == is_usual).then_some(Chooser::BuiltIn);
        models.choose(query).map(|one| (by, (one.engine, one.plan)))
    });
    by_table.into_iter().chain(built_in).collect()
}

/// The models of a directory's machine, read once in a process for each version of its file.
fn models_of(directory: &Path) -> Option<Arc<Models>> {
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
    let measured = Measurements::read(directory).unwrap_or_default();
    let runs = between_nodes(&measured, &Purpose::OF_TABLE);
    let models = Arc::new(of_table(&Machine::read(&path).ok()?, &runs));
    known.insert(directory.to_owned(), (written, Arc::clone(&models)));
    Some(models)
}

/// The candidates on the engines of a job. Close plans are close to the best one on any engine.
fn select(models: Option<&Models>, query: &Query, job: &Job, extent: Extent) -> Candidates {
    let all = models.map(|models| models.candidates(query)).unwrap_or_default();
    let least = all.first().map(|best| best.microseconds);
    let is_here = |one: &&Prediction| job.has(one.engine);
    let mut predicted: Vec<(Choice, f64)> =
        all.iter().filter(is_here).map(|one| (one.plan, one.microseconds)).collect();
    let choice = models.and_then(|models| models.choose(query));
    let choice = choice.filter(|one| is_here(&one)).map(|one| one.plan);
    if let Some(at) = predicted.iter().position(|(plan, _)| Some(*plan) == choice) {
        predicted[..=at].rotate_right(1);
    }
    let chosen = choice.into_iter().map(|plan| (Chooser::Models, plan)).collect();
    let undecided = Candidates { predicted, measured: Vec::new(), chosen };
    let predicted = || undecided.predicted.iter();
    let (mut measured, others) = match (extent, least) {
        (Extent::ModelsOnly, _) => return undecided,
        (Extent::Close { until: Some(until) }, _) if now() >= until => return undecided,
        (Extent::All, _) | (_, None) => {
            let plans = predicted().map(|(plan, _)| plan);
            (job.every.iter().chain(plans).copied().collect::<Vec<_>>(), 0)
        }
        (Extent::Close { .. }, Some(least)) => {
            let error = models.and_then(|models| models.error(query)).unwrap_or(UNKNOWN_ERROR);
            let error = error.clamp(ERRORS[0], ERRORS[1]);
            let most = least * (1.0 + error) / (1.0 - error);
            // The models' choice, too: between nodes it may be slower by more than their error.
            let is_close = |plan: &Choice, time| time <= most || Some(*plan) == choice;
            let close = predicted().filter(|(plan, time)| is_close(plan, *time));
            let plans = close.map(|(plan, _)| *plan).take(MOST).collect();
            let of_others = all.iter().filter(|one| !is_here(one) && one.microseconds <= most);
            (plans, of_others.count())
        }
    };
    measured.extend(&job.more);
    let mut known = HashSet::new();
    measured.retain(|plan| known.insert(*plan));
    // One candidate, of all jobs, leaves nothing to decide.
    if measured.len() + others < 2 {
        measured.clear();
    }
    Candidates { measured, ..undecided }
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
    use models::decision::CallForm;
    use models::machine::{Fingerprint, PairClass};
    use models::parameters::Parameters;

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
        let operation = Collective::Bcast;
        let query = Query { operation, form, ranks: 2, ranks_per_node: 2, bytes: 8 };
        let every = CollectiveCall::from(query).plans(&SEGMENTS);
        let job = Job { has_kernel: false, every, more: Vec::new() };
        let mut of = |microseconds, extent| {
            let costs = [(operation, flat(microseconds))].into();
            machine.flat.insert(form, costs);
            select(Some(&Models::of(&machine)), &query, &job, extent)
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
        let without_models = select(None, &query, &job, close);
        assert!(without_models.measured.len() > 1 && without_models.chosen.is_empty());
    }

    /// Two engines, the kernel ten times as fast: the job of the other one times only what is kept.
    #[test]
    fn a_job_has_candidates_on_its_engines_alone() {
        let mut machine = Machine::new(Fingerprint::default());
        for (engine, factor) in [(Engine::Agent, 10.0), (Engine::Kernel, 1.0)] {
            let network = Parameters::linear(factor, (0.0, 0.0), (0.0, 0.0), (factor, 0.0));
            let classes = &mut machine.engine_mut(engine).classes;
            classes.insert(PairClass::OtherNode, network.expect("valid"));
        }
        let models = Models::of(&machine);
        let operation = Collective::Bcast;
        let form = CallForm::Nonblocking;
        let query = Query { operation, form, ranks: 4, ranks_per_node: 1, bytes: 8 };
        let kept = Choice::of(Algorithm::Chain);
        let of_job = |has_kernel, more| {
            let job = Job { has_kernel, every: Vec::new(), more };
            select(Some(&models), &query, &job, Extent::Close { until: None })
        };
        let in_kernel = of_job(true, Vec::new());
        assert!(in_kernel.measured.len() > 1, "{in_kernel:?}");
        let elsewhere = of_job(false, vec![kept, kept]);
        assert_eq!((elsewhere.measured, elsewhere.chosen), (vec![kept], Vec::new()));
        assert!(elsewhere.predicted.len() >= in_kernel.predicted.len());
        let least = |of: &[(Choice, f64)]| of.iter().map(|one| one.1).fold(f64::MAX, f64::min);
        let ratio = least(&elsewhere.predicted) / least(&in_kernel.predicted);
        assert!((ratio - 10.0).abs() < 1e-6);
    }
}
