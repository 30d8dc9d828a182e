//! Conclusions over all sizes.

use super::guidelines;
use super::names::{LOWER, UPPER, curve, figure, numbers_of_ranks};
use super::outline::{
    ANOMALIES, CONSTANTS, CONTENTION, ERRORS, GUIDELINES, SUMMARY, by_plogp, by_sharing,
    is_by_sharing,
};
use super::shared::measured;
use crate::experiments::sharing::{Measured, Model, is_fitted, program};
use crate::harness::Error;
use crate::results::{Figure, Part, Point, Role, Series, Value};
use collectives::{Algorithm, Collective};
use models::fit::{ContentionSample, contention};
use models::formulas::alltoall::Bounds;
use models::simulation::{Constants, KNOTS, bounds};
use models::statistics::median;
use std::collections::BTreeMap;
use tradewind::EngineKind;

const ENGINES: [EngineKind; 2] = [EngineKind::Peers, EngineKind::Caller];

/// Computes all conclusions again.
pub(super) fn draw(part: &mut Part) -> Result<(), Error> {
    part.figures.iter_mut().flat_map(|figure| &mut figure.series).for_each(keep_the_faster);
    let mut errors = Errors::default();
    let mut constants = Vec::new();
    let mut contentions = Vec::new();
    for ranks in numbers_of_ranks(part) {
        for engine in ENGINES {
            let all = measured(part, ranks, engine);
            let cores = (ranks as usize).min(shm::process::allowed_cores().len());
            // The model is that of the peers engine.
            let model = if engine == EngineKind::Peers { Model::of(&all, cores) } else { None };
            if let Some(model) = &model {
                add_predictions(part, &all, model, engine);
                constants.extend(rows_of(ranks, &model.constants));
            }
            errors.add(part, &all, engine);
            contentions.extend(ratios(part, &all, ranks, engine, cores));
        }
    }
    part.replace_rows(ERRORS, errors.rows());
    part.replace_rows(SUMMARY, errors.summary());
    part.replace_rows(CONSTANTS, constants);
    part.replace_rows(CONTENTION, contentions);
    part.replace_rows(GUIDELINES, guidelines::broken(part));
    part.replace_rows(ANOMALIES, anomalies(part));
    Ok(())
}

/// Of the visits to a size the faster one counts: what comes between makes a machine slower and
/// never faster.
fn keep_the_faster(series: &mut Series) {
    series
        .points
        .sort_by(|one, other| one.x.total_cmp(&other.x).then(one.median.total_cmp(&other.median)));
    series.points.dedup_by(|later, kept| later.x == kept.x);
}

/// Replaces what the model of sharing predicts.
fn add_predictions(part: &mut Part, all: &[Measured], model: &Model, engine: EngineKind) {
    for operation in Collective::ALL {
        let of_operation: Vec<&Measured> =
            all.iter().filter(|one| one.shape.operation == *operation).collect();
        let Some(first) = of_operation.first() else { continue };
        let name = figure(*operation, first.shape.ranks, engine);
        let Some(figure) = part.figures.iter_mut().find(|known| known.name == name) else {
            continue;
        };
        figure.series.retain(|series| !is_by_sharing(&series.name));
        for one in of_operation {
            let Some(microseconds) = model.predict(one) else { continue };
            let point = Point::exact(one.shape.bytes as f64, microseconds);
            figure.add(&by_sharing(&curve(&one.plan)), Role::Predicted, point);
        }
    }
}

/// Relative errors by operation, algorithm, ranks, engine and model.
#[derive(Default)]
struct Errors(BTreeMap<(Collective, Algorithm, u32, &'static str, &'static str), Vec<f64>>);

impl Errors {
    fn add(&mut self, part: &Part, all: &[Measured], engine: EngineKind) {
        for one in all {
            let operation = one.shape.operation;
            let Some(figure) = part.figure(&figure(operation, one.shape.ranks, engine)) else {
                continue;
            };
            let name = curve(&one.plan);
            for (model, predicted) in [("pLogP", by_plogp(&name)), ("sharing", by_sharing(&name))] {
                let Some(predicted) = value(figure, &predicted, one.shape.bytes) else { continue };
                let key = (operation, one.plan.algorithm, one.shape.ranks, engine.name(), model);
                self.0.entry(key).or_default().push((predicted / one.microseconds - 1.0).abs());
            }
        }
    }

    fn rows(&self) -> Vec<Vec<Value>> {
        let row = |((operation, algorithm, ranks, engine, model), errors): (
            &(_, _, _, _, _),
            &Vec<f64>,
        )| {
            let (operation, algorithm): (&Collective, &Algorithm) = (operation, algorithm);
            let (ranks, engine, model): (&u32, &&str, &&str) = (ranks, engine, model);
            let fitted = *model == "sharing" && is_fitted(*operation, *algorithm);
            vec![
                operation.name().into(),
                algorithm.name().into(),
                f64::from(*ranks).into(),
                (*engine).into(),
                (*model).into(),
                median(errors).into(),
                worst(errors).into(),
                (errors.len() as f64).into(),
                if fitted { "fitted" } else { "predicted" }.into(),
            ]
        };
        self.0.iter().map(row).collect()
    }

    /// Over the algorithms of tables 1 and 2, and over all others.
    fn summary(&self) -> Vec<Vec<Value>> {
        let mut groups: BTreeMap<(bool, u32, &str, &str), Vec<f64>> = BTreeMap::new();
        for ((operation, algorithm, ranks, engine, model), errors) in &self.0 {
            if *model == "sharing" && is_fitted(*operation, *algorithm) {
                continue;
            }
            let further = !is_of_tables(*operation, *algorithm);
            groups.entry((further, *ranks, engine, model)).or_default().extend(errors);
        }
        let row =
            |((further, ranks, engine, model), errors): ((bool, u32, &str, &str), Vec<f64>)| {
                let which = if further { "all others" } else { "tables 1 and 2" };
                let numbers = [median(&errors), worst(&errors), errors.len() as f64];
                let words: [Value; 4] =
                    [which.into(), f64::from(ranks).into(), engine.into(), model.into()];
                words.into_iter().chain(numbers.map(Value::from)).collect()
            };
        groups.into_iter().map(row).collect()
    }
}

/// Returns true if the paper has the algorithm in its tables 1 and 2.
fn is_of_tables(operation: Collective, algorithm: Algorithm) -> bool {
    use Algorithm as A;
    match operation {
        Collective::Bcast => {
            !matches!(algorithm, A::Dary | A::ScatterAllgather | A::TwoTree | A::Join)
        }
        Collective::Scatter => algorithm != A::Join,
        _ => false,
    }
}

fn worst(errors: &[f64]) -> f64 {
    errors.iter().copied().fold(0.0, f64::max)
}

/// A curve's value at a size.
fn value(figure: &Figure, curve: &str, bytes: u64) -> Option<f64> {
    let points = &figure.curve(curve)?.points;
    points.iter().find(|point| point.x as u64 == bytes).map(|point| point.median)
}

fn rows_of(ranks: u32, constants: &Constants) -> Vec<Vec<Value>> {
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
        rows.extend(
            KNOTS
                .iter()
                .zip(curve.0)
                .map(|(knot, cost)| row(what, Value::from(*knot as f64), cost)),
        );
    }
    rows
}

/// γ, fitted to every other size and tested on the others, for each kind of bounds that there is.
fn ratios(
    part: &Part,
    all: &[Measured],
    ranks: u32,
    engine: EngineKind,
    cores: usize,
) -> Vec<Vec<Value>> {
    let Some(figure) = part.figure(&figure(Collective::Alltoall, ranks, engine)) else {
        return Vec::new();
    };
    let direct: Vec<&Measured> = all
        .iter()
        .filter(|one| {
            one.shape.operation == Collective::Alltoall
                && one.plan.algorithm == Algorithm::RotatedDirect
        })
        .collect();
    let published = |one: &Measured| {
        let bound = |name| value(figure, name, one.shape.bytes);
        Some(Bounds { lower: bound(LOWER)?, upper: bound(UPPER)? })
    };
    // The sizes that γ is tested on have no part in anything that it is fitted with.
    let others = all.iter().filter(|one| one.shape.operation != Collective::Alltoall);
    let model = if engine == EngineKind::Peers { Model::of(others, cores) } else { None };
    let shared = |one: &Measured| {
        let model = model.as_ref()?;
        let work = bounds(&program(one)?, model.cores, &model.constants).work;
        Some(Bounds { lower: work, upper: work * model.cores as f64 })
    };
    let words = (ranks, engine);
    let rows =
        [ratio(words, "table 3", &direct, published), ratio(words, "sharing", &direct, shared)];
    rows.into_iter().flatten().collect()
}

fn ratio(
    (ranks, engine): (u32, EngineKind),
    which: &str,
    direct: &[&Measured],
    bounds: impl Fn(&Measured) -> Option<Bounds>,
) -> Option<Vec<Value>> {
    let sample = |one: &&Measured| {
        let sample = ContentionSample { bounds: bounds(one)?, measured: one.microseconds };
        Some((one.shape.bytes, sample))
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
    Some(vec![
        f64::from(ranks).into(),
        engine.name().into(),
        which.into(),
        found.ratio.into(),
        format!("{:.2} to {:.2}", found.lower_quartile, found.upper_quartile).into(),
        sizes(0).into(),
        sizes(1).into(),
        if errors.is_empty() { Value::None } else { median(&errors).into() },
        if errors.is_empty() { Value::None } else { worst(&errors).into() },
    ])
}

/// Small sizes that take longer than the next larger one.
fn anomalies(part: &Part) -> Vec<Vec<Value>> {
    const LARGEST: f64 = 4096.0;
    const LONGER: f64 = 1.2;
    let mut rows = Vec::new();
    for figure in &part.figures {
        for series in figure.series.iter().filter(|series| series.role == Role::Measured) {
            for pair in series.points.windows(2) {
                if pair[0].x <= LARGEST && pair[0].median > LONGER * pair[1].median {
                    let mut words = figure.name.rsplitn(3, '-');
                    let _ = words.next();
                    let ranks = words.next();
                    let operation = words.next();
                    rows.push(vec![
                        operation.unwrap_or_default().into(),
                        series.name.as_str().into(),
                        ranks.unwrap_or_default().into(),
                        pair[0].x.into(),
                        pair[0].median.into(),
                        pair[1].x.into(),
                        pair[1].median.into(),
                    ]);
                }
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_visit_counts() {
        let points =
            [(8.0, 3.0), (64.0, 2.0), (8.0, 1.0), (64.0, 2.5)].map(|(x, y)| Point::exact(x, y));
        let mut series =
            Series { name: "ring".into(), role: Role::Measured, points: points.to_vec() };
        keep_the_faster(&mut series);
        let kept: Vec<(f64, f64)> =
            series.points.iter().map(|point| (point.x, point.median)).collect();
        assert_eq!(kept, [(8.0, 1.0), (64.0, 2.0)]);
    }
}
