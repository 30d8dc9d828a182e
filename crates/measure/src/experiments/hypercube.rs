//! Ranks that take themselves for a hypercube and exchange messages over all of its dimensions, one
//! after the other (Bokhari 1995, section 5, figure 3). The emulation succeeds if the time grows
//! linearly with the dimension.

use super::curves::{FittedCurve, Scaled, crowd, drawn, point};
use super::entry::SuiteEntry;
use super::pairs::{ExchangeCase, LONGEST};
use crate::harness::{Experiment, JobShape, Setting};
use crate::results::{Axis, Figure, Part, Table, values};
use crate::rows::{Pairs, Pattern, Row, Run};

/// Lengths that are shown against the dimension too.
const SHOWN: [u64; 3] = [0, 4_000, LONGEST];

/// The experiment.
pub const ENTRY: SuiteEntry = SuiteEntry {
    name: "hypercube",
    title: "Hypercube emulation",
    about: "Among 2^d ranks, rank j exchanges a message with rank j xor 2^i, for i from 0 to d - 1 one \
            after the other. A point is the time of all d exchanges, for each batch that of the slowest \
            rank. On a hypercube it would grow linearly with d.",
    source: "Bokhari 1995, section 5 and figure 3",
    steps,
    view,
};

fn steps(setting: &Setting) -> Experiment {
    // More would only measure turns of the scheduler: four ranks a core, at most 64.
    let most = match &setting.nodes {
        None => (4 * setting.cores.len() as u32).clamp(2, 64).ilog2(),
        Some(nodes) => nodes.size().min(64).ilog2(),
    };
    let case = ExchangeCase::new(Pairs::Hypercube, Pattern::Exchange);
    let steps = (1..=setting.choose(2.min(most), most)).flat_map(|dimension| {
        let shape = JobShape::bound(setting, 1 << dimension);
        case.sweep(setting, &shape, &format!("dimension {dimension}"), 4_000)
    });
    Experiment::new(ENTRY.name, setting, steps).noting_crowds()
}

fn view(run: &Run, part: &mut Part) {
    let time = "time of all dimensions";
    let by_bytes = Figure::by_length("emulation", "Exchange over all dimensions", time);
    part.figures.push(drawn(by_bytes, run.rows(), |row| {
        let curve = format!("dimension {}{}", dimension(row), crowd(row));
        Some((curve, point(row, row.bytes as f64, 1.0)))
    }));
    let y = Axis::microseconds(time).logarithmic();
    let title = "Exchange against the dimension";
    let by_dimension = Figure::new("dimensions", title, Axis::number("dimension"), y);
    let shown = run.rows().filter(|row| SHOWN.contains(&row.bytes));
    let mut by_dimension = drawn(by_dimension, shown, |row| {
        Some((format!("{} bytes", row.bytes), point(row, f64::from(dimension(row)), 1.0)))
    });
    let lines = FittedCurve::all(&by_dimension, |point| point.median);
    by_dimension.series.extend(lines.iter().map(|line| line.series(2)));
    part.figures.push(by_dimension);
    let listed = |one: &Scaled<'_>| {
        let Scaled { row, time, ratio } = *one;
        values![row.bytes, dimension(row), row.median(), time, ratio]
    };
    part.tables.push(Table::new(
        ["linearity", "Time of a dimension"],
        "bytes | dimension | time (µs) | time a dimension (µs) | over that of dimension 1",
        "Medians over all dimensions, divided by the dimension: the same in each row if the emulation \
         were perfect.",
        linearity(run).iter().map(listed).collect(),
    ));
}

/// Times a dimension of the lengths that are shown against the dimension.
pub(super) fn linearity(run: &Run) -> Vec<Scaled<'_>> {
    let shown = run.rows().filter(|row| SHOWN.contains(&row.bytes));
    Scaled::all(shown, |row| f64::from(dimension(row)))
}

/// The dimension of the hypercube.
pub(super) fn dimension(row: &Row) -> u32 {
    row.ranks.max(2).ilog2()
}
