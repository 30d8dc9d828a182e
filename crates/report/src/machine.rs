//! `machine.json` as a part like any other: the parameters of each class of pairs, noise, clock, and the rest.

use measure::results::{Axis, Figure, Part, Point, Role, Series, Table, Value};
use plogp::machine::{Machine, Sample, SizeSamples};
use plogp::pair_class::PairClass;
use plogp::parameters::{Parameters, Point as AtSize};

/// What is kept of one parameter: its name, its value at a size, and the samples that it comes from.
type Parameter = (&'static str, fn(&AtSize) -> f64, fn(&SizeSamples) -> &Sample);

const PARAMETERS: [Parameter; 3] = [
    ("g(m), gap", |at| at.gap, |at| &at.gap),
    ("os(m), send overhead", |at| at.send_overhead, |at| &at.send_overhead),
    ("or(m), receive overhead", |at| at.receive_overhead, |at| &at.receive_overhead),
];

/// The part.
pub(crate) fn part(machine: &Machine) -> Part {
    let mut part = Part::new("machine", "Parameters of the machine");
    part.complete = machine.classes.iter().next().is_some();
    part.about = "What a message costs between two ranks, by how far they are from each other: the latency L, the \
        overheads of sending and receiving, and the gap between messages. Bands lie between the quartiles of the samples."
        .to_owned();
    part.source = "Kielmann, Bal, Verstoep: Fast Measurement of LogP Parameters for Message Passing Platforms, 2000; \
        figure 1 of Barchet-Estefanel, Mounié: Performance Characterisation of Intra-Cluster Collective Communications, 2004"
        .to_owned();
    for (class, parameters) in machine.classes.iter() {
        part.figures.push(class_figure(machine, class, parameters));
    }
    if machine.classes.iter().nth(1).is_some() {
        for parameter in PARAMETERS {
            part.figures.push(placement_figure(machine, parameter));
        }
    }
    part.tables.push(latencies(machine));
    part.tables.push(circumstances(machine));
    if !machine.joins.is_empty() {
        part.tables.push(joins(machine));
    }
    part
}

/// L, g, os and or of one class.
fn class_figure(machine: &Machine, class: PairClass, parameters: &Parameters) -> Figure {
    let title = format!("Parameters of pairs: {}", words(class));
    let mut figure = empty(&format!("parameters-{class}"), &title);
    for (name, value, sample) in PARAMETERS {
        figure.series.push(curve(name.to_owned(), machine, class, parameters, value, sample));
    }
    // At every size, so that it is seen on any axis.
    let points = parameters.points().iter().map(|at| Point::exact(at.bytes as f64, parameters.latency())).collect();
    figure.series.push(Series { name: "L, latency".to_owned(), role: Role::Fitted, points });
    figure
}

/// One parameter of all classes.
fn placement_figure(machine: &Machine, (name, value, sample): Parameter) -> Figure {
    let symbol = name.split('(').next().unwrap_or(name);
    let title = format!("What placement changes: {name}");
    let mut figure = empty(&format!("placement-{symbol}"), &title);
    for (class, parameters) in machine.classes.iter() {
        figure.series.push(curve(words(class), machine, class, parameters, value, sample));
    }
    figure
}

fn empty(name: &str, title: &str) -> Figure {
    let y = Axis::microseconds("time").logarithmic();
    Figure::new(name, title, Axis::bytes("message size").logarithmic(), y)
}

fn curve(
    name: String,
    machine: &Machine,
    class: PairClass,
    parameters: &Parameters,
    value: fn(&AtSize) -> f64,
    sample: fn(&SizeSamples) -> &Sample,
) -> Series {
    let samples = machine.samples.get(&class).map(|samples| samples.sizes.as_slice()).unwrap_or_default();
    let point = |at: &AtSize| {
        let values = samples.iter().find(|sizes| sizes.bytes == at.bytes).map(|sizes| &sample(sizes).values);
        let spread = values.filter(|values| !values.is_empty()).map(|values| Point::of(at.bytes as f64, values));
        // The samples say how far values lie apart; the parameter is what the models use.
        let spread = spread.unwrap_or_else(|| Point::exact(at.bytes as f64, 0.0));
        Point { median: value(at), ..spread }
    };
    Series { name, role: Role::Measured, points: parameters.points().iter().map(point).collect() }
}

fn latencies(machine: &Machine) -> Table {
    let columns = ["pairs", "L (µs)", "round trip, least (µs)", "median (µs)", "greatest (µs)", "round trips", "sizes"];
    let rows = machine.classes.iter().map(|(class, parameters)| {
        let trips = machine.samples.get(&class).map(|samples| &samples.round_trip);
        let trips = trips.filter(|trips| !trips.values.is_empty());
        let of = |pick: fn(&Sample) -> f64| trips.map_or(Value::None, |trips| Value::Number(pick(trips)));
        vec![
            words(class).into(),
            parameters.latency().into(),
            of(|trips| trips.quantiles.minimum),
            of(|trips| trips.quantiles.median),
            of(|trips| trips.quantiles.maximum),
            of(|trips| trips.values.len() as f64),
            (parameters.points().len() as f64).into(),
        ]
    });
    filled("latency", "Latency", &columns, rows.collect())
}

fn circumstances(machine: &Machine) -> Table {
    let noise = &machine.noise;
    let row = |what: &str, value: f64, unit: &str| vec![what.into(), value.into(), unit.into()];
    let rows = vec![
        row("smallest step of the clock", machine.clock_nanoseconds, "ns"),
        row("time that the system took", noise.share * 100.0, "%"),
        row("interruptions", noise.per_second, "a second"),
        row("longest interruption", noise.longest, "µs"),
        row("combining two contributions", machine.combine, "µs a byte"),
        row("γ, contention ratio of the direct all-to-all", machine.contention, ""),
    ];
    filled("circumstances", "Noise, clock and contention", &["what", "value", "unit"], rows)
}

fn joins(machine: &Machine) -> Table {
    let columns = ["operation", "fixed (µs)", "each rank (µs)", "each byte (µs)"];
    let rows = machine.joins.iter().map(|(operation, costs)| {
        vec![operation.name().into(), costs.fixed.into(), costs.per_rank.into(), costs.per_byte.into()]
    });
    filled("joins", "Joins inside a node", &columns, rows.collect())
}

fn filled(name: &str, title: &str, columns: &[&str], rows: Vec<Vec<Value>>) -> Table {
    let columns = columns.iter().map(|column| (*column).to_owned()).collect();
    Table { name: name.to_owned(), title: title.to_owned(), caption: String::new(), columns, rows }
}

fn words(class: PairClass) -> String {
    class.name().replace('-', " ")
}
