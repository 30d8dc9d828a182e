//! Figures, tables and notes of the experiment.

use super::survey::Survey;
use crate::harness::{Doubts, Finding};
use crate::results::{Axis, Figure, Part, Point, Table, Value};
use models::costs::StartCosts;
use models::machine::Topology;
use models::machine_file::SizeSamples;
use models::statistics::Sample;
use std::collections::BTreeMap;

/// Figures: their names, titles and captions, in the order of their values in a survey.
pub(super) const FIGURES: [(&str, &str, &str); 5] = [
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
pub(super) const CONTENTION: &str = "contention";
pub(super) const PARAMETERS: &str = "parameters";
pub(super) const MACHINE: &str = "machine";
pub(super) const FLAT: &str = "flat";
pub(super) const SHARING: &str = "sharing";

/// The part without values.
pub(super) fn outline(here: &Topology) -> Part {
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
        let x = Axis::bytes("message length").logarithmic();
        let y = Axis::microseconds("time").logarithmic();
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
        "A run: what a schedule costs besides its messages, and for each KiB of private buffers. ±: \
         the standard error of the median of all rounds.",
        &[
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
        ],
    ));
    part.tables.push(table(
        MACHINE,
        "The machine",
        "Noise is what a loop saw that only looked at the clock.",
        &["what", "value", "unit"],
    ));
    part.tables.push(table(
        CONTENTION,
        "γ: the contention ratio of the direct all-to-all",
        "Where between the bounds of the direct exchange its times lie: 0 if only the processors are \
         busy, 1 if the messages of a rank follow each other.",
        &["pair", "engine", "γ"],
    ));
    part.tables.push(table(
        FLAT,
        "Flat collectives",
        "Ranks read each other's contributions in shared memory, without messages.",
        &["operation", "form", "ranks", "bytes", "time (µs)"],
    ));
    part.tables.push(table(
        SHARING,
        "Cooperative progress",
        "Constants of the simulation, fitted to the simplest algorithm of each operation; three \
         quarters of the fitted times are nearer than the error.",
        &[
            "ranks",
            "cores",
            "start (µs)",
            "operation (µs)",
            "crossing (µs)",
            "switch (µs)",
            "copy of 1 MiB (µs)",
            "error",
        ],
    ));
    part.notes.extend(here.unknown().map(|unknown| format!("Of this machine, {unknown}.")));
    part
}

/// The note of a disturbed measurement, which may have been left out of the machine's file.
pub(super) fn note_of(what: &str, doubts: Doubts, is_left_out: bool) -> Option<Finding> {
    let more = if is_left_out { "; machine.json keeps what was measured undisturbed" } else { "" };
    doubts.is_disturbed().then(|| Finding::Note(format!("Noisy: {what}: {doubts}{more}.")))
}

/// The points of a survey, by figure.
pub(super) fn points_of(
    figures: &[(&str, &str, &str); 5],
    curve: &str,
    found: &Survey,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for size in &found.samples.sizes {
        let of = |kept: &BTreeMap<u64, Sample>| kept.get(&size.bytes).cloned().unwrap_or_default();
        let samples = [
            of(&found.arrival),
            size.gap.clone(),
            size.send_overhead.clone(),
            size.receive_overhead.clone(),
            of(&found.stream),
        ];
        // An overhead without a meaning at this size has no samples.
        let measured = figures.iter().zip(samples).filter(|(_, sample)| !sample.values.is_empty());
        for ((figure, ..), sample) in measured {
            let point = Point::of(size.bytes as f64, &sample.values);
            findings.push(Finding::measured(figure, curve, point));
        }
    }
    findings
}

/// The row of a class, engine and cores in the table of parameters.
pub(super) fn row_of(words: [&str; 3], found: &Survey, start: StartCosts) -> Vec<Value> {
    let network = &found.parameters;
    let last = network.points().last().map_or(0, |point| point.bytes);
    let first = found.samples.sizes.first();
    let uncertainty = |of: fn(&SizeSamples) -> &Sample| {
        first.map(of).and_then(Sample::uncertainty).map_or(Value::None, Value::from)
    };
    let numbers = [
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
        start.fixed.into(),
        (start.per_byte * 1024.0).into(),
    ];
    words.map(Value::from).into_iter().chain(numbers).collect()
}
