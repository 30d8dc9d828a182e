//! Candidates of a call: predictions of the models, and the plans that are timed.

use super::grid::{EFFORT, MEASURE_ALL, MODELS_ONLY, UNTIL, segments};
use super::times::{timed_between_nodes, timed_calls};
use crate::experiments::algorithms::CollectiveCall;
use crate::harness::{Error, Setting, StepContext, agreement};
use crate::results::{Directory, Part};
use collectives::Choice;
use models::builtin;
use models::decision::Query;
use models::machine_file::{Engine, Machine};
use models::prediction::{Models, Prediction, USUALLY_HELD};
use std::collections::{BTreeMap, HashSet};
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
    on_all_ranks(here, &collective.query(), (|_| true, every, Vec::new()), extent)
}

/// Which candidates a job between nodes has.
pub(super) struct JobsCandidates {
    pub(super) extent: Extent,
    /// Calls run in the kernel.
    pub(super) has_kernel: bool,
    /// Further plans that are timed, unless no plan of the call is. The list of rank 0 counts.
    pub(super) more: Vec<Choice>,
}

/// Candidates of a call between nodes, the same on all ranks.
pub(super) fn of_query(
    here: &StepContext<'_>,
    query: &Query,
    JobsCandidates { extent, has_kernel, more }: JobsCandidates,
) -> Result<Candidates, Error> {
    let of_job = |engine: Option<Engine>| (engine == Some(Engine::Kernel)) == has_kernel;
    on_all_ranks(here, query, (of_job, Vec::new, more), extent)
}

/// The test for an engine of the job, every plan of the call, and
/// [further plans](JobsCandidates::more).
type Which<OfJob, Every> = (OfJob, Every, Vec<Choice>);

fn on_all_ranks(
    here: &StepContext<'_>,
    query: &Query,
    which: Which<impl Fn(Option<Engine>) -> bool, impl FnOnce() -> Vec<Choice>>,
    extent: Extent,
) -> Result<Candidates, Error> {
    let own = (here.world.rank() == 0).then(|| {
        let models = here.directory.and_then(models_of);
        let found = select(models.as_deref(), query, which, extent);
        (found.predicted, found.measured)
    });
    let (predicted, measured) = agreement::of_first(here.world, own.as_ref())?;
    Ok(Candidates { predicted, measured })
}

/// The models of a table between nodes: those of the machine, with the times in these parts of single
/// plans.
pub fn of_table(machine: &Machine, timed: &[(Part, Engine)]) -> Models {
    let models = Models::of(machine).with_connected_ranks(USUALLY_HELD);
    let times = timed_calls(timed, &models);
    let with =
        |models: Models, (engine, times): (&Engine, &Vec<_>)| models.with_times(*engine, times);
    times.iter().fold(models, with).beside(builtin::models())
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
    let timed = Directory::create(directory).and_then(|of| timed_between_nodes(&of));
    let models = Arc::new(of_table(&Machine::read(&path).ok()?, &timed.unwrap_or_default()));
    known.insert(directory.to_owned(), (written, Arc::clone(&models)));
    Some(models)
}

/// The candidates on the engines of a job. Close plans are close to the best one on any engine.
fn select(
    models: Option<&Models>,
    query: &Query,
    (of_job, every, more): Which<impl Fn(Option<Engine>) -> bool, impl FnOnce() -> Vec<Choice>>,
    extent: Extent,
) -> Candidates {
    let all = models.map(|models| models.candidates(query)).unwrap_or_default();
    let least = all.first().map(|best| best.microseconds);
    let is_here = |one: &&Prediction| of_job(one.engine);
    let mut predicted: Vec<(Choice, f64)> =
        all.iter().filter(is_here).map(|one| (one.plan, one.microseconds)).collect();
    let choice = models.and_then(|models| models.choose(query));
    let choice = choice.filter(|one| is_here(&one)).map(|one| one.plan);
    if let Some(at) = predicted.iter().position(|(plan, _)| Some(*plan) == choice) {
        predicted[..=at].rotate_right(1);
    }
    let (mut measured, others) = match (extent, least) {
        (Extent::ModelsOnly, _) => return Candidates { predicted, measured: Vec::new() },
        (Extent::Close { until: Some(until) }, _) if now() >= until => {
            return Candidates { predicted, measured: Vec::new() };
        }
        (Extent::All, _) | (_, None) => {
            let mut plans = every();
            plans.extend(predicted.iter().map(|(plan, _)| *plan));
            (plans, 0)
        }
        (Extent::Close { .. }, Some(least)) => {
            let error = models.and_then(|models| models.error(query)).unwrap_or(UNKNOWN_ERROR);
            let error = error.clamp(ERRORS[0], ERRORS[1]);
            let most = least * (1.0 + error) / (1.0 - error);
            // The models' choice, too: between nodes it may be slower by more than their error.
            let is_close = |plan: &Choice, time| time <= most || Some(*plan) == choice;
            let close = predicted.iter().filter(|(plan, time)| is_close(plan, *time));
            let plans = close.map(|(plan, _)| *plan).take(MOST).collect();
            let of_others = all.iter().filter(|one| !is_here(one) && one.microseconds <= most);
            (plans, of_others.count())
        }
    };
    measured.extend(more);
    let mut known = HashSet::new();
    measured.retain(|plan| known.insert(*plan));
    // One candidate, of all jobs, leaves nothing to decide.
    if measured.len() + others < 2 {
        measured.clear();
    }
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
            select(
                Some(&Models::of(&machine)),
                &call.query(),
                (|_| true, || call.plans(&segments()), Vec::new()),
                extent,
            )
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
            select(None, &call.query(), (|_| true, || call.plans(&segments()), Vec::new()), close)
                .measured
                .len()
                > 1,
            "there are no models"
        );
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
        let (operation, form) = (Collective::Bcast, CallForm::Nonblocking);
        let query = Query { operation, form, ranks: 4, ranks_per_node: 1, bytes: 8 };
        let kept = Choice::of(Algorithm::Chain);
        let of_job = |has_kernel, more| {
            let is_here =
                move |engine: Option<Engine>| (engine == Some(Engine::Kernel)) == has_kernel;
            let close = Extent::Close { until: None };
            select(Some(&models), &query, (is_here, Vec::new, more), close)
        };
        let in_kernel = of_job(true, Vec::new());
        assert!(in_kernel.measured.len() > 1, "{in_kernel:?}");
        let elsewhere = of_job(false, vec![kept, kept]);
        assert_eq!(elsewhere.measured, [kept]);
        assert!(elsewhere.predicted.len() >= in_kernel.predicted.len());
        let least = |of: &Candidates| of.predicted.iter().map(|one| one.1).fold(f64::MAX, f64::min);
        assert!((least(&elsewhere) / least(&in_kernel) - 10.0).abs() < 1e-6);
    }
}
