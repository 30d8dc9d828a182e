//! Tables of a machine's parameters, as its file and the experiments that measure it show them.

use super::part::{Table, Value};
use models::machine::PairClass;
use models::machine_file::Machine;

/// Clock and noise.
pub(crate) fn circumstances(machine: &Machine) -> Table {
    let noise = &machine.noise;
    let row = |what: &str, value: f64, unit: &str| vec![what.into(), value.into(), unit.into()];
    let rows = vec![
        row("smallest step of the clock", machine.clock_nanoseconds, "ns"),
        row("time that the system took", noise.share * 100.0, "%"),
        row("interruptions", noise.per_second, "a second"),
        row("longest interruption", noise.longest, "µs"),
        row("combining two contributions", machine.combine * 1024.0, "µs/KiB"),
    ];
    Table {
        caption: "Noise is what a loop saw that only looked at the clock.".to_owned(),
        rows,
        ..Table::new("machine", "Noise and clock", &["what", "value", "unit"])
    }
}

/// Contention ratios.
pub(crate) fn contention(machine: &Machine) -> Table {
    let mut rows = Vec::new();
    for (engine, costs) in &machine.engines {
        let row = |(class, ratio): (&PairClass, &f64)| {
            vec![words(*class).into(), engine.name().into(), (*ratio).into()]
        };
        rows.extend(costs.contention.iter().map(row));
    }
    let title = "γ, contention ratio of the direct all-to-all";
    Table {
        caption: "Where between the bounds of the direct exchange its times lie: 0 if only the \
                  processors are busy, 1 if the messages of a rank follow each other."
            .to_owned(),
        rows,
        ..Table::new("contention", title, &["pairs", "engine", "γ"])
    }
}

/// Times of flat collectives.
pub(crate) fn flat(machine: &Machine) -> Table {
    let mut rows = Vec::new();
    for (form, operations) in &machine.flat {
        for (operation, costs) in operations {
            rows.extend(costs.points().iter().map(|point| {
                let numbers = [f64::from(point.ranks), point.bytes as f64, point.microseconds];
                let words: [Value; 2] = [operation.name().into(), form.name().into()];
                words.into_iter().chain(numbers.map(Value::from)).collect()
            }));
        }
    }
    let columns = ["operation", "form", "ranks", "bytes", "time (µs)"];
    Table {
        caption: "Ranks read each other's contributions in shared memory, without messages."
            .to_owned(),
        rows,
        ..Table::new("flat", "Flat collectives inside a node", &columns)
    }
}

/// A class of pairs in words.
pub(crate) fn words(class: PairClass) -> String {
    class.name().replace('-', " ")
}
