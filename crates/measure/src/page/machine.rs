//! `machine.json` as a part like any other: the parameters of each class of pairs, noise, clock,
//! and the rest.

use crate::results::machine::{circumstances, contention, flat, words};
use crate::results::{Axis, Figure, Part, Point, Role, Series, Table, Value, values};
use models::machine::PairClass;
use models::machine_file::{Engine, EngineCosts, Machine, SizeSamples};
use models::parameters::{Parameters, Point as AtSize};
use models::statistics::Sample;

/// One parameter: its name, its value at a size, and the samples that it comes
/// from.
type Parameter = (&'static str, fn(&AtSize) -> f64, fn(&SizeSamples) -> &Sample);

const PARAMETERS: [Parameter; 3] = [
    ("g(m), gap", |at| at.gap, |at| &at.gap),
    ("os(m), send overhead", |at| at.send_overhead, |at| &at.send_overhead),
    ("or(m), receive overhead", |at| at.receive_overhead, |at| &at.receive_overhead),
];

/// Parameters of messages under one engine.
struct Side<'a> {
    /// Suffix of its name; in-call progress, which the model describes, has none.
    suffix: String,
    costs: &'a EngineCosts,
}

fn sides(machine: &Machine) -> Vec<Side<'_>> {
    let side = |(engine, costs): (&Engine, _)| {
        let suffix = match engine {
            Engine::Caller => String::new(),
            other => format!(", {other}"),
        };
        Side { suffix, costs }
    };
    machine.engines.iter().map(side).collect()
}

/// The part; short where the experiment that measured the machine has a part of its own.
pub(crate) fn part(machine: &Machine, is_told: bool) -> Part {
    let mut part = Part::new("machine", "Parameters of the machine");
    part.complete = !machine.engines.is_empty();
    part.about =
        "What a message costs between two ranks, by how far they are from each other: the \
        latency L, the overheads of sending and receiving, and the gap between messages. Bands lie \
        between the quartiles of the samples. Every rank runs its own operations, but where it \
        says peers: there one process runs a whole chain."
            .to_owned();
    part.source = "Kielmann, Bal, Verstoep: Fast Measurement of LogP Parameters for Message \
        Passing Platforms, 2000; figure 1 of Barchet-Estefanel, Mounié: Performance \
        Characterisation of Intra-Cluster Collective Communications, 2004"
        .to_owned();
    let sides = sides(machine);
    for side in &sides {
        part.figures.extend(
            side.costs
                .classes
                .iter()
                .map(|(class, parameters)| class_figure(side, class, parameters)),
        );
    }
    if !is_told && sides.iter().map(|side| side.costs.classes.iter().count()).sum::<usize>() > 1 {
        part.figures.extend(PARAMETERS.map(|parameter| placement_figure(&sides, parameter)));
    }
    part.tables.push(latencies(&sides));
    part.tables.push(noisy_circumstances(machine));
    part.tables.push(contention(machine));
    if !is_told && !machine.flat.is_empty() {
        part.tables.push(flat(machine));
    }
    part
}

/// L, g, os and or of one class.
fn class_figure(side: &Side, class: PairClass, parameters: &Parameters) -> Figure {
    let suffix = &side.suffix;
    let title = format!("Parameters of pairs: {}{suffix}", words(class));
    let mut figure = empty(&format!("parameters-{class}{}", suffix.replace(", ", "-")), &title);
    for parameter in PARAMETERS {
        figure.series.push(curve(parameter.0.to_owned(), side, class, parameters, parameter));
    }
    // At every size, so that it is seen on any axis.
    let points = parameters
        .points()
        .iter()
        .map(|at| Point::exact(at.bytes as f64, parameters.latency()))
        .collect();
    figure.series.push(Series { name: "L, latency".to_owned(), role: Role::Fitted, points });
    figure
}

/// One parameter of all classes.
fn placement_figure(sides: &[Side], parameter: Parameter) -> Figure {
    let (name, ..) = parameter;
    let symbol = name.split('(').next().unwrap_or(name);
    let mut figure =
        empty(&format!("placement-{symbol}"), &format!("What placement changes: {name}"));
    for side in sides {
        for (class, parameters) in side.costs.classes.iter() {
            figure.series.push(curve(
                format!("{}{}", words(class), side.suffix),
                side,
                class,
                parameters,
                parameter,
            ));
        }
    }
    figure
}

fn empty(name: &str, title: &str) -> Figure {
    let y = Axis::microseconds("time").logarithmic();
    Figure::new(name, title, Axis::bytes("message size").logarithmic(), y)
}

fn curve(
    name: String,
    side: &Side,
    class: PairClass,
    parameters: &Parameters,
    parameter: Parameter,
) -> Series {
    let (_, value, sample) = parameter;
    let samples =
        side.costs.samples.get(&class).map(|samples| samples.sizes.as_slice()).unwrap_or_default();
    let point = |at: &AtSize| {
        let values =
            samples.iter().find(|sizes| sizes.bytes == at.bytes).map(|sizes| &sample(sizes).values);
        let spread = values
            .filter(|values| !values.is_empty())
            .map(|values| Point::of(at.bytes as f64, values));
        // The samples show the spread; the parameter is what the models use.
        let spread = spread.unwrap_or_else(|| Point::exact(at.bytes as f64, 0.0));
        Point { median: value(at), ..spread }
    };
    Series { name, role: Role::Measured, points: parameters.points().iter().map(point).collect() }
}

fn latencies(sides: &[Side]) -> Table {
    let rows = sides
        .iter()
        .flat_map(|side| side.costs.classes.iter().map(move |pair| latency(side, pair)));
    Table::new(
        ["latency", "Latency, and what a run costs"],
        "pairs | L (µs) | round trip, least (µs) | median (µs) | greatest (µs) | round trips | sizes | \
         a run (µs) | a private byte (µs)",
        "A run: what a schedule costs besides its messages, and for each byte of private buffers.",
        rows.collect(),
    )
}

fn latency(side: &Side, (class, parameters): (PairClass, &Parameters)) -> Vec<Value> {
    let trips = side.costs.samples.get(&class).map(|samples| &samples.round_trip);
    let trips = trips.filter(|trips| !trips.values.is_empty());
    let start = side.costs.starts.get(&class);
    values![
        format!("{}{}", words(class), side.suffix),
        parameters.latency(),
        trips.map(|trips| trips.quantiles.minimum),
        trips.map(|trips| trips.quantiles.median),
        trips.map(|trips| trips.quantiles.maximum),
        trips.map(|trips| trips.values.len()),
        parameters.points().len(),
        start.map(|costs| costs.fixed),
        start.map(|costs| costs.per_byte),
    ]
}

fn noisy_circumstances(machine: &Machine) -> Table {
    let mut table = Table { name: "circumstances".to_owned(), ..circumstances(machine) };
    let noisy = machine.disturbances().into_iter();
    table.rows.extend(noisy.map(|words| values!["noisy", words, ""]));
    table
}
