//! Predictions for the calls of a machine: every plan on every engine that can run it.
//!
//! Models choose; measurements decide between plans with close predictions. Each form of a call has
//! predictions of its own, because it has engines of its own.

mod timed;

use crate::costs::{Candidate, CostModel, Costs, Sharing};
use crate::machine::PairClass;
use crate::machine_file::{Engine, Machine};
use crate::query::{CallForm, Query, private_bytes};
use collectives::{Algorithm, Choice, Collective, Levels};
use std::collections::BTreeMap;
use timed::TimeRatios;
pub use timed::TimedCall;

/// The models of a machine.
///
/// ```
/// use collectives::{Algorithm, Collective};
/// use models::decision::{CallForm, Query};
/// use models::machine::{Fingerprint, PairClass};
/// use models::machine_file::{Engine, Machine};
/// use models::parameters::Parameters;
/// use models::prediction::Models;
///
/// // A gigabit Ethernet, about: 50 µs, and 8 ns a byte.
/// let network = Parameters::linear(50.0, (3.0, 0.001), (4.0, 0.001), (10.0, 0.008))?;
/// let mut machine = Machine::new(Fingerprint::default());
/// machine.engine_mut(Engine::Agent).classes.insert(PairClass::OtherNode, network);
/// let models = Models::of(&machine);
/// let query = Query {
///     operation: Collective::Bcast,
///     form: CallForm::Nonblocking,
///     ranks: 16,
///     ranks_per_node: 1,
///     bytes: 1,
/// };
/// assert_eq!(models.candidates(&query)[0].plan.algorithm, Algorithm::Dary);
/// let long = Query { bytes: 16 << 20, ..query };
/// assert_eq!(models.candidates(&long)[0].plan.algorithm, Algorithm::TwoTree);
/// # Ok::<(), models::parameters::ParametersError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Models {
    levels: BTreeMap<(Engine, CallForm), LevelCosts>,
    /// Bytes that each connection between ranks holds, if the ranks are connected.
    held: Option<u64>,
    /// The models that choose without a table, if these make one.
    without_table: Option<Box<Models>>,
    /// Of plans that were timed.
    ratios: TimeRatios,
}

/// Bytes that connections between ranks hold where all systems grant that.
pub const USUALLY_HELD: u64 = 1 << 20;

/// Largest number of ranks that run nonblocking collectives of one step themselves: each of them
/// builds the graphs of all.
pub const MOST_RANKS_IN_ONE_STEP: u32 = 16;

/// Costs under one engine, inside nodes and between nodes.
#[derive(Clone, Debug, PartialEq)]
struct LevelCosts {
    inside: Option<Costs>,
    between: Option<Costs>,
    /// Relative error of the corrections between nodes.
    error: Option<f64>,
}

/// A plan with its predicted time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The plan.
    pub plan: Choice,
    /// The engine between nodes; `None` on one node.
    pub engine: Option<Engine>,
    /// The predicted time in microseconds.
    pub microseconds: f64,
}

/// Plans of a message in more segments are left out: graphs become longer than they are worth.
const MOST_SEGMENTS: u64 = 1024;

impl Models {
    /// The models of a measured machine.
    pub fn of(machine: &Machine) -> Self {
        let mut levels = BTreeMap::new();
        for engine in Engine::ALL.iter().copied() {
            for form in CallForm::ALL.iter().copied() {
                let farthest = machine.farthest_inside(engine).unwrap_or(PairClass::OtherSocket);
                let inside = machine.costs(engine, form, farthest);
                let between = machine.costs(engine, form, PairClass::OtherNode);
                let calibration = machine.engines.get(&engine).and_then(|one| one.calibration);
                let error = calibration.map(|calibration| calibration.error);
                if inside.is_some() || between.is_some() {
                    levels.insert((engine, form), LevelCosts { inside, between, error });
                }
            }
        }
        Models { levels, held: None, without_table: None, ratios: TimeRatios::default() }
    }

    /// The models of jobs with connected ranks. Where each rank has a node of its own, they run
    /// nonblocking calls themselves in which [all messages are sent at the
    /// start](Collective::sends_at_start) and the connections hold them; such calls cost what they
    /// cost in [`Engine::Direct`].
    #[must_use]
    pub fn with_connected_ranks(self, held: u64) -> Self {
        Models { held: Some(held), ..self }
    }

    /// The models with corrections of single plans by their times on an engine between nodes. They
    /// count for calls of the same shape, between the sizes that were timed and beyond them.
    #[must_use]
    pub fn with_times(mut self, engine: Engine, times: &[TimedCall]) -> Self {
        let mut ratios = self.ratios.clone();
        for TimedCall { query, plan, microseconds } in times {
            if let Some(predicted) = self.price(Some(engine), plan, query) {
                ratios.add(engine, plan, query, microseconds / predicted);
            }
        }
        self.ratios = ratios;
        self
    }

    /// The models of a table for jobs that choose by `built_in` without one, with the same
    /// connections and engines. Between nodes another plan than theirs is chosen only if it is
    /// predicted to be faster by a tenth; one on another engine by a quarter or, where one of both
    /// plans was not timed, by more than the errors of both engines.
    ///
    /// Predictions of one engine err alike, so plans on it are compared better than plans on two.
    #[must_use]
    pub fn beside(self, built_in: &Models) -> Self {
        let known = built_in.clone().only(|engine| self.has(engine));
        let without_table = Models { held: self.held, ..known };
        Models { without_table: Some(without_table.into()), ..self }
    }

    /// The choice for a call between nodes without the table that these models make.
    pub(crate) fn choice_without_table(&self, query: &Query) -> Option<Prediction> {
        let models = self.without_table.as_ref().filter(|_| query.nodes() > 1)?;
        models.choose(query)
    }

    /// Returns `true` if messages between nodes under this engine were measured.
    pub fn has(&self, engine: Engine) -> bool {
        let is_measured = |(of, level): (&(Engine, CallForm), &LevelCosts)| {
            of.0 == engine && level.between.is_some()
        };
        self.levels.iter().any(is_measured)
    }

    /// Returns `true` if an engine runs calls like this one. In a job that has another engine, too,
    /// that one executes the others, whatever engine was wanted for them.
    pub fn runs(&self, engine: Engine, query: &Query) -> bool {
        self.engines(query).any(|(of, _)| of == engine)
    }

    /// The models of these engines alone.
    #[must_use]
    pub fn only(mut self, is_wanted: impl Fn(Engine) -> bool) -> Self {
        self.levels.retain(|(engine, _), _| is_wanted(*engine));
        if let Some(without_table) = &mut self.without_table {
            without_table.levels.retain(|(engine, _), _| is_wanted(*engine));
        }
        self
    }

    /// The engines that can run a call, as far as they were measured.
    fn engines(&self, query: &Query) -> impl Iterator<Item = (Engine, &LevelCosts)> {
        let is_measured = |engine: Engine| {
            self.levels.get(&(engine, query.form)).is_some_and(|level| level.between.is_some())
        };
        let engines: &[Engine] = match (query.nodes(), query.form) {
            (1, _) => &[Engine::Peers],
            // Nonblocking calls cannot run inside the ranks.
            (_, CallForm::Blocking) if is_measured(Engine::Direct) => {
                &[Engine::Direct, Engine::Kernel]
            }
            _ => &[Engine::Agent, Engine::Kernel],
        };
        let form = query.form;
        let engines =
            engines.iter().filter(|engine| **engine != Engine::Kernel || fits_kernel(query));
        engines.filter_map(move |engine| Some((*engine, self.levels.get(&(*engine, form))?)))
    }

    /// The plans that run any operation, fastest first, each with the segment size and degree that
    /// suit it. Empty if no costs are known.
    pub fn candidates(&self, query: &Query) -> Vec<Prediction> {
        let mut all = self.exact_candidates(query);
        all.retain(|one| query.operation.has_common_order(one.plan.algorithm));
        all
    }

    /// As [`candidates`](Self::candidates), with those that run only operations with the same
    /// result [in every order](collectives::Reduction::depends_on_order) of their operands.
    pub fn exact_candidates(&self, query: &Query) -> Vec<Prediction> {
        let mut all = Vec::new();
        for (engine, level) in self.engines(query) {
            // The kernel sends packets anyway, and takes graphs of few messages only.
            let is_taken =
                |algorithm: Algorithm| engine != Engine::Kernel || !algorithm.is_segmented();
            let available = |operation, algorithm, levels| {
                is_taken(algorithm) && is_available(query, operation, algorithm, levels)
            };
            let Some(model) = level.model(query, &available) else { continue };
            let named = Some(engine).filter(|_| query.nodes() > 1);
            all.extend(model.candidates(query).into_iter().map(|candidate| {
                let Candidate { plan, microseconds } = candidate;
                let in_ranks = self.price_in_ranks(engine, &plan, query);
                let factor = self.ratios.factor(engine, &plan, query);
                let microseconds = factor * in_ranks.unwrap_or(microseconds);
                Prediction { plan, engine: named, microseconds }
            }));
        }
        let too_many = |plan: &Choice| {
            plan.segment_bytes.is_some_and(|segment| query.bytes / segment > MOST_SEGMENTS)
        };
        all.retain(|one| one.microseconds.is_finite() && !too_many(&one.plan));
        all.sort_by(|left, right| left.microseconds.total_cmp(&right.microseconds));
        all
    }

    /// Returns the time of a plan on an engine, in microseconds; `None` if the plan does not apply,
    /// or no costs are known. On one node there is no choice of engines.
    pub fn price(&self, engine: Option<Engine>, plan: &Choice, query: &Query) -> Option<f64> {
        let known = |one: &(Engine, &LevelCosts)| engine.is_none_or(|engine| engine == one.0);
        let (engine, level) = self.engines(query).find(known)?;
        let in_ranks = self.price_in_ranks(engine, plan, query);
        let price = in_ranks.or_else(|| level.model(query, &|_, _, _| true)?.price(plan, query))?;
        Some(self.ratios.factor(engine, plan, query) * price)
    }

    /// Returns the time of a nonblocking call that the ranks run in the place of this engine, in
    /// microseconds; `None` if they do not, or no costs are known.
    fn price_in_ranks(&self, engine: Engine, plan: &Choice, query: &Query) -> Option<f64> {
        if !self.is_in_ranks(engine, plan, query) {
            return None;
        }
        let costs = self.levels.get(&(Engine::Direct, query.form))?;
        costs.model(query, &|_, _, _| true)?.price(plan, query)
    }

    /// Returns `true` if the ranks run a nonblocking call in the place of this engine.
    fn is_in_ranks(&self, engine: Engine, plan: &Choice, query: &Query) -> bool {
        let runs = |held: u64| runs_in_ranks(plan, query, held);
        engine == Engine::Agent && self.held.is_some_and(runs)
    }

    /// Returns `true` if the ranks run a nonblocking call by some plan in the place of this engine.
    fn may_be_in_ranks(&self, engine: Engine, query: &Query) -> bool {
        let algorithms = query.operation.algorithms();
        algorithms.iter().any(|one| self.is_in_ranks(engine, &Choice::of(*one), query))
    }

    /// The plan to use: the fastest, but where the models leave open which is the fastest, the one
    /// that is known better: a flat collective on one node, which needs no schedule and whose time
    /// was measured, and one step in the ranks before the node service for nonblocking calls
    /// between nodes. `None` if no costs are known.
    pub fn choose(&self, query: &Query) -> Option<Prediction> {
        self.choose_of(&self.candidates(query), query)
    }

    /// The plan to use of these candidates.
    pub(crate) fn choose_of(&self, candidates: &[Prediction], query: &Query) -> Option<Prediction> {
        let usual = self.choice_without_table(query);
        let cost = |one: &Prediction| {
            one.microseconds * self.handicap((one.engine, &one.plan), usual.as_ref(), query)
        };
        candidates.iter().min_by(|left, right| cost(left).total_cmp(&cost(right))).copied()
    }

    /// Factor for the time of a plan when it is compared with others: more than 1 for graphs on
    /// one node, and between nodes for another plan or engine than the usual ones, which
    /// [run the call without a table](Self::choice_without_table), for the kernel engine, and for
    /// the node service beside calls that run in the ranks.
    ///
    /// The kernel's times are predicted worst of all engines. A factor of 1.2 had the least regret
    /// in the run that the built-in parameters were fitted to. Blocking calls had the least without
    /// one. The node service needs a core for each step of a call; predictions are of calls without
    /// a computation, in which the ranks leave it theirs.
    pub(crate) fn handicap(
        &self,
        (engine, plan): (Option<Engine>, &Choice),
        usual: Option<&Prediction>,
        query: &Query,
    ) -> f64 {
        /// Of nonblocking calls in the kernel.
        const KERNEL: f64 = 1.2;
        /// Of another engine, where both plans were timed at other sizes.
        const TIMED: f64 = 1.25;
        /// Of another plan on the same engine.
        const OTHER: f64 = 1.1;
        /// Of nonblocking calls of several steps in the node service.
        const WOKEN: f64 = 1.5;
        if query.nodes() > 1 {
            let is_woken =
                |of| self.may_be_in_ranks(of, query) && !self.is_in_ranks(of, plan, query);
            let of_engine = match engine {
                Some(Engine::Kernel) if query.form == CallForm::Nonblocking => KERNEL,
                Some(of) if is_woken(of) => WOKEN,
                _ => 1.0,
            };
            let Some(usual) = usual else { return of_engine };
            if usual.engine == engine {
                let is_usual =
                    (usual.plan.levels, usual.plan.algorithm) == (plan.levels, plan.algorithm);
                return of_engine * if is_usual { 1.0 } else { OTHER };
            }
            let is_timed = |(of, plan): (Option<Engine>, &Choice)| {
                of.is_some_and(|of| self.ratios.has(of, plan, query))
            };
            let error = |of: Option<Engine>| self.levels.get(&(of?, query.form))?.error;
            let margin = if is_timed((usual.engine, &usual.plan)) && is_timed((engine, plan)) {
                TIMED
            } else {
                margin(error(usual.engine), error(engine))
            };
            return of_engine * margin;
        }
        if plan.algorithm == Algorithm::Join {
            return 1.0;
        }
        let error = self.error(query);
        margin(error, error)
    }

    /// Relative error of the models for calls like this one, where it was measured: three quarters of
    /// the times that they were fitted to are nearer.
    pub fn error(&self, query: &Query) -> Option<f64> {
        let (_, level) = self.engines(query).next()?;
        if query.nodes() > 1 {
            return level.error.filter(|error| *error > 0.0);
        }
        let inside = level.inside.as_ref()?;
        let nearest = Sharing::nearest(&inside.sharing, query.ranks)?;
        nearest.has_error_of(query.ranks).then_some(nearest.error)
    }
}

/// Ratio of the predicted times of a kept plan and another one above which the other one is faster
/// in spite of the relative errors of both predictions. Unknown errors count as none.
fn margin(kept: Option<f64>, other: Option<f64>) -> f64 {
    /// Largest error that counts.
    const MOST: f64 = 0.5;
    let [kept, other] = [kept, other].map(|error| error.unwrap_or(0.0).min(MOST));
    (1.0 + kept) / (1.0 - other)
}

/// Returns `true` if ranks, each on a node of its own, run a nonblocking call by this plan themselves
/// instead of their node services, where each connection between them holds so many bytes.
pub fn runs_in_ranks(plan: &Choice, query: &Query, held: u64) -> bool {
    query.form == CallForm::Nonblocking
        && query.ranks_per_node <= 1
        && (2..=MOST_RANKS_IN_ONE_STEP).contains(&query.ranks)
        && plan.levels == Levels::One
        && query.operation.sends_at_start(plan.algorithm, query.ranks)
        // In one step two ranks exchange one block, or one contribution.
        && query.bytes < held
}

impl LevelCosts {
    fn model<'a>(
        &'a self,
        query: &Query,
        available: &'a dyn Fn(Collective, Algorithm, Levels) -> bool,
    ) -> Option<CostModel<'a>> {
        let between = self.between.as_ref();
        if query.nodes() == 1 {
            return Some(CostModel { inside: self.inside.as_ref()?, between, available });
        }
        // Where nothing was measured inside nodes, messages there count as messages between nodes.
        let between = between?;
        let inside = self.inside.as_ref().unwrap_or(between);
        Some(CostModel { inside, between: Some(between), available })
    }
}

/// Returns `true` if the kernel program has memory for the buffers of a rank; the node service
/// executes a longer call, whatever engine was wanted for it.
fn fits_kernel(query: &Query) -> bool {
    const MOST_BYTES: u64 = 640 << 10;
    let bytes = match query.operation {
        // A rank has an input or an output.
        Collective::Bcast => query.bytes,
        operation => private_bytes(operation, query.ranks, query.bytes),
    };
    bytes <= MOST_BYTES
}

/// Returns `true` if there is an implementation of an algorithm of the collective for a call.
///
/// Every other algorithm runs among any number of ranks, with blocks of any size, so that no graph
/// is built to find out: a job evaluates this for hundreds of candidates when it starts.
fn is_available(
    query: &Query,
    collective: Collective,
    algorithm: Algorithm,
    levels: Levels,
) -> bool {
    let is_one_node = query.nodes() == 1;
    match levels {
        Levels::One => match algorithm {
            Algorithm::Join => is_one_node,
            // On one node a join has one step, too, and takes fewer messages.
            Algorithm::RotatedDirect => !is_one_node || collective == Collective::Alltoall,
            _ => true,
        },
        Levels::Two => collective.has_two_levels(algorithm),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::linked;
    use collectives::{GraphSpec, Reduction, build};
    use goal::arithmetic::{Arithmetic, DataType};
    use std::num::NonZeroU32;

    #[test]
    fn what_is_available_can_be_built() {
        for collective in Collective::ALL.iter().copied() {
            for (algorithm, levels) in collective
                .algorithms()
                .iter()
                .flat_map(|algorithm| Levels::ALL.iter().map(move |levels| (*algorithm, *levels)))
            {
                for ranks in (1..=9).chain([13, 16]) {
                    for (ranks_per_node, bytes) in [(1, 0), (1, 8), (2, 24), (3, 5), (16, 40)] {
                        let form = CallForm::Blocking;
                        let operation = collective;
                        let query = Query { operation, form, ranks, ranks_per_node, bytes };
                        let spec = GraphSpec {
                            ranks_per_node: NonZeroU32::new(ranks_per_node).expect("not zero"),
                            // All algorithms accept this operation on this type.
                            reduction: Reduction::new(Arithmetic::Add, DataType::U8),
                            ..linked::call(collective, ranks, bytes)
                        };
                        let choice = Choice { levels, ..Choice::of(algorithm) };
                        // A join has a graph on several nodes, too, which no engine runs; and on one
                        // node it takes the place of one step.
                        let is_one_node = query.nodes() == 1;
                        let is_one_step = algorithm == Algorithm::RotatedDirect
                            && collective != Collective::Alltoall
                            && levels == Levels::One;
                        let runs = match algorithm {
                            Algorithm::Join => is_one_node,
                            _ => !is_one_node || !is_one_step,
                        };
                        let expected = runs && build(&spec, &choice).is_ok();
                        let found = is_available(&query, collective, algorithm, levels);
                        assert_eq!(found, expected, "{query}: {choice}");
                    }
                }
            }
        }
    }
}
