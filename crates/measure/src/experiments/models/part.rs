//! Figures and tables of a run.

use super::guidelines;
use super::simulated::{SharingModel, Simulated, simulated};
use crate::experiments::plans::PlanFigures;
use crate::experiments::sharing::{Measured, is_fitted, program};
use crate::results::{Figure, Part, Point, Role, Table, Value};
use crate::rows::{Quantity, Row, Run};
use collectives::{Algorithm, Collective};
use models::decision::Query;
use models::fit::{ContentionSample, contention};
use models::formulas::alltoall::Bounds;
use models::machine_file::Engine;
use models::simulation::{Constants, KNOTS, bounds};
use models::statistics::median;
use std::collections::BTreeMap;

/// Figures and tables of a run. Visits aside, nothing depends on the order of its rows.
pub fn part(run: &Run) -> Part {
    let about = "Every algorithm of an operation takes turns with the others; a point is the time \
                 from a common start until the slowest rank is done, on the fastest of several \
                 visits. Dashed are predictions. Those named pLogP come from the formulas of \
                 tables 1 to 3 and the parameters in machine.json, with what a run costs besides \
                 its messages: each rank works for itself. Those named sharing come from a \
                 simulation of the engine: the rank that enables an operation executes it, for \
                 any rank, and ranks of one core take turns; its constants are fitted to the \
                 simplest algorithm of each operation, which the tables mark, and predict all \
                 others.";
    let part = Part::new("models", "Predicted against measured");
    let mut part = part.described(about, "Barchet-Estefanel, Mounié 2004, sections 3 to 5");
    let (plans, models) = simulated(run);
    let published = published_bounds(run);
    part.figures = figures(&plans, &published);
    let constants = models.iter().flat_map(|one| constants(one.ranks, &one.model.constants));
    part.tables = vec![
        table(
            ("errors", "How far predictions are off"),
            "Relative errors of predictions against medians, over all sizes.",
            "operation | algorithm | ranks | engine | model | median error | worst error | sizes | fitted",
            errors(&plans),
        ),
        table(
            ("summary", "How far predictions are off, in all"),
            "Over all algorithms of the paper's tables 1 and 2 (bcast and scatter) without \
             joins, and over all others; algorithms that the constants were fitted to are \
             left out of the model of sharing's errors.",
            "algorithms | ranks | engine | model | median error | worst error | points",
            summary(&plans),
        ),
        table(
            ("constants", "Constants of the model of sharing"),
            "Fitted to the simplest algorithm of each operation.",
            "ranks | what | size (bytes) | cost (µs)",
            constants.collect(),
        ),
        table(
            ("contention", "The contention ratio γ of the all-to-all"),
            "The ratio is fitted to every other size of the direct exchange and tested on \
             the sizes between. Bounds are those of table 3, where machine.json is there, \
             and with the peers engine those of the model of sharing: all work spread over \
             the cores, and all of it on one, by constants that are fitted without the \
             all-to-all.",
            "ranks | engine | bounds | ratio | quartiles | sizes fitted | sizes tested | median error | worst error",
            ratios(&plans, &models, &published),
        ),
        table(
            ("guidelines", "Guidelines that are broken"),
            "What should hold, where it does not by more than a tenth. Each side is the best \
             algorithm measured.",
            "guideline | ranks | bytes | left (µs) | right (µs) | ratio",
            guidelines::broken(&plans),
        ),
        table(
            ("anomalies", "Anomalies of small messages"),
            "Sizes up to 4 KiB that take at least a fifth longer than the next larger one \
             (2004, section 3.1).",
            "operation | algorithm | ranks | bytes | time (µs) | larger (bytes) | time (µs) of the larger",
            anomalies(&plans),
        ),
    ];
    part
}

/// A table of the part, with a bar between the names of its columns.
fn table(
    (name, title): (&str, &str),
    caption: &str,
    columns: &str,
    rows: Vec<Vec<Value>>,
) -> Table {
    let columns: Vec<&str> = columns.split(" | ").collect();
    Table { caption: caption.to_owned(), rows, ..Table::new(name, title, &columns) }
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
        let place: [Value; 3] = [f64::from(ranks).into(), engine.into(), model.into()];
        let numbers = [median(errors), worst(errors), errors.len() as f64].map(Value::from);
        words(of).into_iter().chain(place).chain(numbers).collect()
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
            vec![operation.name().into(), algorithm.name().into()]
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
    let words =
        |is_further| vec![Value::from(if is_further { "all others" } else { "tables 1 and 2" })];
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
    let row = |what: &str, size: Value, cost: f64| {
        vec![f64::from(ranks).into(), what.into(), size, cost.into()]
    };
    let single = [
        ("a process begins and ends", *start),
        ("an operation", *operation),
        ("to see what another core did", *crossing),
        ("a switch between processes", *switch),
        ("to combine a byte", *combine),
    ];
    let mut rows: Vec<_> =
        single.into_iter().map(|(what, cost)| row(what, Value::None, cost)).collect();
    for (what, curve) in
        [("a copy", copy), ("a copy of what another core wrote, beyond that", fetch)]
    {
        let knots = KNOTS.iter().zip(curve.0);
        rows.extend(knots.map(|(knot, cost)| row(what, Value::from(*knot as f64), cost)));
    }
    rows
}

/// γ, fitted to every other size and tested on the others, for each kind of bounds that there is.
fn ratios(
    plans: &[Simulated<'_>],
    models: &[SharingModel],
    published: &BTreeMap<(Query, Engine), Bounds>,
) -> Vec<Vec<Value>> {
    let mut direct: BTreeMap<(u32, Engine), BTreeMap<Query, Measured>> = BTreeMap::new();
    for one in plans.iter().filter(|one| one.is_alltoall()) {
        let is_direct = one.times.plan.algorithm == Algorithm::RotatedDirect;
        if let Some(graph) = one.graph().filter(|_| is_direct) {
            let of_engine = direct.entry((one.row.ranks, one.engine)).or_default();
            of_engine.insert(one.times.query, graph);
        }
    }
    let mut rows = Vec::new();
    for ((ranks, engine), direct) in &direct {
        let table_3 = |query: &Query, _: &Measured| published.get(&(*query, *engine)).copied();
        rows.extend(ratio((*ranks, *engine), "table 3", direct, table_3));
        // The sizes that γ is tested on have no part in anything that it is fitted with.
        let is_shared = |one: &&SharingModel| (one.ranks, Engine::Peers) == (*ranks, *engine);
        let model = models.iter().find(is_shared).and_then(|one| one.without_alltoall.as_ref());
        let shared = |_: &Query, one: &Measured| {
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
    direct: &BTreeMap<Query, Measured>,
    bounds: impl Fn(&Query, &Measured) -> Option<Bounds>,
) -> Option<Vec<Value>> {
    let sample = |(query, one): (&Query, &Measured)| {
        let sample = ContentionSample { bounds: bounds(query, one)?, measured: one.microseconds };
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
    let of_errors = |value: f64| if errors.is_empty() { Value::None } else { value.into() };
    Some(vec![
        f64::from(ranks).into(),
        engine.name().into(),
        which.into(),
        found.ratio.into(),
        format!("{:.2} to {:.2}", found.lower_quartile, found.upper_quartile).into(),
        sizes(0).into(),
        sizes(1).into(),
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
                let place: [Value; 3] =
                    [operation.name().into(), plan.as_str().into(), f64::from(ranks).into()];
                let numbers = [*bytes as f64, *time, *larger as f64, *less].map(Value::from);
                rows.push(place.into_iter().chain(numbers).collect());
            }
        }
    }
    rows
}
