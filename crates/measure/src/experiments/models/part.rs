//! Figures and tables of a run.

use super::guidelines;
use super::simulated::{SharingModel, Simulated, simulated};
use crate::experiments::plans::PlanFigures;
use crate::experiments::sharing::{is_fitted, program};
use crate::results::{Figure, Part, Point, Role, Table, Value, values};
use crate::rows::{Quantity, Row, Run};
use collectives::{Algorithm, Collective};
use models::calibration::TimedCall;
use models::decision::Query;
use models::fit::{ContentionSample, contention};
use models::formulas::alltoall::Bounds;
use models::machine_file::Engine;
use models::simulation::{Constants, KNOTS, bounds};
use models::statistics::median;
use std::collections::BTreeMap;

/// Adds the figures and tables of a run. Visits aside, nothing depends on the order of its rows.
pub(super) fn view(run: &Run, part: &mut Part) {
    let (plans, models) = simulated(run);
    let published = published_bounds(run);
    part.figures = figures(&plans, &published);
    let constants = models.iter().flat_map(|one| constants(one.ranks, &one.model.constants));
    part.tables = vec![
        Table::new(
            ["errors", "How far predictions are off"],
            "operation | algorithm | ranks | engine | model | median error | worst error | sizes | fitted",
            "Relative errors of predictions against medians, over all sizes.",
            errors(&plans),
        ),
        Table::new(
            ["summary", "How far predictions are off, in all"],
            "algorithms | ranks | engine | model | median error | worst error | points",
            "Over all algorithms of the paper's tables 1 and 2 (bcast and scatter) without joins, and over \
             all others; algorithms that the constants were fitted to are left out of the model of \
             sharing's errors.",
            summary(&plans),
        ),
        Table::new(
            ["constants", "Constants of the model of sharing"],
            "ranks | what | size (bytes) | cost (µs)",
            "Fitted to the simplest algorithm of each operation.",
            constants.collect(),
        ),
        Table::new(
            ["contention", "The contention ratio γ of the all-to-all"],
            "ranks | engine | bounds | ratio | quartiles | sizes fitted | sizes tested | median error | \
             worst error",
            "The ratio is fitted to every other size of the direct exchange and tested on the sizes between. \
             Bounds are those of table 3, where machine.json is there, and with the peers engine those of \
             the model of sharing: all work spread over the cores, and all of it on one, by constants that \
             are fitted without the all-to-all.",
            ratios(&plans, &models, &published),
        ),
        Table::new(
            ["guidelines", "Guidelines that are broken"],
            "guideline | ranks | bytes | left (µs) | right (µs) | ratio",
            "What should hold, where it does not by more than a tenth. Each side is the best algorithm \
             measured.",
            guidelines::broken(&plans),
        ),
        Table::new(
            ["anomalies", "Anomalies of small messages"],
            "operation | algorithm | ranks | bytes | time (µs) | larger (bytes) | time (µs) of the larger",
            "Sizes up to 4 KiB that take at least a fifth longer than the next larger one (2004, section \
             3.1).",
            anomalies(&plans),
        ),
    ];
}

/// The bounds of table 3 for the all-to-all of each call on each engine.
fn published_bounds(run: &Run) -> BTreeMap<(Query, Engine), Bounds> {
    let of = |quantity| {
        let rows = run.rows().filter(move |row| row.quantity == quantity);
        rows.filter_map(|row: &Row| Some(((row.query()?, row.engine?), row.median())))
    };
    let upper: BTreeMap<_, f64> = of(Quantity::UpperBound).collect();
    let both = |(key, lower)| Some((key, Bounds { lower, upper: *upper.get(&key)? }));
    of(Quantity::LowerBound).filter_map(both).collect()
}

/// Figures with all times and predictions, and the published bounds.
fn figures(plans: &[Simulated<'_>], published: &BTreeMap<(Query, Engine), Bounds>) -> Vec<Figure> {
    let mut figures = PlanFigures::default();
    figures.add_all(plans.iter().map(|one| &one.times), "pLogP");
    for one in plans {
        let x = one.times.query.bytes as f64;
        let mut predict = |curve: &str, time: Option<f64>| {
            if let Some(time) = time {
                figures.add(&one.times, curve, Role::Predicted, Point::exact(x, time));
            }
        };
        predict(&format!("{}, sharing", one.times.plan), one.by_sharing);
        // One plan of each call stands for all.
        if one.is_alltoall() && one.times.plan.algorithm == Algorithm::RotatedDirect {
            let bounds = published.get(&(one.times.query, one.engine));
            predict("lower bound", bounds.map(|bounds| bounds.lower));
            predict("upper bound", bounds.map(|bounds| bounds.upper));
        }
    }
    figures.all()
}

/// Returns true if a model was fitted to times of an algorithm.
fn is_of_fitted(model: &str, (operation, algorithm): (Collective, Algorithm)) -> bool {
    model == "sharing" && is_fitted(operation, algorithm)
}

/// A group of predictions with one summary of errors.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Group<A> {
    /// The algorithms.
    of: A,
    ranks: u32,
    engine: &'static str,
    model: &'static str,
}

impl<A> Group<A> {
    fn of(of: A, one: &Simulated<'_>, model: &'static str) -> Self {
        Group { of, ranks: one.row.ranks, engine: one.engine.name(), model }
    }

    /// A row with the words for the algorithms, and the middle, worst and number of errors.
    fn row(self, words: impl FnOnce(A) -> Vec<Value>, errors: &[f64]) -> Vec<Value> {
        let Group { of, ranks, engine, model } = self;
        let place = values![ranks, engine, model];
        [words(of), place, values![median(errors), worst(errors), errors.len()]].concat()
    }
}

fn worst(errors: &[f64]) -> f64 {
    errors.iter().copied().fold(0.0, f64::max)
}

/// Relative errors of each algorithm.
fn errors(plans: &[Simulated<'_>]) -> Vec<Vec<Value>> {
    let mut groups: BTreeMap<Group<(Collective, Algorithm)>, Vec<f64>> = BTreeMap::new();
    for one in plans {
        for (model, error) in one.errors() {
            groups.entry(Group::of(one.algorithm(), one, model)).or_default().push(error);
        }
    }
    let row = |(group, errors): (Group<(Collective, Algorithm)>, Vec<f64>)| {
        let fitted = is_of_fitted(group.model, group.of);
        let words = |(operation, algorithm): (Collective, Algorithm)| {
            values![operation.name(), algorithm.name()]
        };
        let mut row = group.row(words, &errors);
        row.push(if fitted { "fitted" } else { "predicted" }.into());
        row
    };
    groups.into_iter().map(row).collect()
}

/// Over the algorithms of tables 1 and 2, and over all others.
fn summary(plans: &[Simulated<'_>]) -> Vec<Vec<Value>> {
    let mut groups: BTreeMap<Group<bool>, Vec<f64>> = BTreeMap::new();
    for one in plans {
        let of = one.algorithm();
        for (model, error) in one.errors().filter(|(model, _)| !is_of_fitted(model, of)) {
            groups.entry(Group::of(!is_of_tables(of), one, model)).or_default().push(error);
        }
    }
    let words = |is_further| values![if is_further { "all others" } else { "tables 1 and 2" }];
    groups.into_iter().map(|(group, errors)| group.row(words, &errors)).collect()
}

/// Returns true if the paper has the algorithm in its tables 1 and 2.
fn is_of_tables((operation, algorithm): (Collective, Algorithm)) -> bool {
    use Algorithm as A;
    match operation {
        Collective::Bcast => {
            !matches!(algorithm, A::Dary | A::ScatterAllgather | A::TwoTree | A::Join)
        }
        Collective::Scatter => algorithm != A::Join,
        _ => false,
    }
}

fn constants(ranks: u32, constants: &Constants) -> Vec<Vec<Value>> {
    let Constants { start, operation, crossing, switch, copy, fetch, combine } = constants;
    let row = |what: &str, size: Option<u64>, cost: f64| values![ranks, what, size, cost];
    let single = [
        ("a process begins and ends", *start),
        ("an operation", *operation),
        ("to see what another core did", *crossing),
        ("a switch between processes", *switch),
        ("to combine a byte", *combine),
    ];
    let mut rows: Vec<_> = single.into_iter().map(|(what, cost)| row(what, None, cost)).collect();
    for (what, curve) in
        [("a copy", copy), ("a copy of what another core wrote, beyond that", fetch)]
    {
        let knots = KNOTS.iter().zip(curve.0);
        rows.extend(knots.map(|(knot, cost)| row(what, Some(*knot), cost)));
    }
    rows
}

/// γ, fitted to every other size and tested on the others, for each kind of bounds that there is.
fn ratios(
    plans: &[Simulated<'_>],
    models: &[SharingModel],
    published: &BTreeMap<(Query, Engine), Bounds>,
) -> Vec<Vec<Value>> {
    let mut direct: BTreeMap<(u32, Engine), BTreeMap<Query, TimedCall>> = BTreeMap::new();
    for one in plans.iter().filter(|one| one.is_alltoall()) {
        let is_direct = one.times.plan.algorithm == Algorithm::RotatedDirect;
        if let Some(graph) = one.graph().filter(|_| is_direct) {
            let of_engine = direct.entry((one.row.ranks, one.engine)).or_default();
            of_engine.insert(one.times.query, graph);
        }
    }
    let mut rows = Vec::new();
    for ((ranks, engine), direct) in &direct {
        let table_3 = |one: &TimedCall| published.get(&(one.query, *engine)).copied();
        rows.extend(ratio((*ranks, *engine), "table 3", direct, table_3));
        // The sizes that γ is tested on have no part in anything that it is fitted with.
        let is_shared = |one: &&SharingModel| (one.ranks, Engine::Peers) == (*ranks, *engine);
        let model = models.iter().find(is_shared).and_then(|one| one.without_alltoall.as_ref());
        let shared = |one: &TimedCall| {
            let model = model?;
            let work = bounds(&program(one)?, model.cores, &model.constants).work;
            Some(Bounds { lower: work, upper: work * model.cores as f64 })
        };
        rows.extend(ratio((*ranks, *engine), "sharing", direct, shared));
    }
    rows
}

fn ratio(
    (ranks, engine): (u32, Engine),
    which: &str,
    direct: &BTreeMap<Query, TimedCall>,
    bounds: impl Fn(&TimedCall) -> Option<Bounds>,
) -> Option<Vec<Value>> {
    let sample = |(query, one): (&Query, &TimedCall)| {
        let sample = ContentionSample { bounds: bounds(one)?, measured: one.microseconds };
        Some((query.bytes, sample))
    };
    let samples: Vec<(u64, ContentionSample)> = direct.iter().map(sample).collect::<Option<_>>()?;
    let half = |odd: usize| samples.iter().skip(odd).step_by(2);
    let fitted: Vec<ContentionSample> = half(0).map(|(_, sample)| *sample).collect();
    let found = contention(&fitted).ok()?;
    let error = |sample: &ContentionSample| {
        (sample.bounds.at(found.ratio).max(0.0) / sample.measured - 1.0).abs()
    };
    let errors: Vec<f64> = half(1).map(|(_, sample)| error(sample)).collect();
    let sizes = |odd| half(odd).map(|(bytes, _)| bytes.to_string()).collect::<Vec<_>>().join(", ");
    let of_errors = |value: f64| (!errors.is_empty()).then_some(value);
    Some(values![
        ranks,
        engine.name(),
        which,
        found.ratio,
        format!("{:.2} to {:.2}", found.lower_quartile, found.upper_quartile),
        sizes(0),
        sizes(1),
        of_errors(median(&errors)),
        of_errors(worst(&errors)),
    ])
}

/// Small sizes that take longer than the next larger one.
fn anomalies(plans: &[Simulated<'_>]) -> Vec<Vec<Value>> {
    const LARGEST: u64 = 4096;
    const LONGER: f64 = 1.2;
    let mut curves: BTreeMap<_, BTreeMap<u64, f64>> = BTreeMap::new();
    for one in plans {
        let Query { operation, ranks, bytes, .. } = one.times.query;
        let curve = (ranks, one.engine, operation, one.times.plan.to_string());
        curves.entry(curve).or_default().insert(bytes, one.row.median());
    }
    let mut rows = Vec::new();
    for ((ranks, _, operation, plan), times) in curves {
        for ((bytes, time), (larger, less)) in times.iter().zip(times.iter().skip(1)) {
            if *bytes <= LARGEST && *time > LONGER * less {
                let of = values![operation.name(), plan.as_str(), ranks];
                rows.push([of, values![*bytes, *time, *larger, *less]].concat());
            }
        }
    }
    rows
}
