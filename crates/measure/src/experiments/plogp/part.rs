//! Figures, tables and notes of a run.

use super::found::{Messages, messages};
use super::machine::put;
use crate::results::machine::{circumstances, contention, flat};
use crate::results::{Axis, Figure, Part, Point, Role, Table, Value};
use crate::rows::{Row, Run};
use models::costs::Sharing;
use models::machine::Fingerprint;
use models::machine_file::{Machine, SizeSamples};
use models::statistics::Sample;
use models::survey::Survey;

/// A figure's name, title and caption, and the sample of a size that it shows.
type Shown = (&'static str, &'static str, &'static str, OfSize);
type OfSize = for<'s> fn(&'s Survey, &'s SizeSamples) -> Option<&'s Sample>;
const FIGURES: [Shown; 5] = [
    (
        "arrival",
        "L + g(m): a message under way",
        "Half a round trip, of messages that are sent on from where they were received.",
        |survey, size| survey.arrival.get(&size.bytes),
    ),
    ("gap", "g(m): the gap", "Half a round trip less L; at size 0 by saturation.", |_, size| {
        Some(&size.gap)
    }),
    (
        "send-overhead",
        "os(m): the send overhead",
        "A send to a rank that does not receive yet. Above the eager limit it only says that there \
         is something.",
        |_, size| Some(&size.send_overhead),
    ),
    (
        "receive-overhead",
        "or(m): the receive overhead",
        "A receive of a message that has come.",
        |_, size| Some(&size.receive_overhead),
    ),
    (
        "stream",
        "A message in a stream",
        "The time of each of many messages that do not wait for each other: saturation.",
        |survey, size| survey.stream.get(&size.bytes),
    ),
];
const PARAMETERS: [&str; 15] = [
    "pair",
    "engine",
    "cores",
    "L (µs)",
    "g(0) (µs)",
    "os(0) (µs)",
    "± (µs)",
    "or(0) (µs)",
    "± (µs)",
    "g(4 KiB) (µs)",
    "g(1 MiB) (µs)",
    "MB/s",
    "sizes",
    "a run (µs)",
    "a KiB (µs)",
];
const SHARING: [&str; 8] = [
    "ranks",
    "cores",
    "start (µs)",
    "operation (µs)",
    "crossing (µs)",
    "switch (µs)",
    "copy of 1 MiB (µs)",
    "error",
];

/// Figures and tables of a run of `plogp`.
pub fn part(run: &Run) -> Part {
    let is_between_nodes = run.name.contains("-nodes");
    let about = if is_between_nodes { between_nodes(run) } else { on_one_node() };
    let mut part = Part::new("plogp", "Parameters of pLogP").described(
        &about,
        "Kielmann, Bal, Verstoep 2000; Barchet-Estefanel, Mounié 2004, section 2 and figure 1",
    );
    let all = messages(run);
    part.figures = FIGURES.iter().map(|shown| figure(*shown, &all)).collect();
    part.tables.push(Table {
        caption: "A run: what a schedule costs besides its messages, and for each KiB of private \
                  buffers. ±: the standard error of the median of all rounds."
            .to_owned(),
        rows: all.iter().map(parameters).collect(),
        ..Table::new("parameters", "Parameters", &PARAMETERS)
    });
    let machine = machine_of(run, all);
    part.tables.push(contention(&machine));
    if !is_between_nodes {
        part.tables.extend([circumstances(&machine), flat(&machine), sharing(&machine)]);
    }
    part.notes = noisy(&machine);
    part
}

/// Tables of a run of `progress`.
pub fn progress_part(run: &Run) -> Part {
    let part = Part::new("progress", "Flat collectives and cooperative progress");
    let mut part = part.described(
        "What the models of collectives on one node need: times of flat collectives, and constants \
         of the processes that execute each other's operations. All raw values are in machine.json.",
        "Barchet-Estefanel, Mounié 2004, section 2 and figure 1",
    );
    let machine = machine_of(run, Vec::new());
    part.tables.extend([flat(&machine), sharing(&machine)]);
    part.notes = noisy(&machine);
    part
}

/// All that a run says about its machine.
fn machine_of(run: &Run, messages: Vec<Messages>) -> Machine {
    let mut machine = Machine::new(Fingerprint::default());
    put(run, messages, &mut machine);
    machine
}

/// Notes of the disturbed measurements.
fn noisy(machine: &Machine) -> Vec<String> {
    let words = |noisy| format!("Noisy: {noisy}.");
    machine.disturbances().into_iter().map(words).collect()
}

fn on_one_node() -> String {
    "What messages of linked schedules cost between two ranks, for each class of pairs on this \
     machine and for both engines. A value is the median over the faster quarter of the rounds; \
     curves show medians and quartiles over all of them. Under the caller engine each rank runs its \
     own operations, and the parameters are those of the model; under peers one process runs a whole \
     chain, so that nothing is under way. All raw values are in machine.json."
        .to_owned()
}

fn between_nodes(run: &Run) -> String {
    let all = run.rows().max_by_key(|row| row.ranks);
    let job = all.map_or_else(
        || "a job".to_owned(),
        |Row { ranks, nodes, .. }| format!("a job with {ranks} ranks on {nodes} nodes"),
    );
    format!(
        "What messages of schedules cost between two ranks of {job}, for the engines that the job \
         has: direct in blocking calls, agent or kernel in nonblocking ones. A value is the median \
         over the faster quarter of the rounds. All raw values are in machine.json."
    )
}

fn figure((name, title, caption, of): Shown, all: &[Messages]) -> Figure {
    let x = Axis::bytes("message length").logarithmic();
    let y = Axis::microseconds("time").logarithmic();
    let mut figure = Figure { caption: caption.to_owned(), ..Figure::new(name, title, x, y) };
    for Messages { class, engine, survey, .. } in all {
        for size in &survey.samples.sizes {
            // An overhead without a meaning at this size has no samples.
            if let Some(sample) = of(survey, size).filter(|sample| !sample.values.is_empty()) {
                let point = Point::of(size.bytes as f64, &sample.values);
                figure.add(&format!("{class}, {engine}"), Role::Measured, point);
            }
        }
    }
    figure
}

fn parameters(one: &Messages) -> Vec<Value> {
    let network = &one.survey.parameters;
    let last = network.points().last().map_or(0, |point| point.bytes);
    let first = one.survey.samples.sizes.first();
    let uncertainty =
        |of: fn(&SizeSamples) -> &Sample| Value::from(first.map(of).and_then(Sample::uncertainty));
    let cores: Vec<String> = one.cores.iter().map(usize::to_string).collect();
    vec![
        one.class.name().into(),
        one.engine.name().into(),
        cores.join(", ").into(),
        network.latency().into(),
        network.gap(0).into(),
        network.send_overhead(0).into(),
        uncertainty(|size| &size.send_overhead),
        network.receive_overhead(0).into(),
        uncertainty(|size| &size.receive_overhead),
        network.gap(4 << 10).into(),
        network.gap(1 << 20).into(),
        (last as f64 / network.gap(last).max(f64::MIN_POSITIVE)).into(),
        (network.points().len() as f64).into(),
        one.start.fixed.into(),
        (one.start.per_byte * 1024.0).into(),
    ]
}

/// Constants of cooperative progress.
fn sharing(machine: &Machine) -> Table {
    let row = |one: &Sharing| {
        let constants = &one.constants;
        let numbers = [
            f64::from(one.ranks),
            f64::from(one.cores),
            constants.start,
            constants.operation,
            constants.crossing,
            constants.switch,
            constants.copy.at(1 << 20),
            one.error,
        ];
        numbers.map(Value::from).to_vec()
    };
    Table {
        caption:
            "Constants of the simulation, fitted to the simplest algorithm of each operation; \
                  three quarters of the fitted times are nearer than the error."
                .to_owned(),
        rows: machine.sharing.iter().map(row).collect(),
        ..Table::new("sharing", "Cooperative progress", &SHARING)
    }
}
