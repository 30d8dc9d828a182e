//! `tradewind measure` on real processes: what comes out, never how long anything takes.

use crate::command::{text, tradewind};
use serde_json::Value;

testing::tests![every_mechanism_has_a_row_for_each_size_that_it_carries, the_table_is_for_people,];

/// Returns the JSON that the command prints: rows and crossovers.
fn report(arguments: &str) -> [Vec<Value>; 2] {
    let output = tradewind(&format!("{arguments} --format json"));
    assert!(output.status.success(), "{arguments}: {}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "no progress without a terminal: {}", text(&output.stderr));
    match serde_json::from_slice(&output.stdout) {
        Ok(Value::Object(report)) if report.len() == 2 => {
            ["rows", "crossovers"].map(|name| report[name].as_array().expect("an array").clone())
        }
        other => panic!("{arguments}: rows and crossovers and nothing else, not {other:?}"),
    }
}

const NAMES: [&str; 13] = [
    "bytes",
    "floor_ns",
    "gap_ns",
    "latency_ns",
    "mechanism",
    "megabytes_per_second",
    "processor_percent",
    "ratio",
    "receive_ns",
    "round_trips",
    "rounds",
    "send_ns",
    "threads",
];

/// Key of a row.
fn key(row: &Value) -> (String, u64, u64) {
    let number = |field: &str| row[field].as_u64().expect("a count");
    (row["mechanism"].as_str().expect("a name").to_owned(), number("threads"), number("bytes"))
}

fn assert_is_a_figure(row: &Value, name: &str) {
    let number =
        |part: &str| row[name][part].as_f64().unwrap_or_else(|| panic!("{name} has {part}: {row}"));
    assert!(
        number("median") > 0.0
            && number("p10") <= number("median")
            && number("median") <= number("p90"),
        "{row}"
    );
}

fn assert_is_a_row(row: &Value) {
    let fields = row.as_object().expect("a row is an object");
    let mut names: Vec<&str> = fields.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, NAMES);
    let (mechanism, _, bytes) = key(row);
    let figures = ["latency_ns", "gap_ns", "floor_ns", "ratio"];
    let overheads = ["send_ns", "receive_ns"];
    if mechanism == "idle" {
        assert!(row["processor_percent"].as_f64().is_some_and(|percent| percent >= 0.0), "{row}");
        assert!(figures.iter().chain(&overheads).all(|name| row[name].is_null()), "{row}");
        return;
    }
    assert!(row["processor_percent"].is_null() && row["round_trips"].as_u64() > Some(0), "{row}");
    figures.iter().for_each(|name| assert_is_a_figure(row, name));
    // Both sides have to meet for a direct transfer, and the longest do not fit.
    let meets = mechanism == "bulk-direct" || mechanism.starts_with("bulk") && bytes > 1 << 20;
    for name in overheads {
        if meets { assert!(row[name].is_null(), "{row}") } else { assert_is_a_figure(row, name) }
    }
}

fn every_mechanism_has_a_row_for_each_size_that_it_carries() {
    let [rows, crossovers] =
        report("measure queues --threads 1,2 --sizes 0,8,48,1024,1048576 --row-ms 1");
    rows.iter().for_each(assert_is_a_row);
    let found: Vec<_> = rows.iter().map(key).filter(|(name, ..)| name != "bulk-direct").collect();
    let mut expected = Vec::new();
    let mut add = |name: &str, threads: u64, sizes: &[u64]| {
        expected.extend(sizes.iter().map(|bytes| (name.to_owned(), threads, *bytes)));
    };
    let tagged_on = [0, 8, 48, 1024, 1 << 20];
    let four: &[u64] = &[0, 8, 48, 1024];
    let before: [(&str, &[u64]); 5] = [
        ("express", &[0, 8, 48]),
        ("one-poll", &[0, 8, 48]),
        ("wide", four),
        ("tag-on", &tagged_on),
        ("tag-on-resident", &tagged_on),
    ];
    let shared = [("basic-locked", four), ("append", four)];
    let alone = [("tag-on-multicast", &tagged_on[..]), ("basic", four)];
    for (name, sizes) in before.into_iter().chain(alone).chain(shared) {
        add(name, 1, sizes);
    }
    for name in ["channel", "write", "iput", "read", "accumulate", "fetch"] {
        add(name, 1, &[8]);
    }
    add("bulk", 1, &[0, 8, 48, 1024, 1 << 20]);
    add("bulk-staged", 1, &[1024, 1 << 20]);
    add("idle", 8, &[0]);
    for (name, sizes) in before.into_iter().chain(shared) {
        add(name, 2, sizes);
    }
    assert_eq!(found, expected);
    // Where the kernel allows no direct path, it has no rows at all.
    assert!([0, 2].contains(&(rows.len() - found.len())), "{} rows", rows.len());
    let pairs = |threads: u64| -> Vec<String> {
        let of = crossovers.iter().filter(|one| one["threads"] == threads);
        of.map(|one| format!("{} {}", one["short"], one["long"]).replace('"', "")).collect()
    };
    assert_eq!(
        pairs(1),
        ["express wide", "express tag-on", "wide tag-on", "wide bulk", "basic bulk"]
    );
    assert_eq!(pairs(2), ["express wide", "express tag-on", "wide tag-on"]);
    assert!(rows.iter().all(|row| row["mechanism"] == "idle" || row["rounds"].as_u64() == Some(7)));
}

fn the_table_is_for_people() {
    let output = tradewind(
        "measure queues --mechanisms express,wide,bulk --sizes 8,48 --threads 1 --row-ms 1 --rounds 8",
    );
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for part in [
        "2 ranks",
        "express",
        "wide",
        "bulk",
        "latency",
        "floor",
        "gap",
        "MB/s",
        "Wide Express to DMA",
    ] {
        assert!(table.contains(part), "{part:?} is missing from\n{table}");
    }
    assert_eq!(
        table.matches("ith 1 thread, ").count(),
        2,
        "express to wide, wide to bulk:\n{table}"
    );
}
