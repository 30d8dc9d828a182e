//! Time of a barrier on 2^d ranks (Bokhari 1995, section 3): a × d + b.

use super::curves::{FittedCurve, crowd, drawn, point};
use super::entry::SuiteEntry;
use crate::harness::timer::{Batches, calls};
use crate::harness::{Error, Experiment, JobShape, Setting, Step, StepContext};
use crate::results::{Axis, Figure, Part, Table, Value, values};
use crate::rows::{Quantity, Row, Run, What};
use collectives::{Choice, Collective};
use models::fit::Line;
use tradewind::{Algorithm, Algorithms, CallForm, Communicator};

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
pub const ENTRY: SuiteEntry = SuiteEntry {
    name: "barrier",
    title: "Barrier on 2^d ranks",
    about: "Every rank calls the barrier in a loop; a point is the time of one barrier, for each batch \
            that of the slowest rank. The line a × d + b goes through the minima, as in the report: the \
            minima are the times that are least disturbed where others interfere. Join is one flat \
            collective in shared memory, dissemination takes d rounds of messages. Between nodes there \
            is no join, and blocking and nonblocking calls have different engines.",
    source: "Bokhari 1995, section 3 and table 1",
    steps,
    view,
};

fn steps(setting: &Setting) -> Experiment {
    let batches = setting.choose(
        Batches { rounds: 7, microseconds: 300.0 },
        Batches { rounds: 41, microseconds: 5_000.0 },
    );
    let (dimensions, calls) = match &setting.nodes {
        None => (0..=setting.choose(2, DIMENSIONS), ON_ONE_NODE),
        Some(nodes) => (1..=nodes.size().ilog2().min(DIMENSIONS), BETWEEN_NODES),
    };
    let steps = dimensions.map(|dimension| {
        let shape = JobShape::bound(setting, 1 << dimension);
        let milliseconds = batches.milliseconds() * calls.len() as u64;
        Step::new(shape.describe(), shape, milliseconds, move |here| {
            calls.iter().map(|call| measure(here, *call, batches)).collect::<Result<Vec<_>, _>>()
        })
    });
    Experiment::new(ENTRY.name, setting, steps).noting_crowds()
}

fn measure(
    here: &StepContext<'_>,
    (algorithm, form): (Algorithm, CallForm),
    batches: Batches,
) -> Result<Row, Error> {
    let algorithms = Algorithms { barrier: Some(algorithm), ..Algorithms::default() };
    let world = here.world.with_algorithms(algorithms);
    let times = batches.time(&world, &mut calls(|| barrier(&world, form)))?;
    let engine = world.explain_form(form, Collective::Barrier, 0).engine.parse()?;
    let row = here.row(What::Collective(Collective::Barrier), Quantity::Alone, times);
    Ok(row.by(engine, form, Some(Choice::of(algorithm))))
}

fn barrier(world: &Communicator, form: CallForm) -> Result<(), Error> {
    match form {
        CallForm::Blocking => world.barrier()?,
        CallForm::Nonblocking => world.ibarrier()?.wait()?,
    }
    Ok(())
}

fn view(run: &Run, part: &mut Part) {
    let mut figure = figure(run);
    let fits = fits(&figure);
    figure.series.extend(fits.iter().map(|fit| fit.series(3)));
    part.figures.push(figure);
    part.tables.push(Table::new(
        ["fits", "a × d + b"],
        "algorithm | ranks | a (µs) | error of a (µs) | b (µs) | error of b (µs)",
        "Through the minima; errors are one standard error. Where ranks share cores, a barrier waits \
         for turns of the scheduler, and those points have a line of their own.",
        fits.iter().map(listed).collect(),
    ));
}

/// Time against the dimension.
pub(super) fn figure(run: &Run) -> Figure {
    let y = Axis::microseconds("time of a barrier").logarithmic();
    let figure = Figure::new("time", "Barrier", Axis::number("dimension d of 2^d ranks"), y);
    drawn(figure, run.rows(), |row| {
        let mut curve = row.algorithm?.algorithm.name().to_owned();
        if let (true, Some(form), Some(engine)) = (row.nodes > 1, row.form, row.engine) {
            curve.push_str(&format!(", {form}, {engine}"));
        }
        Some((curve + crowd(row), point(row, f64::from(row.ranks.ilog2()), 1.0)))
    })
}

/// A line through the minima of each curve.
pub(super) fn fits(figure: &Figure) -> Vec<FittedCurve> {
    FittedCurve::all(figure, |point| point.minimum.unwrap_or(point.median))
}

/// Numbers of ranks that a line goes through.
pub(super) fn ranks(fit: &FittedCurve) -> String {
    let ranks = fit.points.iter().map(|(dimension, _)| (1_u32 << *dimension as u32).to_string());
    ranks.collect::<Vec<_>>().join(", ")
}

fn listed(fit: &FittedCurve) -> Vec<Value> {
    let Line { slope, slope_error, intercept, intercept_error, .. } = fit.line;
    let [slope_error, intercept_error] = [slope_error, intercept_error].map(Value::finite);
    values![fit.curve.as_str(), ranks(fit), slope, slope_error, intercept, intercept_error]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Role;

    fn run(times: impl IntoIterator<Item = (u32, Vec<f64>)>) -> Run {
        let barrier = What::Collective(Collective::Barrier);
        Run::of(times.into_iter().map(|(ranks, times)| {
            let algorithm = Some(Choice::of(Algorithm::Join));
            Row { algorithm, ..Row::trial(barrier.clone(), ranks, 0, &times) }
        }))
    }

    /// Table 1: 126 d − 113 for the Paragon, 72 d − 52 for the SP2 through the minima of scattered
    /// times, 17 d − 5.6 for the CS-2.
    #[test]
    fn the_machines_of_the_report_are_found_again() {
        for (slope, intercept, dimensions) in
            [(126.0, -113.0, 8), (72.0, -52.0, 6), (17.0, -5.6, 6)]
        {
            let part = ENTRY.part(&run((0..=dimensions).map(|dimension| {
                // A single rank does not synchronise.
                let least =
                    if dimension == 0 { 0.25 } else { intercept + slope * f64::from(dimension) };
                // Other processes make it longer, now and then by much.
                (1 << dimension, vec![least, 1.1 * least, 1.3 * least, 5.0 * least])
            })));
            let row = &part.table("fits").expect("it is there").rows[0];
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
        let part = ENTRY.part(&run([(1, vec![1.0]), (2, vec![1.0])]));
        assert!(part.table("fits").is_some_and(|table| table.rows.is_empty()));
        assert_eq!(part.figures[0].series.len(), 1);
    }
}
