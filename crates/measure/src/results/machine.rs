//! Tables of a machine's parameters, as its file and the experiments that measure it show them.

use super::part::{Table, values};
use models::machine::PairClass;
use models::machine_file::Machine;

/// Clock and noise.
pub(crate) fn circumstances(machine: &Machine) -> Table {
    let noise = &machine.noise;
    let rows = vec![
        values!["smallest step of the clock", machine.clock_nanoseconds, "ns"],
        values!["time that the system took", noise.share * 100.0, "%"],
        values!["interruptions", noise.per_second, "a second"],
        values!["longest interruption", noise.longest, "µs"],
        values!["combining two contributions", machine.combine * 1024.0, "µs/KiB"],
    ];
    Table::new(
        ["machine", "Noise and clock"],
        "what | value | unit",
        "Noise is what a loop saw that only looked at the clock.",
        rows,
    )
}

/// Contention ratios.
pub(crate) fn contention(machine: &Machine) -> Table {
    let ratios = machine.engines.iter().flat_map(|(engine, costs)| {
        let row =
            |(class, ratio): (&PairClass, &f64)| values![words(*class), engine.name(), *ratio];
        costs.contention.iter().map(row)
    });
    Table::new(
        ["contention", "γ, contention ratio of the direct all-to-all"],
        "pairs | engine | γ",
        "Where between the bounds of the direct exchange its times lie: 0 if only the processors are \
         busy, 1 if the messages of a rank follow each other.",
        ratios.collect(),
    )
}

/// Times of flat collectives.
pub(crate) fn flat(machine: &Machine) -> Table {
    let mut rows = Vec::new();
    for (form, operations) in &machine.flat {
        for (operation, costs) in operations {
            let of = values![operation.name(), form.name()];
            rows.extend(costs.points().iter().map(|point| {
                let numbers = values![point.ranks, point.bytes, point.microseconds];
                [of.clone(), numbers].concat()
            }));
        }
    }
    Table::new(
        ["flat", "Flat collectives inside a node"],
        "operation | form | ranks | bytes | time (µs)",
        "Ranks read each other's contributions in shared memory, without messages.",
        rows,
    )
}

/// A class of pairs in words.
pub(crate) fn words(class: PairClass) -> String {
    class.name().replace('-', " ")
}
