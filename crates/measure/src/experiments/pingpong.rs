//! Time against message length (Bokhari 1995, section 2, figures 1 and 2, table 1), by exchange and
//! by ping-pong, with the receive posted beforehand or not; pages that are touched for the first
//! time; blocking against nonblocking sends.

mod fits;
mod more;
mod shared;

use crate::experiments::queues::message_path::MessagePath;
use crate::experiments::queues::{open, phases};
use crate::harness::timer::Batches;
use crate::harness::{Error, Experiment, Finding, JobShape, Setting, Step, StepContext, agreement};
use crate::pairs::{Exchange, Receive};
use crate::results::{Axis, Figure, Part, Point, Table};
use queues::bulk::Policy;
use shared::{FIGURES, TABLE, each};
use tradewind::{CallForm, EngineKind};

const CURVES: [(&str, Receive); 2] =
    [("receive posted", Receive::Posted), ("receive not posted", Receive::Late)];
/// Behind the figures' names for the range of short messages.
const SHORT: &str = "-short";

/// The experiment.
pub fn experiment(setting: &Setting) -> Experiment {
    let batches = setting.choose(
        Batches { rounds: 5, microseconds: 100.0 },
        Batches { rounds: 11, microseconds: 1_000.0 },
    );
    let [long, short]: [Vec<u64>; 2] = [
        setting.shuffled((0..=16_000).step_by(setting.choose(2_000, 64))),
        setting.shuffled((0..=2_000).step_by(setting.choose(400, 16))),
    ];
    let sweep = |path: Path| {
        let ranges = [("", long.clone()), (SHORT, short.clone())];
        let shape = path.shape(setting);
        ranges.into_iter().flat_map(move |(range, sizes)| {
            let shape = shape.clone();
            sizes.into_iter().map(move |bytes| {
                let milliseconds = batches.milliseconds() * path.measurements() + 3;
                let what = format!("{bytes} bytes, {}", path.name());
                Step::new(what, shape.clone(), milliseconds, move |here| {
                    measure(here, path, range, bytes, batches)
                })
            })
        })
    };
    let [first, second] = match setting.nodes {
        None => [EngineKind::Caller, EngineKind::Peers].map(Path::Engine),
        Some(_) => [CallForm::Blocking, CallForm::Nonblocking].map(Path::Form),
    };
    let steps = sweep(first).chain(more::steps(setting, batches)).chain(sweep(second));
    Experiment::new(outline(setting), steps).concluding(fits::conclude)
}

/// Executor of the schedules.
#[derive(Clone, Copy, Debug)]
enum Path {
    /// An engine of one node.
    Engine(EngineKind),
    /// Between nodes: the engine that calls of this form have there.
    Form(CallForm),
}

impl Path {
    fn shape(self, setting: &Setting) -> JobShape {
        let shape = JobShape::bound(setting, 2);
        match self {
            Path::Engine(engine) => shape.with_engine(engine),
            Path::Form(_) => shape,
        }
    }

    fn name(self) -> String {
        match self {
            Path::Engine(engine) => format!("engine {engine}"),
            Path::Form(form) => format!("{form} calls"),
        }
    }

    /// Number of patterns, and of queues beside them.
    fn measurements(self) -> u64 {
        if self.has_queues() { 6 } else { 4 }
    }

    fn has_queues(self) -> bool {
        matches!(self, Path::Engine(EngineKind::Caller))
    }

    /// Name of the curve of an exchange.
    fn curve(self, curve: &str, exchange: &Exchange) -> String {
        match self {
            Path::Engine(EngineKind::Caller) => curve.to_owned(),
            Path::Engine(EngineKind::Peers) => format!("{curve}, peers"),
            Path::Form(form) => format!("{curve}, {form}, {}", exchange.engine()),
        }
    }
}

fn outline(setting: &Setting) -> Part {
    let mut part = Part::new("pingpong", "Time against message length");
    part.about = "Two ranks run a linked schedule for each message. Exchange: both send at once \
                  and then receive; round trip: one sends and the other sends back. Both are \
                  divided by the two messages that they move. Posted: the receive waits for \
                  nothing, so the bytes go where they are wanted as they come (the report's forced \
                  messages). Not posted: the receive waits for something else, so messages up to \
                  the eager limit wait in a mailbox and longer ones wait for the receive \
                  (unforced). Between nodes each form of a call has an engine of its own. On one \
                  node: engine caller: a rank executes its operations in its own calls, \
                  as in the report. Peers: the rank that completes an operation also executes those \
                  that depend on it, so one rank may execute both halves of a round trip. Wide queue and bulk are the queues' \
                  paths beside the schedules. The first pass is discarded; a point is a time for \
                  each batch."
        .to_owned();
    part.source = "Bokhari 1995, section 2, figures 1 and 2, table 1".to_owned();
    let x = || Axis::bytes("message length");
    let y = || Axis::microseconds("time of a message");
    for (range, words) in [("", "0 to 16000 bytes"), (SHORT, "0 to 2000 bytes")] {
        part.figures.push(Figure::new(
            &format!("exchange{range}"),
            &format!("Exchange, {words}"),
            x(),
            y(),
        ));
        part.figures.push(Figure::new(
            &format!("round-trip{range}"),
            &format!("Half a round trip, {words}"),
            x(),
            y(),
        ));
    }
    part.figures.extend(more::figures());
    part.tables.push(Table {
        name: TABLE.to_owned(),
        title: "a + b × m".to_owned(),
        caption: "Zero, short and long messages fitted each for itself, with the break found by \
                  the fit, through the medians of 0 to 16000 bytes; errors are one standard error."
            .to_owned(),
        columns: fits::COLUMNS.map(str::to_owned).to_vec(),
        rows: Vec::new(),
    });
    let shape = JobShape::bound(setting, 2);
    if shape.is_crowded() {
        part.notes.push(format!("More ranks than cores, which take turns: {}.", shape.describe()));
    }
    part
}

fn measure(
    here: &StepContext<'_>,
    path: Path,
    range: &str,
    bytes: u64,
    batches: Batches,
) -> Result<Vec<Finding>, Error> {
    let world = here.world;
    let x = bytes as f64;
    let partner = Some(1 - world.rank());
    let mut findings = Vec::new();
    for (figure, pattern) in FIGURES {
        for (curve, receive) in CURVES {
            let mut exchange = Exchange::link(world, partner, bytes, pattern, receive)?;
            if let Path::Form(form) = path {
                exchange = exchange.with_form(form);
            }
            let times = exchange.time(world, batches)?;
            let curve = path.curve(curve, &exchange);
            findings.push(Finding::measured(
                &format!("{figure}{range}"),
                &curve,
                Point::of(x, &each(&times)),
            ));
        }
    }
    if path.has_queues() {
        let figure = format!("round-trip{range}");
        let mut wide = open::lines(world, 1)?;
        findings.push(Finding::measured(
            &figure,
            "wide queue",
            Point::of(x, &queue(here, &mut wide, bytes, batches)?),
        ));
        let (mut bulk, why) = open::bulk(world, Policy::Automatic)?;
        match why {
            None => findings.push(Finding::measured(
                &figure,
                "bulk",
                Point::of(x, &queue(here, &mut bulk, bytes, batches)?),
            )),
            Some(why) => findings.push(Finding::Note(format!("Bulk was not measured: {why}."))),
        }
    }
    Ok(findings)
}

/// Half round trips through queues, for each batch.
fn queue<W: MessagePath>(
    here: &StepContext<'_>,
    ways: &mut [W],
    bytes: u64,
    batches: Batches,
) -> Result<Vec<f64>, Error> {
    let world = here.world;
    ways.iter_mut().for_each(|way| way.resize(bytes));
    let look = |ways: &mut [W]| -> Result<f64, Error> {
        let own = phases::round_trips(world, ways, 1, 8)?;
        Ok(agreement::largest(world, &[own])?[0])
    };
    // The first pass is discarded; the second determines how many fill a batch.
    look(ways)?;
    let trips = (batches.microseconds * 1e3 / (2.0 * look(ways)?.max(1.0))).clamp(1.0, 1e6) as u64;
    let own = (0..batches.rounds)
        .map(|_| phases::round_trips(world, ways, 1, trips))
        .collect::<Result<Vec<_>, _>>()?;
    let wrong = u32::from(!ways.iter().all(MessagePath::is_right));
    let mut all = vec![0.0; own.len() + 1];
    let mine: Vec<f64> = own
        .into_iter()
        .map(|time| time * 1e-3)
        .chain([f64::from(wrong * (world.rank() + 1))])
        .collect();
    // This also keeps either from closing an end that the other still uses.
    world.allreduce(&mine, &mut all, tradewind::Op::Maximum)?;
    match all.pop() {
        Some(rank) if rank > 0.0 => Err(Error::WrongData {
            rank: rank as u32 - 1,
            what: format!("a message of {bytes} bytes in a queue"),
        }),
        _ => Ok(all),
    }
}
