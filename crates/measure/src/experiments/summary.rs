//! The summary: a table like table 1 of Bokhari 1995, made of the runs that there are.

use super::pingpong::{Fit, fits};
use super::{barrier, contention, hypercube, matchings, memory};
use crate::results::{Part, Table, Value, values};
use crate::rows::{Measurements, Row, Run};
use models::fit::Line;

/// Name of the part.
pub const NAME: &str = "summary";
/// The experiments that it is made of.
const EXPERIMENTS: [&str; 6] =
    ["pingpong", "barrier", "memory", "matchings", "contention", "hypercube"];
/// Table 1 of the report: memory copy (µs a byte), barrier, zero, short and long messages.
const PUBLISHED: [(&str, f64, &str, f64, &str, &str); 3] = [
    ("Intel Paragon", 0.0140, "126 d − 113", 58.0, "75 + 0.011 m", "135 + 0.011 m"),
    ("IBM SP2", 0.0043, "72 d − 52", 48.0, "70 + 0.043 m", "−50 + 0.056 m"),
    ("Meiko CS-2", 0.0153, "17 d − 5.6", 103.0, "105 + 0.025 m", "105 + 0.025 m"),
];
/// Copies of this size stand for copying memory: larger than what is nearest to a core.
const COPIED: u64 = 1 << 20;

/// The summary of everything that was measured in a directory.
pub fn of(there: &Measurements) -> Part {
    let mut part = Part::new(NAME, "Summary of performance figures");
    part.about =
        "What the experiments of this directory come to, beside the machines of the report: µs, \
                  and µs a byte. d is the dimension of 2^d ranks, m the message length in bytes."
            .to_owned();
    part.source = "Bokhari 1995, table 1".to_owned();
    let fits = there.run("pingpong").map(fits).unwrap_or_default();
    part.tables = vec![like_table_1(there, &fits), further(there, &fits)];
    let runs: Vec<&Run> = EXPERIMENTS.iter().filter_map(|name| there.run(name)).collect();
    part.complete = runs.iter().filter(|run| run.is_complete()).count() == EXPERIMENTS.len();
    part.setting = runs.first().map(|run| run.setting.clone()).unwrap_or_default();
    let incomplete = runs.iter().filter(|run| !run.is_complete());
    part.notes = incomplete.map(|run| format!("{}: not complete.", run.name)).collect();
    part.notes.extend(there.problems.iter().map(|problem| format!("Left out: {problem}.")));
    part
}

fn like_table_1(there: &Measurements, fits: &[Fit]) -> Table {
    let copy = there.run("memory").and_then(copy_us);
    let synchronize = there.run("barrier").and_then(barrier_formula);
    let own = |name: String, messages: Vec<Value>| {
        [values![name, copy, synchronize.clone()], messages].concat()
    };
    let exchanges = fits.iter().filter(|fit| fit.figure == "exchange");
    let exchange = |fit: &Fit| {
        let messages = values![fit.messages.zero, fit.short(), fit.long()];
        own(format!("this machine, {}", fit.curve), messages)
    };
    let mut rows: Vec<Vec<Value>> = exchanges.map(exchange).collect();
    if rows.is_empty() && (copy.is_some() || synchronize.is_some()) {
        rows.push(own("this machine".to_owned(), vec![Value::None; 3]));
    }
    rows.extend(PUBLISHED.map(|(machine, copy, barrier, zero, short, long)| {
        values![machine, copy, barrier, zero, short, long]
    }));
    Table::new(
        ["table-1", "Summary of performance figures"],
        "machine | memory copy (µs/byte) | barrier, 2^d ranks (µs) | zero (µs) | short (µs) | long (µs)",
        "Messages are those of an exchange, as in the report; where no break was found, short and long \
         are the same.",
        rows,
    )
}

/// Figures that the report states in its text.
fn further(there: &Measurements, fits: &[Fit]) -> Table {
    let mut rows = Vec::new();
    let mut add = |what: String, value: Option<f64>, unit: &str| {
        rows.extend(value.map(|value| values![what, value, unit]));
    };
    for fit in fits {
        let what = format!("asymptotic bandwidth, {}, {}", fit.figure, fit.curve);
        add(what, fit.bandwidth(), "MB/s");
    }
    if let Some(longest) = there.run("matchings").and_then(|run| matchings::variation(run).pop()) {
        let what = format!("slowest over fastest random matching, {} bytes", longest.x);
        add(what, matchings::slowest_over_fastest(&longest), "");
    }
    if let Some(last) = there.run("contention").and_then(|run| contention::factors(run).pop()) {
        let Row { ranks, bytes, .. } = last.row;
        let what = format!("{} pairs in a chain over one pair, {bytes} bytes", ranks / 2);
        add(what, last.ratio, "");
    }
    if let Some(last) = there.run("hypercube").and_then(|run| hypercube::linearity(run).pop()) {
        let dimension = hypercube::dimension(last.row);
        let bytes = last.row.bytes;
        let what = format!("time a dimension, {dimension} dimensions over one, {bytes} bytes");
        add(what, last.ratio, "");
    }
    Table::new(["further", "Further figures"], "what | value | unit", "", rows)
}

/// Microseconds a byte of a copy that is long, or of the longest that was made.
fn copy_us(run: &Run) -> Option<f64> {
    let copies = memory::copies(run);
    let [aligned, ..] = copies.get(&COPIED).or_else(|| copies.values().next_back())?;
    Some((*aligned)? * 1e-3)
}

/// "15.3 d − 32.5": the library's own barrier.
fn barrier_formula(run: &Run) -> Option<String> {
    let fits = barrier::fits(&barrier::figure(run));
    let first = fits.first()?;
    let Line { slope, intercept, .. } = first.line;
    let sign = if intercept < 0.0 { '−' } else { '+' };
    let ranks = barrier::ranks(first);
    let offset = intercept.abs();
    Some(format!("{slope:.2} d {sign} {offset:.2} ({}, {ranks} ranks)", first.curve))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Exchange, Pairs, Pattern, What};
    use collectives::{Algorithm, Choice, Collective};

    #[test]
    fn a_directory_without_rows_has_the_published_machines() {
        let summary = of(&Measurements::default());
        assert!(!summary.complete);
        assert_eq!(summary.tables[0].rows.len(), 3);
        assert_eq!(summary.tables[0].rows[0][4], "75 + 0.011 m".into());
    }

    #[test]
    fn the_runs_of_a_directory_stand_above_the_published_machines() {
        let run = |name: &str, rows: Vec<Row>| Run { name: name.to_owned(), ..Run::of(rows) };
        let exchange = What::Exchange(Exchange::posted(Pairs::Chain, Pattern::Exchange));
        // An exchange moves two messages.
        let message = |bytes: u64| {
            let time = match bytes {
                0 => 58.0,
                1..=8_640 => 75.0 + 0.011 * bytes as f64,
                _ => 135.0 + 0.011 * bytes as f64,
            };
            Row::trial(exchange.clone(), 2, bytes, &[2.0 * time])
        };
        let copy = |bytes: u64, nanoseconds: f64| {
            let time = nanoseconds * 1e-3 * bytes as f64;
            Row::trial(What::Copy { source: 0, target: 0 }, 1, bytes, &[time])
        };
        let barrier = |ranks, time| {
            let what = What::Collective(Collective::Barrier);
            let algorithm = Some(Choice::of(Algorithm::Join));
            Row { algorithm, ..Row::trial(what, ranks, 0, &[time]) }
        };
        let mut there = Measurements::default();
        there.runs.extend([
            run("pingpong", (0..=16_000).step_by(64).map(message).collect()),
            run("memory", vec![copy(1024, 0.05), copy(COPIED, 14.0)]),
            run("barrier", vec![barrier(2, 13.0), barrier(4, 139.0)]),
        ]);
        let summary = of(&there);
        let row = &summary.tables[0].rows[0];
        let Value::Number(copied) = row[1] else { panic!("{row:?}") };
        assert!((copied - 0.014).abs() < 1e-9, "{copied}");
        let expected: [Value; 4] = [
            "126.00 d − 113.00 (join, 2, 4 ranks)".into(),
            58.0.into(),
            "75.000 +0.011000 m".into(),
            "135.000 +0.011000 m".into(),
        ];
        assert_eq!((&row[0], &row[2..]), (&"this machine, receive posted".into(), &expected[..]));
        let bandwidth = &summary.tables[1].rows[0][1];
        assert!(matches!(bandwidth, Value::Number(one) if one.round() == 91.0), "{bandwidth:?}");
    }
}
