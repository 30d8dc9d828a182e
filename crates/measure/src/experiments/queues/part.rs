//! Queues as a part of the suite: every case of a [`Plan`] is a step.

use super::crossover::Crossover;
use super::measure::measure;
use super::plan::{Case, Plan};
use super::row::QueueRow;
use crate::experiments::entry::SuiteEntry;
use crate::harness::{Experiment, JobShape, Setting, Step};
use crate::results::{Axis, Figure, Part, Point, Role, Series, Table, Value, values};
use crate::rows::Run;
use models::statistics::{Deciles as Spread, median};
use tradewind::EngineKind;

/// A figure's name, its title, and what of a row it shows.
type Shown = (&'static str, &'static str, fn(&QueueRow) -> Option<Spread>);
const FIGURES: [Shown; 4] = [
    ("latency", "Half a round trip", |row| row.latency_ns),
    ("gap", "A message in a stream", |row| row.gap_ns),
    ("send", "Sender's overhead", |row| row.send_ns),
    ("receive", "Receiver's overhead", |row| row.receive_ns),
];
/// Spreads of a row, each in three columns.
const SPREADS: [&str; 6] = ["send", "receive", "latency", "gap", "floor", "ratio"];

/// The experiment.
pub const ENTRY: SuiteEntry = SuiteEntry {
    name: "queues",
    title: "Queues",
    about: "Overhead, latency and gap of every mechanism of the queues. In each round a mechanism takes \
            turns with the floor: half a round trip of a bare word, in a cache line for each direction. \
            Send and receive: batches with space, and batches that wait. Latency: half a round trip. Gap: a \
            message in a stream. A point is the median of the rounds.",
    source: "Culler et al. 1993; Ang et al. 1996, figures 4 to 7",
    steps,
    view,
};

/// The steps of the plan in the setting's options, or of the suite's own.
fn steps(setting: &Setting) -> Experiment {
    let mut plan =
        Plan::of_options(&setting.options).unwrap_or_else(|| Plan::of_suite(setting.quick));
    if setting.nodes.is_some() {
        plan.mechanisms.retain(|mechanism| mechanism.crosses_nodes());
    }
    let shape = JobShape::bound(setting, 2).with_engine(EngineKind::Caller);
    if shape.is_crowded() {
        // The floor and remote memory are polled, each rank for as long as the scheduler lets it.
        let why = format!(
            "Not measured: {}, and the machine's floor takes a core for each rank.",
            shape.describe()
        );
        return Experiment::not_here(ENTRY.name, setting, &why);
    }
    let extent = plan.extent();
    let milliseconds = plan.row_ms + 5;
    let steps = plan.cases().into_iter().map(|case| {
        let Case { mechanism, threads, bytes, .. } = case;
        let what = format!("{mechanism}, {threads} threads, {bytes} B");
        Step::new(what, shape.clone(), milliseconds, move |here| measure(here, case, extent))
    });
    Experiment::new(ENTRY.name, setting, steps)
}

/// Shows nothing where nothing could be measured.
fn view(run: &Run, part: &mut Part) {
    let rows = QueueRow::all(run);
    if rows.is_empty() {
        return;
    }
    part.figures = FIGURES.iter().map(|shown| figure(shown, &rows)).collect();
    part.figures[0].series.extend(floor(&rows));
    part.tables = vec![table(&rows), crossovers(&rows)];
}

fn figure((name, title, spread): &Shown, rows: &[QueueRow]) -> Figure {
    let y =
        Axis { label: "time".to_owned(), unit: "ns".to_owned(), ..Axis::number("") }.logarithmic();
    let mut figure = Figure::new(name, title, Axis::bytes("size").logarithmic(), y);
    for row in rows {
        let Some(spread) = spread(row) else { continue };
        let threads =
            if row.threads == 1 { String::new() } else { format!(", {} threads", row.threads) };
        let curve = format!("{}{threads}", row.mechanism);
        let point = Point::exact(row.bytes as f64, spread.median);
        figure.add(&curve, Role::Measured, Point { repetitions: row.rounds, ..point });
    }
    figure
}

/// The curve of the machine's floor beneath all latencies.
fn floor(rows: &[QueueRow]) -> Option<Series> {
    let floors: Vec<f64> = rows.iter().filter_map(|row| Some(row.floor_ns?.median)).collect();
    let sizes = rows.iter().filter(|row| row.floor_ns.is_some()).map(|row| row.bytes);
    let least = sizes.clone().min()?;
    let most = sizes.max()?;
    let mut points = vec![Point::exact(least as f64, median(&floors))];
    if most > least {
        points.push(Point { x: most as f64, ..points[0] });
    }
    Some(Series { name: "floor".to_owned(), role: Role::Floor, points })
}

fn table(rows: &[QueueRow]) -> Table {
    let mut columns = "mechanism | threads | bytes".to_owned();
    for name in SPREADS {
        columns.extend(["median", "10 %", "90 %"].map(|part| format!(" | {name} {part} (ns)")));
    }
    columns.push_str(" | bandwidth (MB/s) | processor (%) | rounds | round trips");
    let caption = "Ratio is latency over floor, round by round, and has no unit.";
    Table::new(["rows", "Every mechanism"], &columns, caption, rows.iter().map(listed).collect())
}

fn crossovers(rows: &[QueueRow]) -> Table {
    let words = |one: &Crossover| values![one.threads, one.to_string()];
    let rows = Crossover::all(rows).iter().map(words).collect();
    let title = "Where one mechanism takes over from another";
    Table::new(["crossovers", title], "threads | in words", "", rows)
}

fn listed(row: &QueueRow) -> Vec<Value> {
    let spreads =
        [row.send_ns, row.receive_ns, row.latency_ns, row.gap_ns, row.floor_ns, row.ratio];
    let spreads = spreads.into_iter().flat_map(|spread| {
        let of = |one: fn(Spread) -> f64| spread.map(one);
        values![of(|spread| spread.median), of(|spread| spread.p10), of(|spread| spread.p90)]
    });
    let rest =
        values![row.megabytes_per_second, row.processor_percent, row.rounds, row.round_trips];
    values![row.mechanism.name(), row.threads, row.bytes]
        .into_iter()
        .chain(spreads)
        .chain(rest)
        .collect()
}
