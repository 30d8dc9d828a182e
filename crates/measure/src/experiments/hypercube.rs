//! Ranks that take themselves for a hypercube and exchange messages over all of its dimensions, one
//! after the other (Bokhari 1995, section 5, figure 3). The emulation succeeds if the time grows
//! linearly with the dimension.

use crate::harness::timer::{Batches, calls};
use crate::harness::{Error, Experiment, Finding, JobShape, Setting, Step, StepContext};
use crate::pairs::{Exchange, Pattern, Receive};
use crate::results::{Axis, Figure, Part, Point, Role, Series, Table, Value};
use models::fit::{self, Weights};

const BY_BYTES: &str = "emulation";
const BY_DIMENSION: &str = "dimensions";
const TABLE: &str = "linearity";
/// Lengths that are shown against the dimension too.
const SHOWN: [u64; 3] = [0, 4_000, 16_000];

/// The experiment.
pub fn experiment(setting: &Setting) -> Experiment {
    let batches = setting.choose(
        Batches { rounds: 3, microseconds: 200.0 },
        Batches { rounds: 21, microseconds: 5_000.0 },
    );
    // More would only measure turns of the scheduler: four ranks a core, at most 64.
    let most = match &setting.nodes {
        None => (4 * setting.cores.len() as u32).clamp(2, 64).ilog2(),
        Some(nodes) => nodes.size().min(64).ilog2(),
    };
    let dimensions = 1..=setting.choose(2.min(most), most);
    let mut crowded = Vec::new();
    let mut steps = Vec::new();
    for dimension in dimensions {
        let shape = JobShape::bound(setting, 1 << dimension);
        if shape.is_crowded() {
            crowded.push(shape.describe());
        }
        for bytes in setting.shuffled((0..=16_000).step_by(setting.choose(4_000, 1_000))) {
            let what = format!("dimension {dimension}, {bytes} bytes");
            steps.push(Step::new(what, shape.clone(), batches.milliseconds() + 5, move |here| {
                measure(here, dimension, bytes, batches)
            }));
        }
    }
    Experiment::new(outline(&crowded), steps).concluding(conclude)
}

fn outline(crowded: &[String]) -> Part {
    let mut part = Part::new("hypercube", "Hypercube emulation");
    part.about =
        "Among 2^d ranks, rank j exchanges a message with rank j xor 2^i, for i from 0 to \
                  d - 1 one after the other. A point is the time of all d exchanges, for each batch \
                  that of the slowest rank. On a hypercube it would grow linearly with d."
            .to_owned();
    part.source = "Bokhari 1995, section 5 and figure 3".to_owned();
    let y = || Axis::microseconds("time of all dimensions");
    part.figures.push(Figure::new(
        BY_BYTES,
        "Exchange over all dimensions",
        Axis::bytes("message length"),
        y(),
    ));
    let x = Axis::number("dimension");
    part.figures.push(Figure::new(
        BY_DIMENSION,
        "Exchange against the dimension",
        x,
        y().logarithmic(),
    ));
    part.tables.push(Table {
        name: TABLE.to_owned(),
        title: "Time of a dimension".to_owned(),
        caption:
            "Medians over all dimensions, divided by the dimension: the same in each row if the \
             emulation were perfect."
                .to_owned(),
        columns: [
            "bytes",
            "dimension",
            "time (µs)",
            "time a dimension (µs)",
            "over that of dimension 1",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: Vec::new(),
    });
    if !crowded.is_empty() {
        part.notes
            .push(format!("More ranks than cores, which take turns: {}.", crowded.join(", ")));
    }
    part
}

fn measure(
    here: &StepContext<'_>,
    dimension: u32,
    bytes: u64,
    batches: Batches,
) -> Result<Vec<Finding>, Error> {
    let world = here.world;
    let link = |i| {
        Exchange::link(
            world,
            Some(world.rank() ^ (1_u32 << i)),
            bytes,
            Pattern::Exchange,
            Receive::Posted,
        )
    };
    let mut exchanges = (0..dimension).map(link).collect::<Result<Vec<_>, _>>()?;
    let mut all = calls(|| exchanges.iter_mut().try_for_each(Exchange::once));
    let times = batches.time(world, &mut all)?;
    drop(all);
    exchanges.iter().try_for_each(|exchange| exchange.check(world))?;
    let crowded = if here.shape.is_crowded() { ", more ranks than cores" } else { "" };
    let mut findings = vec![Finding::measured(
        BY_BYTES,
        &format!("dimension {dimension}{crowded}"),
        Point::of(bytes as f64, &times),
    )];
    if SHOWN.contains(&bytes) {
        let point = Point::of(f64::from(dimension), &times);
        findings.push(Finding::measured(BY_DIMENSION, &format!("{bytes} bytes"), point));
    }
    Ok(findings)
}

/// A line through each curve against the dimension, and what each dimension takes.
fn conclude(part: &mut Part) -> Result<(), Error> {
    let curves = part.figure(BY_DIMENSION).map(|figure| figure.series.clone()).unwrap_or_default();
    let mut lines = Vec::new();
    let mut rows = Vec::new();
    for curve in curves.iter().filter(|curve| curve.role == Role::Measured) {
        let points: Vec<(f64, f64)> =
            curve.points.iter().map(|point| (point.x, point.median)).collect();
        let Some(&(first, alone)) = points.first() else { continue };
        if let (Ok(line), Some((last, _))) = (fit::line(&points, Weights::Equal), points.last()) {
            let points = [first, *last].map(|x| Point::exact(x, line.at(x))).to_vec();
            let name = format!("{}: {:.2} d {:+.2}", curve.name, line.slope, line.intercept);
            lines.push(Series { name, role: Role::Fitted, points });
        }
        let bytes = curve.name.split(' ').next().and_then(|bytes| bytes.parse::<f64>().ok());
        rows.extend(points.iter().map(|(dimension, time)| {
            let each = time / dimension;
            let ratio = if first == 1.0 { Value::Number(each / alone) } else { Value::None };
            vec![
                bytes.map_or(Value::None, Value::Number),
                (*dimension).into(),
                (*time).into(),
                each.into(),
                ratio,
            ]
        }));
    }
    rows.sort_by(|one: &Vec<Value>, other| match (&one[0], &other[0]) {
        (Value::Number(one), Value::Number(other)) => one.total_cmp(other),
        _ => std::cmp::Ordering::Equal,
    });
    part.replace_series(BY_DIMENSION, Role::Fitted, lines);
    part.replace_rows(TABLE, rows);
    Ok(())
}
