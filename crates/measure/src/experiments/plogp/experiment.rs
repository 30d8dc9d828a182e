//! The steps of the experiment: each class of pairs under each engine, and then the joins.

use super::joins;
use super::machine;
use super::noise;
use super::pair::Pair;
use super::patterns::FIRST;
use super::rounds::{Pass, Passes};
use super::starts;
use super::survey::{Survey, SurveyPlan, rounds_of};
use crate::experiments::algorithms::TimeBudget;
use crate::harness::repetition::Repetition;
use crate::harness::{Error, Experiment, Finding, JobShape, Setting, Step, StepContext};
use crate::results::{Axis, Figure, Part, Point, Table, Value};
use models::machine::PairClass;
use models::machine::Topology;
use models::machine_file::{Machine, StartCosts};
use models::parameters::ParametersError;
use models::statistics::Sample;
use tradewind::EngineKind;

/// Figures: their names, titles and captions, in the order in which a survey gives their values.
const FIGURES: [(&str, &str, &str); 5] = [
    (
        "arrival",
        "L + g(m): a message under way",
        "Half a round trip, of messages that are sent on from where they were received.",
    ),
    ("gap", "g(m): the gap", "Half a round trip less L; at size 0 by saturation."),
    (
        "send-overhead",
        "os(m): the send overhead",
        "A send to a rank that does not receive yet. Above the eager limit it only says that there \
         is something.",
    ),
    ("receive-overhead", "or(m): the receive overhead", "A receive of a message that has come."),
    (
        "stream",
        "A message in a stream",
        "The time of each of many messages that do not wait for each other: saturation.",
    ),
];
const PARAMETERS: &str = "parameters";
const MACHINE: &str = "machine";
const JOINS: &str = "joins";
/// Each class and engine has so many turns: a machine stays at one pace for seconds, and two
/// measurements are to have seen the same paces.
const PASSES: u32 = 6;
/// The most ranks that joins are measured among.
const JOINED: u32 = 8;

/// Amount of measurement besides messages.
#[derive(Clone, Copy)]
struct Effort {
    laps: Repetition,
    noise_milliseconds: u64,
    combinations: usize,
    join_sizes: &'static [u64],
}

/// The experiment.
pub fn experiment(setting: &Setting) -> Experiment {
    let plan = setting.choose(SurveyPlan::quick(), SurveyPlan::default());
    let effort = setting.choose(
        Effort {
            laps: Repetition { laps: 5, microseconds: 200.0 },
            noise_milliseconds: 5,
            combinations: 5,
            join_sizes: &[8, 4096],
        },
        Effort {
            laps: Repetition { laps: 25, microseconds: 1_000.0 },
            noise_milliseconds: 500,
            combinations: 101,
            join_sizes: &[8, 512, 8 << 10, 64 << 10, 256 << 10],
        },
    );
    let here = Topology::here();
    let cores: Vec<u32> =
        setting.cores.iter().filter_map(|core| u32::try_from(*core).ok()).collect();
    let mut steps = Vec::new();
    let passes = setting.choose(1, PASSES);
    for pass in 1..=passes {
        // The farthest class first: there no other rank shares the core of the noise measurement.
        for (class, pair) in here.pairs_among(&cores).into_iter().rev() {
            for engine in [EngineKind::Caller, EngineKind::Peers] {
                let shape =
                    JobShape::on(2, &[pair.0 as usize, pair.1 as usize]).with_engine(engine);
                let of =
                    Turn { class, engine, is_first: steps.is_empty(), is_last: pass == passes };
                let (plan, what) =
                    (plan.clone(), format!("{class}, {engine}, pass {pass} of {passes}"));
                let milliseconds = setting.choose(300, 2_500);
                steps.push(Step::new(what, shape, milliseconds, move |here| {
                    pair_step(here, of, &plan, effort)
                }));
            }
        }
    }
    let crowd = JobShape::on(JOINED, &setting.cores);
    let note = crowd
        .is_crowded()
        .then(|| format!("Joins among more ranks than cores: {}.", crowd.describe()));
    steps.push(Step::new("joins", crowd, setting.choose(200, 3_000), move |here| {
        let mut findings = join_step(here, effort)?;
        findings.extend(note.clone().map(Finding::Note));
        Ok(findings)
    }));
    Experiment::new(outline(&here), steps)
}

fn outline(here: &Topology) -> Part {
    let mut part = Part::new("plogp", "Parameters of pLogP");
    part.about = "What messages of linked schedules cost between two ranks, for each class of \
                  pairs on this machine and for both engines. A value is the median over the \
                  faster quarter of the rounds; curves show medians and quartiles over all of \
                  them. Under the caller engine each rank runs its own operations, and the \
                  parameters are those of the model; under peers one process runs a whole chain, \
                  so that nothing is under way. All raw values are in machine.json."
        .to_owned();
    part.source =
        "Kielmann, Bal, Verstoep 2000; Barchet-Estefanel, Mounié 2004, section 2 and figure 1"
            .to_owned();
    for (name, title, caption) in FIGURES {
        let (x, y) =
            (Axis::bytes("message length").logarithmic(), Axis::microseconds("time").logarithmic());
        part.figures.push(Figure { caption: caption.to_owned(), ..Figure::new(name, title, x, y) });
    }
    let table = |name: &str, title: &str, caption: &str, columns: &[&str]| Table {
        name: name.to_owned(),
        title: title.to_owned(),
        caption: caption.to_owned(),
        columns: columns.iter().map(|column| (*column).to_owned()).collect(),
        rows: Vec::new(),
    };
    part.tables.push(table(
        PARAMETERS,
        "Parameters",
        "A run: what a schedule costs besides its messages, and for each KiB of private buffers.",
        &[
            "pair",
            "engine",
            "cores",
            "L (µs)",
            "g(0) (µs)",
            "os(0) (µs)",
            "or(0) (µs)",
            "g(4 KiB) (µs)",
            "g(1 MiB) (µs)",
            "MB/s",
            "sizes",
            "a run (µs)",
            "a KiB (µs)",
        ],
    ));
    part.tables.push(table(
        MACHINE,
        "The machine",
        "Noise is what a loop saw that only looked at the clock.",
        &["what", "value", "unit"],
    ));
    part.tables.push(table(
        JOINS,
        "Joins: a + b × P + c × m",
        "Fitted to joins among 2, 4 and 8 ranks, those that share cores included.",
        &["operation", "a (µs)", "b (µs)", "c (µs/KiB)"],
    ));
    part.notes.extend(here.unknown().map(|unknown| format!("Of this machine, {unknown}.")));
    part
}

/// The class and engine of a pass.
#[derive(Clone, Copy)]
struct Turn {
    class: PairClass,
    engine: EngineKind,
    /// Nothing was measured before.
    is_first: bool,
    /// This is the last pass.
    is_last: bool,
}

impl Turn {
    /// Name of its curves.
    fn curve(self) -> String {
        format!("{}, {}", self.class, self.engine)
    }
}

/// Measures one class under one engine once more. What all passes found goes into the file, in the
/// end into the part.
fn pair_step(
    here: &StepContext<'_>,
    turn: Turn,
    plan: &SurveyPlan,
    effort: Effort,
) -> Result<Vec<Finding>, Error> {
    let world = here.world;
    let leads = world.rank() == FIRST;
    if let (true, true, Some(directory)) = (leads, turn.is_first, here.directory) {
        machine::check(directory)?;
    }
    let mut passes =
        if turn.is_first || !leads { Passes::default() } else { Passes::read(here.directory)? };
    let plan = match passes.sizes(&turn.curve()) {
        Some(sizes) => SurveyPlan { sizes, most_added: 0, ..plan.clone() },
        None => plan.clone(),
    };
    let mut pair = Pair::new(world)?;
    let rounds = if leads {
        let rounds = rounds_of(&mut pair, &plan)?;
        pair.end()?;
        rounds
    } else {
        pair.follow()?;
        Vec::new()
    };
    let run = starts::measure(world, effort.laps)?;
    let combine = starts::combine(world, effort.combinations)?;
    if !leads {
        return Ok(Vec::new());
    }
    let start = starts::without_messages(run, &Survey::of(&rounds).map_err(why)?.parameters);
    passes.add(&turn.curve(), Pass { rounds, start });
    passes.write(here.directory)?;
    let (found, start) = passes.survey(&turn.curve()).map_err(why)?;
    let clock = turn.is_first.then(|| noise::look(effort.noise_milliseconds));
    if let Some(directory) = here.directory {
        let keep = |machine: &mut Machine| {
            if let Some((resolution, noise)) = clock {
                (machine.clock_nanoseconds, machine.noise, machine.combine) =
                    (resolution, noise, combine);
            }
            keep(machine, turn, &found, start);
        };
        if turn.is_first {
            machine::begin(directory, keep)?
        } else {
            machine::add(directory, keep)?
        }
    }
    let mut findings =
        if turn.is_last { findings_of(here, turn, &found, start) } else { Vec::new() };
    if let Some((resolution, noise)) = clock {
        let row = |what: &str, value: f64, unit: &str| {
            Finding::row(MACHINE, [what.into(), value.into(), unit.into()])
        };
        findings.extend([
            row("a step of the clock", resolution, "ns"),
            row("noise", noise.share * 100.0, "%"),
            row("interruptions", noise.per_second, "a second"),
            row("longest interruption", noise.longest, "µs"),
            row("combining doubles", combine * 1024.0, "µs/KiB"),
        ]);
    }
    Ok(findings)
}

fn why(error: ParametersError) -> Error {
    let way_out = "measure again, with less going on beside".to_owned();
    Error::Impossible { what: format!("what was measured makes no parameters: {error}"), way_out }
}

fn keep(machine: &mut Machine, turn: Turn, found: &Survey, start: StartCosts) {
    let (classes, samples, starts) = match turn.engine {
        EngineKind::Caller => (&mut machine.classes, &mut machine.samples, &mut machine.starts),
        EngineKind::Peers => {
            let peers = &mut machine.peers;
            (&mut peers.classes, &mut peers.samples, &mut peers.starts)
        }
    };
    classes.insert(turn.class, found.parameters.clone());
    samples.insert(turn.class, found.samples.clone());
    starts.insert(turn.class, start);
}

fn findings_of(
    here: &StepContext<'_>,
    turn: Turn,
    found: &Survey,
    start: StartCosts,
) -> Vec<Finding> {
    let curve = turn.curve();
    let mut findings = Vec::new();
    for size in &found.samples.sizes {
        let of = |kept: &std::collections::BTreeMap<u64, Sample>| {
            kept.get(&size.bytes).cloned().unwrap_or_default()
        };
        let samples = [
            of(&found.arrival),
            size.gap.clone(),
            size.send_overhead.clone(),
            size.receive_overhead.clone(),
            of(&found.stream),
        ];
        for ((figure, ..), sample) in FIGURES.iter().zip(samples) {
            findings.push(Finding::measured(
                figure,
                &curve,
                Point::of(size.bytes as f64, &sample.values),
            ));
        }
    }
    let network = &found.parameters;
    let cores: Vec<String> = here.shape.cores.iter().map(usize::to_string).collect();
    let last = network.points().last().map_or(0, |point| point.bytes);
    let row: [Value; 13] = [
        turn.class.name().into(),
        turn.engine.name().into(),
        cores.join(", ").into(),
        network.latency().into(),
        network.gap(0).into(),
        network.send_overhead(0).into(),
        network.receive_overhead(0).into(),
        network.gap(4 << 10).into(),
        network.gap(1 << 20).into(),
        (last as f64 / network.gap(last).max(f64::MIN_POSITIVE)).into(),
        (network.points().len() as f64).into(),
        start.fixed.into(),
        (start.per_byte * 1024.0).into(),
    ];
    findings.push(Finding::row(PARAMETERS, row));
    findings
}

fn join_step(here: &StepContext<'_>, effort: Effort) -> Result<Vec<Finding>, Error> {
    let budget = TimeBudget { milliseconds: effort.laps.milliseconds() as f64, most_rounds: 101 };
    let measured = joins::measure(here.world, here.shape.shared_cores, effort.join_sizes, budget)?;
    if here.world.rank() != FIRST {
        return Ok(Vec::new());
    }
    let fitted = joins::fit(&measured);
    if let Some(directory) = here.directory {
        machine::add(directory, |machine| machine.joins = fitted.iter().copied().collect())?;
        Passes::remove(directory);
    }
    Ok(fitted
        .iter()
        .map(|(operation, costs)| {
            let row = [
                operation.name().into(),
                costs.fixed.into(),
                costs.per_rank.into(),
                (costs.per_byte * 1024.0).into(),
            ];
            Finding::row(JOINS, row)
        })
        .collect())
}
