//! Overlap as a part of the suite: both engines over the same computation.

use super::collective::Collective;
use super::experiment::{Experiment as Measurement, Setting as Job};
use super::plan::Case;
use super::row::OverlapRow;
use crate::harness::processor_time::RankKind;
use crate::harness::{Error, Experiment, Finding, JobShape, Setting, Step, StepContext};
use crate::results::{Axis, Figure, Part, Point, Table};
use tradewind::EngineKind;

const TABLE: &str = "rows";
/// A figure's name, its title, and what of a row it shows.
type Shown = (&'static str, &'static str, fn(&OverlapRow) -> f64);
const FIGURES: [Shown; 4] = [
    ("alone", "Time of the collective alone", |row| row.alone_us),
    ("exposed", "Time that the collective adds to a computation", |row| row.exposed_us),
    ("stolen", "Processor time that the collective takes", |row| row.stolen_us),
    ("overlap", "Share of the collective that the computation hides", |row| row.overlap),
];
/// The baseline comes first.
const ENGINES: [EngineKind; 2] = [EngineKind::Caller, EngineKind::Peers];
/// Size, microseconds of computation (about ten times what the collective takes alone),
/// repetitions.
const SIZES: [(u64, f64, u32); 6] = [
    (8, 50.0, 400),
    (1 << 10, 50.0, 400),
    (1 << 14, 200.0, 200),
    (1 << 16, 500.0, 100),
    (1 << 18, 2_000.0, 40),
    (1 << 20, 5_000.0, 20),
];
/// Repetitions of a trial.
const FEW: u32 = 5;

/// The experiment.
pub fn experiment(setting: &Setting) -> Experiment {
    let sizes = &SIZES[..setting.choose(2, SIZES.len())];
    let mut steps = Vec::new();
    for engine in ENGINES {
        let shape = JobShape::bound(setting, 2).with_engine(engine);
        for collective in Collective::ALL {
            for (bytes, computation_us, repetitions) in
                sizes.iter().take(if collective.has_data() { sizes.len() } else { 1 })
            {
                let case = Case {
                    collective,
                    bytes: if collective.has_data() { *bytes } else { 0 },
                    computation_us: Some(*computation_us),
                    repetitions: Some(setting.choose(FEW, *repetitions)),
                };
                let milliseconds =
                    (f64::from(setting.choose(FEW, *repetitions)) * computation_us * 3e-3) as u64
                        + 20;
                let (what, seed) =
                    (format!("{collective}, {} bytes, engine {engine}", case.bytes), setting.seed);
                steps.push(Step::new(what, shape.clone(), milliseconds, move |here| {
                    measure(here, &case, seed)
                }));
            }
        }
    }
    Experiment::new(outline(), steps)
}

fn outline() -> Part {
    let mut part = Part::new("overlap", "Overlap");
    part.about = "Every rank starts a collective, computes for a fixed number of steps without \
                  another call, and waits; what that takes more than the computation alone is the \
                  exposed time. Both engines compute equally long. Engine caller: a rank \
                  executes its operations in its own calls. Engine peers: the rank that completes \
                  an operation also executes those that depend on it. Compare exposed times: \
                  overlap in percent favours slow collectives."
        .to_owned();
    part.source =
        "Schneider et al. 2011, sections 4.2 and 4.3; Hoefler, Lumsdaine and Rehm, SC 2007"
            .to_owned();
    for (name, title, _) in FIGURES {
        let y = match name {
            "overlap" => {
                Axis { label: "overlap".to_owned(), unit: "%".to_owned(), ..Axis::number("") }
            }
            _ => Axis::microseconds("time"),
        };
        part.figures.push(Figure::new(name, title, Axis::bytes("size").logarithmic(), y));
    }
    part.tables.push(Table {
        name: TABLE.to_owned(),
        title: "Every collective".to_owned(),
        caption:
            "Medians; the tenths are those of the exposed time. Below zero: lost in the noise."
                .to_owned(),
        columns: [
            "collective",
            "bytes",
            "engine",
            "algorithm",
            "alone (µs)",
            "computation (µs)",
            "total (µs)",
            "exposed (µs)",
            "10 % (µs)",
            "90 % (µs)",
            "overlap (%)",
            "unattended (%)",
            "CPU stolen (µs)",
            "repetitions",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: Vec::new(),
    });
    part
}

fn measure(here: &StepContext<'_>, case: &Case, seed: u64) -> Result<Vec<Finding>, Error> {
    let rank_kind = if here.service.is_some() { RankKind::Process } else { RankKind::Thread };
    let JobShape { engine, shared_cores: cores, .. } = *here.shape;
    let job = Job { engine, rank_kind, cores, service: here.service, seed };
    let row = Measurement::new(here.world, job)?.measure(case, |_| {})?;
    let mut findings = Vec::new();
    if row.op.has_data() {
        let curve = format!("{}, {}", row.op, row.engine);
        for (figure, _, value) in FIGURES {
            let point = Point {
                repetitions: row.repetitions,
                ..Point::exact(row.bytes as f64, value(&row))
            };
            findings.push(Finding::measured(figure, &curve, point));
        }
    }
    findings.push(Finding::row(
        TABLE,
        [
            row.op.name().into(),
            (row.bytes as f64).into(),
            row.engine.name().into(),
            row.algorithm.into(),
            row.alone_us.into(),
            row.compute_us.into(),
            row.total_us.into(),
            row.exposed_us.into(),
            row.p10_us.into(),
            row.p90_us.into(),
            row.overlap.into(),
            (row.unattended * 100.0).into(),
            row.stolen_us.into(),
            f64::from(row.repetitions).into(),
        ],
    ));
    Ok(findings)
}
