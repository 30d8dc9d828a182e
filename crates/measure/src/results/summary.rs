//! The summary: a table like table 1 of Bokhari 1995, made of the parts that there are.

use crate::results::{Directory, Part, Table, Value};

/// Name of the part.
pub const NAME: &str = "summary";
/// Table 1 of the report: memory copy (µs a byte), barrier, zero, short and long messages.
const PUBLISHED: [(&str, f64, &str, f64, &str, &str); 3] = [
    ("Intel Paragon", 0.0140, "126 d − 113", 58.0, "75 + 0.011 m", "135 + 0.011 m"),
    ("IBM SP2", 0.0043, "72 d − 52", 48.0, "70 + 0.043 m", "−50 + 0.056 m"),
    ("Meiko CS-2", 0.0153, "17 d − 5.6", 103.0, "105 + 0.025 m", "105 + 0.025 m"),
];
/// Copies of this size stand for copying memory: larger than what is nearest to a core.
const COPIED: f64 = 1_048_576.0;

/// The summary of what this directory has and can be read.
pub fn of(directory: &Directory) -> Part {
    let mut unreadable = Vec::new();
    let mut read = |name: &str| {
        directory.read(name).unwrap_or_else(|error| {
            unreadable.push(format!("Left out: {error}."));
            None
        })
    };
    let pingpong = read("pingpong");
    let barrier = read("barrier");
    let memory = read("memory");
    let (matchings, contention, hypercube) =
        (read("matchings"), read("contention"), read("hypercube"));
    let mut part = Part::new(NAME, "Summary of performance figures");
    part.about =
        "What the experiments of this directory come to, beside the machines of the report: µs, \
                  and µs a byte. d is the dimension of 2^d ranks, m the message length in bytes."
            .to_owned();
    part.source = "Bokhari 1995, table 1".to_owned();
    part.tables.push(like_table_1(pingpong.as_ref(), barrier.as_ref(), memory.as_ref()));
    part.tables.push(further(
        pingpong.as_ref(),
        matchings.as_ref(),
        contention.as_ref(),
        hypercube.as_ref(),
    ));
    let parts = [pingpong, barrier, memory, matchings, contention, hypercube];
    part.complete = parts.iter().flatten().filter(|part| part.complete).count() == parts.len();
    part.setting =
        parts.iter().flatten().next().map(|part| part.setting.clone()).unwrap_or_default();
    part.notes = parts
        .iter()
        .flatten()
        .filter(|part| !part.complete)
        .map(|part| format!("{}: not complete.", part.title))
        .chain(unreadable)
        .collect();
    part
}

fn table(name: &str, title: &str, columns: &[&str]) -> Table {
    let columns = columns.iter().map(ToString::to_string).collect();
    Table {
        name: name.to_owned(),
        title: title.to_owned(),
        caption: String::new(),
        columns,
        rows: Vec::new(),
    }
}

fn like_table_1(pingpong: Option<&Part>, barrier: Option<&Part>, memory: Option<&Part>) -> Table {
    let mut table = table(
        "table-1",
        "Summary of performance figures",
        &[
            "machine",
            "memory copy (µs/byte)",
            "barrier, 2^d ranks (µs)",
            "zero (µs)",
            "short (µs)",
            "long (µs)",
        ],
    );
    table.caption =
        "Messages are those of an exchange, as in the report; where no break was found, short and \
                     long are the same."
            .to_owned();
    let copy = copy_us(memory).map_or(Value::None, Value::Number);
    let synchronize = barrier_formula(barrier).map_or(Value::None, Value::Text);
    let rows = rows(pingpong, "fits");
    for curve in [
        "receive posted",
        "receive not posted",
        "receive posted, peers",
        "receive not posted, peers",
    ] {
        let of = |kinds: &[&str]| {
            let is = |row: &&&Vec<Value>| {
                text(row, 0) == "exchange" && text(row, 1) == curve && kinds.contains(&text(row, 2))
            };
            rows.iter().find(is).copied()
        };
        let zero = of(&["zero"]);
        let short = of(&["short", "all"]);
        let long = of(&["long", "all"]);
        if zero.is_none() && short.is_none() {
            continue;
        }
        let formula = |row: Option<&Vec<Value>>| match row
            .and_then(|row| Some((number(row, 5)?, number(row, 7)?)))
        {
            Some((a, b)) => Value::Text(format!("{a:.3} {b:+.6} m")),
            None => Value::None,
        };
        let zero = zero.and_then(|row| number(row, 5)).map_or(Value::None, Value::Number);
        let name = format!("this machine, {curve}");
        table.rows.push(vec![
            name.into(),
            copy.clone(),
            synchronize.clone(),
            zero,
            formula(short),
            formula(long),
        ]);
    }
    if table.rows.is_empty() && (copy != Value::None || synchronize != Value::None) {
        table.rows.push(vec![
            "this machine".into(),
            copy,
            synchronize,
            Value::None,
            Value::None,
            Value::None,
        ]);
    }
    for (machine, copy, barrier, zero, short, long) in PUBLISHED {
        table.rows.push(vec![
            machine.into(),
            copy.into(),
            barrier.into(),
            zero.into(),
            short.into(),
            long.into(),
        ]);
    }
    table
}

/// Figures that the report states in its text.
fn further(
    pingpong: Option<&Part>,
    matchings: Option<&Part>,
    contention: Option<&Part>,
    hypercube: Option<&Part>,
) -> Table {
    let mut table = table("further", "Further figures", &["what", "value", "unit"]);
    let mut add = |what: String, value: Option<f64>, unit: &str| {
        if let Some(value) = value {
            table.rows.push(vec![what.into(), value.into(), unit.into()]);
        }
    };
    for row in
        rows(pingpong, "fits").into_iter().filter(|row| ["long", "all"].contains(&text(row, 2)))
    {
        add(
            format!("asymptotic bandwidth, {}, {}", text(row, 0), text(row, 1)),
            number(row, 9),
            "MB/s",
        );
    }
    if let Some(row) = rows(matchings, "variation").last() {
        add(
            format!(
                "slowest over fastest random matching, {} bytes",
                number(row, 0).unwrap_or(0.0)
            ),
            number(row, 6),
            "",
        );
    }
    if let Some(row) = rows(contention, "factors").last() {
        let pairs = number(row, 0).unwrap_or(0.0);
        let bytes = number(row, 1).unwrap_or(0.0);
        add(format!("{pairs} pairs in a chain over one pair, {bytes} bytes"), number(row, 3), "");
    }
    if let Some(row) = rows(hypercube, "linearity").last() {
        let bytes = number(row, 0).unwrap_or(0.0);
        let dimension = number(row, 1).unwrap_or(0.0);
        add(
            format!("time a dimension, {dimension} dimensions over one, {bytes} bytes"),
            number(row, 4),
            "",
        );
    }
    table
}

fn rows<'a>(part: Option<&'a Part>, table: &str) -> Vec<&'a Vec<Value>> {
    part.and_then(|part| part.table(table))
        .map(|table| table.rows.iter().collect())
        .unwrap_or_default()
}

fn text(row: &[Value], column: usize) -> &str {
    match row.get(column) {
        Some(Value::Text(text)) => text,
        _ => "",
    }
}

fn number(row: &[Value], column: usize) -> Option<f64> {
    match row.get(column) {
        Some(Value::Number(number)) => Some(*number),
        _ => None,
    }
}

/// Microseconds a byte of a copy that is long, or of the longest that was made.
fn copy_us(memory: Option<&Part>) -> Option<f64> {
    let copies = rows(memory, "copy");
    let long = copies.iter().find(|row| number(row, 0) == Some(COPIED)).or(copies.last())?;
    Some(number(long, 1)? * 1e-3)
}

/// "15.3 d − 32.5": the library's own barrier.
fn barrier_formula(barrier: Option<&Part>) -> Option<String> {
    let fits = rows(barrier, "fits");
    let row = fits.first()?;
    let a = number(row, 2)?;
    let b = number(row, 4)?;
    Some(format!(
        "{a:.2} d {} {:.2} ({}, {} ranks)",
        if b < 0.0 { '−' } else { '+' },
        b.abs(),
        text(row, 0),
        text(row, 1)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part_with(name: &str, table: &str, rows: Vec<Vec<Value>>) -> Part {
        let mut part = Part { complete: true, ..Part::new(name, name) };
        let columns = vec![""; rows.first().map_or(0, Vec::len)];
        part.tables.push(Table { rows, ..super::table(table, table, &columns) });
        part
    }

    #[test]
    fn a_directory_without_parts_has_the_published_machines() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = Directory::create(place.path()).expect("a directory");
        let summary = of(&directory);
        assert!(!summary.complete);
        assert_eq!(summary.tables[0].rows.len(), 3);
        assert_eq!(summary.tables[0].rows[0][4], "75 + 0.011 m".into());
    }

    #[test]
    fn what_was_found_stands_above_the_published_machines() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = Directory::create(place.path()).expect("a directory");
        let fit = |kind: &str, a: f64, b: f64| -> Vec<Value> {
            let head: [Value; 3] = ["exchange".into(), "receive posted".into(), kind.into()];
            let rest = [0.0, 0.0, a, 0.0, b, 0.0, 1.0 / b].map(Value::Number);
            head.into_iter().chain(rest).collect()
        };
        let fits =
            vec![fit("zero", 58.0, 0.0), fit("short", 75.0, 0.011), fit("long", 135.0, 0.011)];
        let copies = vec![
            [1024.0, 0.05].map(Value::Number).to_vec(),
            [COPIED, 14.0].map(Value::Number).to_vec(),
        ];
        let barrier: Vec<Value> = vec![
            "join".into(),
            "2, 4".into(),
            126.0.into(),
            Value::None,
            (-113.0).into(),
            Value::None,
        ];
        for part in [
            part_with("pingpong", "fits", fits),
            part_with("memory", "copy", copies),
            part_with("barrier", "fits", vec![barrier]),
        ] {
            directory.write(&part).expect("there is space");
        }
        let summary = of(&directory);
        let row = &summary.tables[0].rows[0];
        let expected: [Value; 6] = [
            "this machine, receive posted".into(),
            0.014.into(),
            "126.00 d − 113.00 (join, 2, 4 ranks)".into(),
            58.0.into(),
            "75.000 +0.011000 m".into(),
            "135.000 +0.011000 m".into(),
        ];
        assert_eq!(row.as_slice(), expected);
        assert_eq!(number(&summary.tables[1].rows[0], 1).map(f64::round), Some(91.0));
    }
}
