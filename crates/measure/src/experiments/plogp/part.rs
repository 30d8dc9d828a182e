//! Figures, tables and notes of a run.

use super::found::{Messages, messages};
use super::machine::put;
use crate::experiments::entry::SuiteEntry;
use crate::results::machine::{circumstances, contention, flat};
use crate::results::{Axis, Figure, Part, Point, Role, Table, Value, values};
use crate::rows::{Row, Run};
use models::costs::Sharing;
use models::machine::Fingerprint;
use models::machine_file::{Machine, SizeSamples};
use models::simulation::Constants;
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
const SOURCE: &str = "Barchet-Estefanel, Mounié 2004, section 2 and figure 1";

/// The parameters of messages, flat collectives and cooperative progress.
pub const PLOGP: SuiteEntry = SuiteEntry {
    name: "plogp",
    title: "Parameters of pLogP",
    about: "What messages of linked schedules cost between two ranks, for each class of pairs on this machine \
            and for both engines. A value is the median over the faster quarter of the rounds; curves show \
            medians and quartiles over all of them. Under the caller engine each rank runs its own \
            operations, and the parameters are those of the model; under peers one process runs a whole \
            chain, so that nothing is under way. All raw values are in machine.json.",
    source: "Kielmann, Bal, Verstoep 2000; Barchet-Estefanel, Mounié 2004, section 2 and figure 1",
    steps: super::experiment,
    view,
};

/// Flat collectives and cooperative progress alone.
pub const PROGRESS: SuiteEntry = SuiteEntry {
    name: "progress",
    title: "Flat collectives and cooperative progress",
    about: "What the models of collectives on one node need: times of flat collectives, and constants of the \
            processes that execute each other's operations. All raw values are in machine.json.",
    source: SOURCE,
    steps: super::experiment::progress,
    view: |run, part| {
        let machine = machine_of(run, Vec::new());
        part.tables.extend([flat(&machine), sharing(&machine)]);
        part.notes = noisy(&machine);
    },
};

fn view(run: &Run, part: &mut Part) {
    let is_between_nodes = run.name.contains("-nodes");
    if is_between_nodes {
        part.about = between_nodes(run);
    }
    let all = messages(run);
    part.figures = FIGURES.iter().map(|shown| figure(*shown, &all)).collect();
    part.tables.push(Table::new(
        ["parameters", "Parameters"],
        "pair | engine | cores | L (µs) | g(0) (µs) | os(0) (µs) | ± (µs) | or(0) (µs) | ± (µs) | \
         g(4 KiB) (µs) | g(1 MiB) (µs) | MB/s | sizes | a run (µs) | a KiB (µs)",
        "A run: what a schedule costs besides its messages, and for each KiB of private buffers. ±: the \
         standard error of the median of all rounds.",
        all.iter().map(parameters).collect(),
    ));
    let machine = machine_of(run, all);
    part.tables.push(contention(&machine));
    if !is_between_nodes {
        part.tables.extend([circumstances(&machine), flat(&machine), sharing(&machine)]);
    }
    part.notes = noisy(&machine);
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
    let mut figure = Figure::new(name, title, x, y).captioned(caption);
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
    let uncertainty = |of: fn(&SizeSamples) -> &Sample| first.map(of).and_then(Sample::uncertainty);
    let cores: Vec<String> = one.cores.iter().map(usize::to_string).collect();
    values![
        one.class.name(),
        one.engine.name(),
        cores.join(", "),
        network.latency(),
        network.gap(0),
        network.send_overhead(0),
        uncertainty(|size| &size.send_overhead),
        network.receive_overhead(0),
        uncertainty(|size| &size.receive_overhead),
        network.gap(4 << 10),
        network.gap(1 << 20),
        last as f64 / network.gap(last).max(f64::MIN_POSITIVE),
        network.points().len(),
        one.start.fixed,
        one.start.per_byte * 1024.0,
    ]
}

/// Constants of cooperative progress.
fn sharing(machine: &Machine) -> Table {
    let row = |one: &Sharing| {
        let Constants { start, operation, crossing, switch, copy, .. } = &one.constants;
        let copy = copy.at(1 << 20);
        values![one.ranks, one.cores, *start, *operation, *crossing, *switch, copy, one.error]
    };
    Table::new(
        ["sharing", "Cooperative progress"],
        "ranks | cores | start (µs) | operation (µs) | crossing (µs) | switch (µs) | copy of 1 MiB (µs) | error",
        "Constants of the simulation, fitted to the simplest algorithm of each operation; three quarters of \
         the fitted times are nearer than the error.",
        machine.sharing.iter().map(row).collect(),
    )
}
