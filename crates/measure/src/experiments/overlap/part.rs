//! Overlap as a part of the suite: both engines over the same computation, and between nodes the
//! engine of nonblocking calls against progress in calls only, over the number of ranks, too.

use super::plan::steps;
use super::row::OverlapRow;
use crate::experiments::entry::SuiteEntry;
use crate::harness::Experiment;
use crate::results::{Axis, Figure, Part, Point, Role, Table, Value, values};
use crate::rows::Run;
use models::decision::CallForm;

/// A figure's name, its title, and what of a row it shows.
type Shown = (&'static str, &'static str, fn(&OverlapRow) -> f64);
const FIGURES: [Shown; 4] = [
    ("alone", "Time of the collective alone", |row| row.alone_us),
    ("exposed", "Time that the collective adds to a computation", |row| row.exposed_us),
    ("stolen", "Processor time that the collective takes", |row| row.stolen_us),
    ("overlap", "Share of the collective that the computation hides", |row| row.overlap),
];
/// Sizes that are shown against the number of ranks.
const SHOWN: [u64; 3] = [0, 8, 1 << 14];
/// The experiment.
pub const ENTRY: SuiteEntry = SuiteEntry {
    name: "overlap",
    title: "Overlap",
    about: "Every rank starts a collective, computes for a fixed number of steps without another call, and \
            waits; what that takes more than the computation alone is the exposed time. Both engines \
            compute equally long. Engine caller: a rank executes its operations in its own calls. Engine \
            peers: the rank that completes an operation also executes those that depend on it. Between \
            nodes the baseline is progress in calls only: the blocking call, after the computation. \
            Compare exposed times: overlap in percent favours slow collectives.",
    source: "Schneider et al. 2011, sections 4.2 and 4.3; Hoefler, Lumsdaine and Rehm, SC 2007",
    steps: |setting| Experiment::new(ENTRY.name, setting, steps(setting)),
    view,
};

fn view(run: &Run, part: &mut Part) {
    let rows = OverlapRow::all(run.rows());
    let is_between_nodes = run.rows().any(|row| row.nodes > 1);
    for (name, title, value) in FIGURES {
        let y = match name {
            "overlap" => Axis { unit: "%".to_owned(), ..Axis::number("overlap") },
            _ => Axis::microseconds("time"),
        };
        let x = Axis::bytes("size").logarithmic();
        let mut by_size = Figure::new(name, title, x, y.clone());
        let title = format!("{title}, against the number of ranks");
        let x = Axis::number("number of ranks");
        let mut by_ranks = Figure::new(&format!("{name}-ranks"), &title, x, y);
        for (row, form) in &rows {
            let engine = row.engine_in_words(*form);
            let point = |x| Point { repetitions: row.repetitions, ..Point::exact(x, value(row)) };
            if row.op.has_data() {
                let ranks =
                    if is_between_nodes { format!(", {} ranks", row.ranks) } else { String::new() };
                let curve = format!("{}{ranks}, {engine}", row.op);
                by_size.add(&curve, Role::Measured, point(row.bytes as f64));
            }
            if is_between_nodes && SHOWN.contains(&row.bytes) {
                let bytes =
                    if row.bytes > 0 { format!(" of {} bytes", row.bytes) } else { String::new() };
                let curve = format!("{}{bytes}, {engine}", row.op);
                by_ranks.add(&curve, Role::Measured, point(row.ranks.into()));
            }
        }
        part.figures.extend([by_size, by_ranks]);
    }
    part.tables.push(Table::new(
        ["rows", "Every collective"],
        "collective | ranks | bytes | engine | algorithm | alone (µs) | computation (µs) | total (µs) | \
         exposed (µs) | 10 % (µs) | 90 % (µs) | overlap (%) | unattended (%) | CPU stolen (µs) | repetitions",
        "Medians; the tenths are those of the exposed time. Below zero: lost in the noise.",
        rows.iter().map(|(row, form)| listed(row, *form)).collect(),
    ));
}

fn listed(row: &OverlapRow, form: CallForm) -> Vec<Value> {
    values![
        row.op.name(),
        row.ranks,
        row.bytes,
        row.engine_in_words(form),
        row.algorithm.as_str(),
        row.alone_us,
        row.compute_us,
        row.total_us,
        row.exposed_us,
        row.p10_us,
        row.p90_us,
        row.overlap,
        row.unattended * 100.0,
        row.stolen_us,
        row.repetitions,
    ]
}
