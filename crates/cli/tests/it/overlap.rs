//! `tradewind measure collectives` and `tradewind tour` on real processes: their output, never how
//! long anything takes.

use crate::command::{text, tradewind};
use serde_json::Value;

testing::tests![
    every_collective_has_a_row_for_each_size_and_engine,
    peers_finish_short_messages_without_their_owners,
    rows_are_kept_and_not_measured_twice,
    the_table_is_for_people,
    the_tour_shows_progress_and_then_two_nodes,
    the_tour_needs_no_arguments,
];

/// The rows that the command prints as JSON.
fn rows(arguments: &str) -> Vec<Value> {
    let output = tradewind(&format!("{arguments} --format json"));
    assert!(output.status.success(), "{arguments}: {}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "no progress without a terminal: {}", text(&output.stderr));
    match serde_json::from_slice(&output.stdout) {
        Ok(Value::Array(rows)) => rows,
        other => panic!("{arguments}: one array and nothing else, not {other:?}"),
    }
}

const NAMES: [&str; 15] = [
    "algorithm",
    "alone_us",
    "bytes",
    "compute_us",
    "engine",
    "exposed_us",
    "op",
    "overlap",
    "p10_us",
    "p90_us",
    "ranks",
    "repetitions",
    "stolen_us",
    "total_us",
    "unattended",
];

fn assert_is_a_row(row: &Value) {
    let fields = row.as_object().expect("a row is an object");
    let mut names: Vec<&str> = fields.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, NAMES);
    let number = |name: &str| row[name].as_f64().expect("a number");
    assert!(
        number("alone_us") > 0.0 && number("compute_us") > 0.0 && number("total_us") > 0.0,
        "{row}"
    );
    assert!(
        (0.0..=100.0).contains(&number("overlap")) && (0.0..=1.0).contains(&number("unattended")),
        "{row}"
    );
    assert!(
        number("p10_us") <= number("exposed_us") && number("exposed_us") <= number("p90_us"),
        "{row}"
    );
}

/// Key of a row.
fn key(row: &Value) -> (String, u64, String) {
    let name = |field: &str| row[field].as_str().expect("a name").to_owned();
    (name("op"), row["bytes"].as_u64().expect("a size"), name("engine"))
}

fn every_collective_has_a_row_for_each_size_and_engine() {
    for ranks in [2, 4] {
        let rows = rows(&format!(
            "measure collectives -n {ranks} --bytes 8,4096 --repetitions 3 --compute-us 50"
        ));
        let mut expected = Vec::new();
        for op in ["barrier", "allreduce", "alltoall", "bcast", "neighbor"] {
            for bytes in if op == "barrier" { vec![0] } else { vec![8, 4096] } {
                expected.extend(
                    ["caller", "peers"].map(|engine| (op.to_owned(), bytes, engine.to_owned())),
                );
            }
        }
        assert_eq!(rows.iter().map(key).collect::<Vec<_>>(), expected);
        for row in &rows {
            assert_is_a_row(row);
            assert_eq!(
                (row["ranks"].as_u64(), row["repetitions"].as_u64()),
                (Some(ranks), Some(3))
            );
        }
    }
}

fn peers_finish_short_messages_without_their_owners() {
    // Only looks after all ranks have started count, and by then the rank that started last has
    // finished it for all.
    let rows = rows(
        "measure collectives -n 4 --op barrier,allreduce,alltoall,neighbor --bytes 64 --engine peers --repetitions 10",
    );
    for row in rows {
        assert_eq!(row["unattended"].as_f64(), Some(1.0), "{row}");
    }
}

fn rows_are_kept_and_not_measured_twice() {
    let place = tempfile::tempdir().expect("a directory");
    let out = place.path().to_str().expect("readable");
    let line = format!(
        "measure collectives --op allreduce:8,barrier --engine peers-by-messages,caller \
         --repetitions 2 --format json --out {out}"
    );
    let parsed = || -> Vec<Value> {
        let output = tradewind(&line);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("an array")
    };
    let rows = parsed();
    let found: Vec<_> = rows.iter().map(|row| (key(row), row["algorithm"].as_str())).collect();
    let expected = [("allreduce", 8, "recursive-doubling"), ("barrier", 0, "dissemination")];
    let of = |(op, bytes, algorithm): (&str, u64, &'static str)| {
        ["peers", "caller"]
            .map(|engine| ((op.to_owned(), bytes, engine.to_owned()), Some(algorithm)))
    };
    assert_eq!(found, expected.map(of).concat());
    assert_eq!(parsed(), rows, "clocks never give the same times twice");
}

fn the_table_is_for_people() {
    let output = tradewind("measure collectives -n 2 --op bcast --bytes 1024 --repetitions 2");
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for part in [
        "2 ranks",
        "exposed",
        "unattended",
        "µs",
        "bcast",
        "1 KiB",
        "caller",
        "peers",
        "Trust exposed",
    ] {
        assert!(table.contains(part), "{part:?} is missing from\n{table}");
    }
}

fn the_tour_shows_progress_and_then_two_nodes() {
    let output = tradewind("tour -n 3");
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "no progress without a terminal: {}", text(&output.stderr));
    for part in [
        "3 ranks",
        "barrier",
        "allreduce",
        "alltoall",
        "neighbor",
        "dissemination",
        "caller",
        "peers",
        "exposed",
        "CPU added",
        "██",
    ] {
        assert!(shown.contains(part), "{part:?} is missing from\n{shown}");
    }
    let mut paragraphs = shown.trim_end().rsplit("\n\n");
    let nodes = paragraphs.next().expect("a last paragraph");
    // Without the rights, one line says which one is missing.
    let is_measured = nodes.contains("with links of 1gbit") && nodes.contains("started before it");
    assert!(
        is_measured || nodes.starts_with("Not shown between nodes: cannot make nodes"),
        "{shown}"
    );
    let sentence = paragraphs.next().expect("a paragraph before it");
    assert!(
        sentence.contains("eers") && sentence.contains("caller") && sentence.ends_with('.'),
        "{shown}"
    );
}

fn the_tour_needs_no_arguments() {
    let output = tradewind("tour --format json");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = report["rows"].as_array().expect("an array");
    rows.iter().for_each(assert_is_a_row);
    // The same algorithm on both sides of a comparison of progress.
    assert!(rows.chunks(2).all(|pair| pair[0]["algorithm"] == pair[1]["algorithm"]), "{report}");
    let between = &report["between_nodes"];
    for form in ["blocking", "nonblocking"].iter().filter(|_| between.is_object()) {
        let row = &between[form];
        assert_is_a_row(row);
        let (op, bytes, _) = key(row);
        assert_eq!((op.as_str(), bytes), ("allreduce", 256 << 10), "{row}");
    }
    let expected =
        ["barrier", "allreduce", "alltoall", "neighbor"].map(|op| [(op, "caller"), (op, "peers")]);
    let found: Vec<_> = rows.iter().map(key).collect();
    let found: Vec<_> =
        found.iter().map(|(op, _, engine)| (op.as_str(), engine.as_str())).collect();
    assert_eq!(found, expected.concat());
}
