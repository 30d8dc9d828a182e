//! Time of a barrier on 2^d ranks (Bokhari 1995, section 3): a × d + b.

use crate::harness::timer::{Batches, calls};
use crate::harness::{Error, Experiment, Finding, JobShape, Setting, Step, StepContext};
use crate::results::{Axis, Figure, Part, Point, Role, Series, Table, Value};
use collectives::Collective;
use tradewind::{Algorithm, Algorithms, CallForm, Communicator};

const FIGURE: &str = "time";
const TABLE: &str = "fits";
/// The largest number of ranks is 2 to the power of this.
const DIMENSIONS: u32 = 5;
/// Curves: the library's own choice, and the classical algorithm of messages.
const ON_ONE_NODE: [(Algorithm, CallForm); 2] =
    [(Algorithm::Join, CallForm::Blocking), (Algorithm::Dissemination, CallForm::Blocking)];
/// Between nodes each form of a call has an engine of its own.
const BETWEEN_NODES: [(Algorithm, CallForm); 2] = [
    (Algorithm::Dissemination, CallForm::Blocking),
    (Algorithm::Dissemination, CallForm::Nonblocking),
];

/// The experiment.
pub fn experiment(setting: &Setting) -> Experiment {
    let batches = setting.choose(
        Batches { rounds: 7, microseconds: 300.0 },
        Batches { rounds: 41, microseconds: 5_000.0 },
    );
    let (dimensions, calls) = match &setting.nodes {
        None => (0..=setting.choose(2, DIMENSIONS), ON_ONE_NODE),
        Some(nodes) => (1..=nodes.size().ilog2().min(DIMENSIONS), BETWEEN_NODES),
    };
    let crowded: Vec<String> = dimensions
        .clone()
        .map(|d| JobShape::bound(setting, 1 << d))
        .filter(JobShape::is_crowded)
        .map(|s| s.describe())
        .collect();
    let steps = dimensions.map(|dimension| {
        let shape = JobShape::bound(setting, 1 << dimension);
        let milliseconds = batches.milliseconds() * calls.len() as u64;
        Step::new(shape.describe(), shape, milliseconds, move |here| {
            measure(here, dimension, calls, batches)
        })
    });
    Experiment::new(outline(&crowded), steps).concluding(conclude)
}

fn outline(crowded: &[String]) -> Part {
    let mut part = Part::new("barrier", "Barrier on 2^d ranks");
    part.about = "Every rank calls the barrier in a loop; a point is the time of one barrier, for \
                  each batch that of the slowest rank. The line a × d + b goes through the minima, \
                  as in the report: the minima are the times that are least disturbed where others \
                  interfere. Join is one flat collective in shared memory, dissemination \
                  takes d rounds of messages. Between nodes there is no join, and blocking and \
                  nonblocking calls have different engines."
        .to_owned();
    part.source = "Bokhari 1995, section 3 and table 1".to_owned();
    let y = Axis::microseconds("time of a barrier").logarithmic();
    part.figures.push(Figure::new(FIGURE, "Barrier", Axis::number("dimension d of 2^d ranks"), y));
    part.tables.push(Table {
        name: TABLE.to_owned(),
        title: "a × d + b".to_owned(),
        caption:
            "Through the minima; errors are one standard error. Where ranks share cores, a barrier \
                  waits for turns of the scheduler, and those points have a line of their own."
                .to_owned(),
        columns: ["algorithm", "ranks", "a (µs)", "error of a (µs)", "b (µs)", "error of b (µs)"]
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
    ways: [(Algorithm, CallForm); 2],
    batches: Batches,
) -> Result<Vec<Finding>, Error> {
    let curve = |(algorithm, form): (Algorithm, CallForm)| {
        let algorithms = Algorithms { barrier: Some(algorithm), ..Algorithms::default() };
        let world = here.world.with_algorithms(algorithms);
        let times = batches.time(&world, &mut calls(|| barrier(&world, form)))?;
        let mut name = algorithm.name().to_owned();
        if here.shape.nodes.is_some() {
            let engine = world.explain_form(form, Collective::Barrier, 0).engine;
            name.push_str(&format!(", {form}, {engine}"));
        }
        if here.shape.is_crowded() {
            name.push_str(", more ranks than cores");
        }
        Ok(Finding::measured(FIGURE, &name, Point::of(f64::from(dimension), &times)))
    };
    ways.into_iter().map(curve).collect()
}

fn barrier(world: &Communicator, form: CallForm) -> Result<(), Error> {
    match form {
        CallForm::Blocking => world.barrier()?,
        CallForm::Nonblocking => world.ibarrier()?.wait()?,
    }
    Ok(())
}

/// Fits a line through the minima of each curve. A single rank does not synchronise: it
/// takes no part.
fn conclude(part: &mut Part) -> Result<(), Error> {
    let measured = part.figure(FIGURE).map(|figure| figure.series.clone()).unwrap_or_default();
    let mut lines = Vec::new();
    let mut rows = Vec::new();
    for series in measured.iter().filter(|series| series.role == Role::Measured) {
        let points: Vec<&Point> = series.points.iter().filter(|point| point.x > 0.0).collect();
        let (Some(first), Some(last)) = (points.first(), points.last()) else { continue };
        let minima: Vec<_> = points
            .iter()
            .map(|point| (1 << point.x as u32, point.minimum.unwrap_or(point.median)))
            .collect();
        // One machine size has no line.
        let Ok(line) = models::fit::barrier(&minima) else { continue };
        let at = |x: f64| Point::exact(x, line.at(x));
        let points =
            if first.x == last.x { vec![at(first.x)] } else { vec![at(first.x), at(last.x)] };
        lines.push(Series {
            name: format!("{}: {:.3} d {:+.3}", series.name, line.slope, line.intercept),
            role: Role::Fitted,
            points,
        });
        let error = |value: f64| if value.is_finite() { Value::Number(value) } else { Value::None };
        rows.push(vec![
            series.name.as_str().into(),
            minima.iter().map(|(ranks, _)| ranks.to_string()).collect::<Vec<_>>().join(", ").into(),
            line.slope.into(),
            error(line.slope_error),
            line.intercept.into(),
            error(line.intercept_error),
        ]);
    }
    part.replace_series(FIGURE, Role::Fitted, lines);
    part.replace_rows(TABLE, rows);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 1: 126 d − 113 for the Paragon, 72 d − 52 for the SP2 through the minima of scattered
    /// times, 17 d − 5.6 for the CS-2.
    #[test]
    fn the_machines_of_the_report_are_found_again() {
        for (slope, intercept, dimensions) in
            [(126.0, -113.0, 8), (72.0, -52.0, 6), (17.0, -5.6, 6)]
        {
            let mut part = outline(&[]);
            for dimension in (1..=dimensions).map(f64::from) {
                let least = intercept + slope * dimension;
                // Other processes make it longer, now and then by much.
                let point = Point::of(dimension, &[least, 1.1 * least, 1.3 * least, 5.0 * least]);
                part.figures[0].add("join", Role::Measured, point);
            }
            conclude(&mut part).expect("it can be fitted");
            let row = &part.table(TABLE).expect("it is there").rows[0];
            let near = |column: usize, expected: f64| matches!(row[column], Value::Number(found) if (found - expected).abs() < 1e-9);
            assert!(near(2, slope) && near(4, intercept), "{row:?}");
            let line = part.figures[0]
                .series
                .iter()
                .find(|curve| curve.role == Role::Fitted)
                .expect("it is drawn");
            assert_eq!(line.points.len(), 2);
            assert!((line.points[0].median - (intercept + slope)).abs() < 1e-9);
        }
    }

    #[test]
    fn one_number_of_ranks_has_no_line() {
        let mut part = outline(&[]);
        part.figures[0].add("join", Role::Measured, Point::of(0.0, &[1.0]));
        part.figures[0].add("join", Role::Measured, Point::of(1.0, &[1.0]));
        conclude(&mut part).expect("nothing to be fitted is no error");
        assert!(part.table(TABLE).is_some_and(|table| table.rows.is_empty()));
    }
}
