//! Queues as a part of the suite: every row of a [`Plan`] is a step.

use super::crossover::Crossover;
use super::mechanism::Mechanism;
use super::plan::{Case, LEAST_ROUNDS, Plan};
use super::row::QueueRow;
use super::run::{QueueProgress, run};
use crate::harness::{Error, Experiment, Finding, JobShape, Setting, Step, StepContext};
use crate::results::{Axis, Figure, Part, Point, Table, Value};
use models::statistics::Deciles as Spread;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;
use tradewind::EngineKind;

const ROWS: &str = "rows";
const CROSSOVERS: &str = "crossovers";
/// A figure's name, its title, and what of a row it shows.
type Shown = (&'static str, &'static str, fn(&QueueRow) -> Option<Spread>);
const FIGURES: [Shown; 4] = [
    ("latency", "Half a round trip", |row| row.latency_ns),
    ("gap", "A message in a stream", |row| row.gap_ns),
    ("send", "Sender's overhead", |row| row.send_ns),
    ("receive", "Receiver's overhead", |row| row.receive_ns),
];
/// The curve of the machine's floor.
const FLOOR: &str = "floor";
/// Spreads of a row, each in three columns.
const SPREADS: [&str; 6] = ["send", "receive", "latency", "gap", "floor", "ratio"];

impl Plan {
    /// The plan of the suite: fewer sizes than by default, and each more quickly.
    fn of_suite(quick: bool) -> Self {
        let mut sizes = vec![0, 8, 48];
        sizes.extend((7..=20).step_by(if quick { 13 } else { 1 }).map(|power| 1 << power));
        let threads = if quick { vec![1] } else { vec![1, 2] };
        let row_ms = if quick { 7 } else { 150 };
        Plan { mechanisms: Mechanism::ALL.to_vec(), threads, sizes, rounds: LEAST_ROUNDS, row_ms }
    }

    /// The plan in words, for [`Setting::options`].
    pub fn options(&self) -> BTreeMap<String, String> {
        fn list<T: Display>(items: &[T]) -> String {
            items.iter().map(T::to_string).collect::<Vec<_>>().join(",")
        }
        let words = [
            ("threads", list(&self.threads)),
            ("mechanisms", list(&self.mechanisms)),
            ("sizes", list(&self.sizes)),
            ("rounds", self.rounds.to_string()),
            ("row-ms", self.row_ms.to_string()),
        ];
        words.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The plan of these words; none if they are not those of a plan.
    fn of_options(options: &BTreeMap<String, String>) -> Option<Self> {
        fn list<T: FromStr>(text: &str) -> Option<Vec<T>> {
            text.split(',').map(|item| item.parse().ok()).collect()
        }
        let option = |name: &str| options.get(name);
        Some(Plan {
            mechanisms: list(option("mechanisms")?)?,
            threads: list(option("threads")?)?,
            sizes: list(option("sizes")?)?,
            rounds: option("rounds")?.parse().ok()?,
            row_ms: option("row-ms")?.parse().ok()?,
        })
    }
}

/// The experiment: the plan in the setting's options, or the suite's own.
pub fn experiment(setting: &Setting) -> Experiment {
    let mut plan =
        Plan::of_options(&setting.options).unwrap_or_else(|| Plan::of_suite(setting.quick));
    if setting.nodes.is_some() {
        plan.mechanisms.retain(|mechanism| mechanism.crosses_nodes());
    }
    let shape = JobShape::bound(setting, 2).with_engine(EngineKind::Caller);
    if shape.is_crowded() {
        return Experiment::new(not_here(&shape), []);
    }
    let steps = plan.cases().into_iter().map(|case| {
        let Case { mechanism, threads, bytes } = case;
        let alone = Plan {
            mechanisms: vec![mechanism],
            threads: vec![threads],
            sizes: vec![bytes],
            rounds: plan.rounds,
            row_ms: plan.row_ms,
        };
        let what = format!("{mechanism}, {threads} threads, {bytes} B");
        Step::new(what, shape.clone(), plan.row_ms + 5, move |here| measure(here, &alone))
    });
    let steps: Vec<Step> = steps.collect();
    Experiment::new(outline(), steps).concluding(conclude)
}

fn outline() -> Part {
    let mut part = Part::new("queues", "Queues");
    part.about = "Overhead, latency and gap of every mechanism of the queues. In each round a \
                  mechanism takes turns with the floor: half a round trip of a bare word, in a \
                  cache line for each direction. Send and receive: batches with space, and batches \
                  that wait. Latency: half a round trip. Gap: a message in a stream. A point is \
                  the median of the rounds."
        .to_owned();
    part.source = "Culler et al. 1993; Ang et al. 1996, figures 4 to 7".to_owned();
    for (name, title, _) in FIGURES {
        let y = Axis { label: "time".to_owned(), unit: "ns".to_owned(), ..Axis::number("") }
            .logarithmic();
        part.figures.push(Figure::new(name, title, Axis::bytes("size").logarithmic(), y));
    }
    let spreads = SPREADS
        .iter()
        .flat_map(|name| ["median", "10 %", "90 %"].map(|part| format!("{name} {part} (ns)")));
    let columns = ["mechanism", "threads", "bytes"].map(str::to_owned).into_iter().chain(spreads);
    let rest = ["bandwidth (MB/s)", "processor (%)", "rounds", "round trips"].map(str::to_owned);
    part.tables.push(Table {
        name: ROWS.to_owned(),
        title: "Every mechanism".to_owned(),
        caption: "Ratio is latency over floor, round by round, and has no unit.".to_owned(),
        columns: columns.chain(rest).collect(),
        rows: Vec::new(),
    });
    part.tables.push(Table {
        name: CROSSOVERS.to_owned(),
        title: "Where one mechanism takes over from another".to_owned(),
        caption: String::new(),
        columns: vec!["threads".to_owned(), "in words".to_owned()],
        rows: Vec::new(),
    });
    part
}

/// Two ranks that share a core are not measured: the floor and remote memory are polled, each rank
/// for as long as the scheduler lets it.
fn not_here(shape: &JobShape) -> Part {
    let mut part = outline();
    part.figures.clear();
    part.tables.clear();
    part.notes.push(format!(
        "Not measured: {}, and the machine's floor takes a core for each rank.",
        shape.describe()
    ));
    part
}

fn measure(here: &StepContext<'_>, plan: &Plan) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    run(here.world, plan, |event| match event {
        QueueProgress::Begin(_) => {}
        QueueProgress::Row(row) => findings.extend(found(&row)),
        QueueProgress::Skipped { mechanism, why } => {
            findings.push(Finding::Note(format!("{mechanism} was not measured: {why}.")))
        }
    })?;
    Ok(findings)
}

fn found(row: &QueueRow) -> Vec<Finding> {
    let threads =
        if row.threads == 1 { String::new() } else { format!(", {} threads", row.threads) };
    let curve = format!("{}{threads}", row.mechanism);
    let point = |spread: Spread| Point {
        repetitions: row.rounds,
        ..Point::exact(row.bytes as f64, spread.median)
    };
    let mut findings: Vec<Finding> = FIGURES
        .iter()
        .filter_map(|(figure, _, spread)| {
            Some(Finding::measured(figure, &curve, point(spread(row)?)))
        })
        .collect();
    findings.push(Finding::row(ROWS, values(row)));
    findings
}

/// A row as a table has it.
fn values(row: &QueueRow) -> Vec<Value> {
    let number = |value: Option<f64>| value.map_or(Value::None, Value::Number);
    let spreads =
        [row.send_ns, row.receive_ns, row.latency_ns, row.gap_ns, row.floor_ns, row.ratio];
    let spreads = spreads.into_iter().flat_map(|spread| {
        [
            spread.map(|spread| spread.median),
            spread.map(|spread| spread.p10),
            spread.map(|spread| spread.p90),
        ]
        .map(number)
    });
    let head =
        [row.mechanism.name().into(), f64::from(row.threads).into(), (row.bytes as f64).into()];
    let rest = [
        number(row.megabytes_per_second),
        number(row.processor_percent),
        f64::from(row.rounds).into(),
        (row.round_trips as f64).into(),
    ];
    head.into_iter().chain(spreads).chain(rest).collect()
}

/// The row that a table's row was made of; none if it was made of something else.
fn row_of(values: &[Value]) -> Option<QueueRow> {
    let number = |at: usize| match values.get(at) {
        Some(Value::Number(number)) => Some(*number),
        _ => None,
    };
    let Some(Value::Text(mechanism)) = values.first() else { return None };
    let spread = |index: usize| {
        let at = 3 + 3 * index;
        Some(Spread { median: number(at)?, p10: number(at + 1)?, p90: number(at + 2)? })
    };
    let behind = 3 + 3 * SPREADS.len();
    Some(QueueRow {
        mechanism: mechanism.parse().ok()?,
        threads: number(1)? as u32,
        bytes: number(2)? as u64,
        send_ns: spread(0),
        receive_ns: spread(1),
        latency_ns: spread(2),
        gap_ns: spread(3),
        floor_ns: spread(4),
        ratio: spread(5),
        megabytes_per_second: number(behind),
        processor_percent: number(behind + 1),
        rounds: number(behind + 2)? as u32,
        round_trips: number(behind + 3)? as u64,
    })
}

/// The rows that a part has kept.
pub fn rows_of(part: &Part) -> Vec<QueueRow> {
    let rows =
        part.table(ROWS).map(|table| table.rows.iter().filter_map(|row| row_of(row)).collect());
    rows.unwrap_or_default()
}

/// The floor beneath all curves, and where they cross.
fn conclude(part: &mut Part) -> Result<(), Error> {
    let rows = rows_of(part);
    let crossovers = Crossover::all(&rows)
        .iter()
        .map(|one| vec![f64::from(one.threads).into(), one.to_string().into()])
        .collect();
    part.replace_rows(CROSSOVERS, crossovers);
    let mut floors: Vec<f64> = rows.iter().filter_map(|row| Some(row.floor_ns?.median)).collect();
    floors.sort_by(f64::total_cmp);
    let sizes = || rows.iter().filter(|row| row.latency_ns.is_some()).map(|row| row.bytes as f64);
    let least = sizes().fold(f64::INFINITY, f64::min);
    let most = sizes().fold(0.0, f64::max);
    let mut points = Vec::new();
    if !floors.is_empty() {
        let middle = models::statistics::percentile(&floors, 0.5);
        points.push(Point::exact(least, middle));
        if most > least {
            points.push(Point::exact(most, middle));
        }
    }
    let curves = if points.is_empty() {
        Vec::new()
    } else {
        vec![crate::results::Series {
            name: FLOOR.to_owned(),
            role: crate::results::Role::Floor,
            points,
        }]
    };
    part.replace_series(FIGURES[0].0, crate::results::Role::Floor, curves);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::idle;
    use super::*;

    #[test]
    fn a_plan_is_found_again_in_its_words() {
        for plan in [Plan::default(), Plan::of_suite(true), Plan::of_suite(false)] {
            assert!(plan.check().is_ok());
            assert_eq!(Plan::of_options(&plan.options()), Some(plan));
        }
        assert_eq!(Plan::of_options(&BTreeMap::new()), None);
    }

    #[test]
    fn ranks_that_share_a_core_are_told_so() {
        let part = crate::harness::run_on_threads(&experiment(&Setting {
            cores: vec![0],
            ..Setting::default()
        }));
        let part = part.expect("there is nothing to do");
        assert!(
            part.complete && part.figures.is_empty() && part.notes[0].contains("2 ranks on 1 core"),
            "{:?}",
            part.notes
        );
    }

    #[test]
    fn a_row_is_found_again_in_its_table() {
        let spread = |median: f64| Some(Spread { median, p10: median - 1.0, p90: median + 1.0 });
        let row = QueueRow {
            mechanism: Mechanism::OnePoll,
            threads: 2,
            bytes: 8,
            send_ns: spread(10.0),
            receive_ns: None,
            latency_ns: spread(20.0),
            gap_ns: spread(30.0),
            floor_ns: spread(40.0),
            ratio: spread(2.0),
            megabytes_per_second: Some(1.5),
            processor_percent: None,
            rounds: 7,
            round_trips: 100,
        };
        assert_eq!(row_of(&values(&row)), Some(row));
        assert_eq!(row_of(&[]), None);
        assert_eq!(values(&idle::row(0.1)).len(), outline().tables[0].columns.len());
    }
}
