//! `tradewind schedule`, from outside.

use crate::command::tradewind_of;
use std::collections::HashSet;
use std::process::{Command, Output};

testing::tests![
    every_algorithm_can_be_written_as_a_goal_file_with_nothing_wrong,
    every_algorithm_can_be_drawn,
    the_summary_says_what_an_algorithm_takes,
    one_rank_can_be_looked_at,
    two_levels_are_one_schedule,
    a_reader_that_has_enough_is_no_failure_to_report,
    a_goal_file_may_be_binary_and_may_go_to_standard_output,
];

const COLLECTIVES: [&str; 11] = [
    "barrier",
    "bcast",
    "scatter",
    "gather",
    "allgather",
    "alltoall",
    "reduce",
    "allreduce",
    "reduce-scatter",
    "scan",
    "exscan",
];

fn tradewind(arguments: &[&str]) -> Output {
    tradewind_of(arguments).output().expect("cargo has built the command")
}

/// Runs a command line that succeeds, and returns its output.
fn schedule(arguments: &[&str]) -> String {
    let output = tradewind(&[&["schedule"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&schedule(&[arguments, &["--format", "json"]].concat())).expect("JSON")
}

/// Runs a command line that fails, and returns its error.
fn refused(arguments: &[&str], status: i32) -> String {
    let output = tradewind(&[&["schedule"], arguments].concat());
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).expect("text")
}

/// Every collective with each of its algorithms.
fn all() -> impl Iterator<Item = (&'static str, String)> {
    let algorithms =
        |collective| schedule(&[collective]).lines().map(str::to_owned).collect::<Vec<_>>();
    COLLECTIVES.into_iter().flat_map(move |collective| {
        let names = algorithms(collective);
        assert!(names.len() > 1, "{collective}");
        names.into_iter().map(move |name| (collective, name))
    })
}

fn every_algorithm_can_be_written_as_a_goal_file_with_nothing_wrong() {
    let folder = tempfile::tempdir().expect("a directory for temporary files");
    for (collective, algorithm) in all().filter(|(_, algorithm)| algorithm != "join") {
        let path = folder.path().join(format!("{collective}-{algorithm}.goal"));
        let path = path.to_str().expect("readable");
        let arguments = [
            collective,
            "-a",
            &algorithm,
            "-n",
            "5",
            "-b",
            "100",
            "--segment",
            "30",
            "--root",
            "3",
            "--goal",
            path,
        ];
        let summary = json(&arguments);
        let text = std::fs::read_to_string(path).expect("it was written");
        let sends = text.lines().filter(|line| line.contains("send ")).count();
        assert_eq!(summary["messages"], sends, "{collective}, {algorithm}");
        let output = tradewind(&["exec", "check", path]);
        assert_eq!(output.status.code(), Some(0), "{collective}, {algorithm}: {output:?}");
    }
}

fn every_algorithm_can_be_drawn() {
    for (collective, algorithm) in all() {
        let arguments = [collective, "-a", &algorithm, "-n", "6", "-b", "100", "--segment", "30"];
        let summary = json(&arguments);
        let messages = summary["messages"].as_u64().expect("a number") as usize;
        let svg = schedule(&[&arguments[..], &["--draw", "svg"]].concat());
        let picture =
            roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
        let of_class = |class| {
            picture
                .descendants()
                .filter(move |node| node.attribute("class") == Some(class))
                .collect::<Vec<_>>()
        };
        assert_eq!(of_class("message").len(), messages, "{collective}, {algorithm}");
        assert_eq!(of_class("life").len(), 6);
        let circles: HashSet<(&str, &str)> = (picture.descendants())
            .filter(|node| node.has_tag_name("circle"))
            .map(|node| {
                (node.attribute("cx").expect("a place"), node.attribute("cy").expect("a place"))
            })
            .collect();
        assert_eq!(
            circles.len(),
            2 * messages,
            "{collective}, {algorithm}: operations lie on each other"
        );
    }
}

fn the_summary_says_what_an_algorithm_takes() {
    let text = schedule(&["bcast", "-a", "binomial", "-n", "8", "-b", "1024"]);
    for line in
        ["bcast, binomial, 8 ranks, 1024 bytes, root 0", "7, 7168 bytes", "rank 0 → 4 → 6 → 7"]
    {
        assert!(text.contains(line), "{line} in {text}");
    }
    let summary = json(&["allreduce", "-a", "ring", "-n", "100", "-b", "800", "--type", "f64"]);
    assert_eq!((&summary["depth"], &summary["messages"]), (&198.into(), &19800.into()));
    assert_eq!(summary["most_bytes_of_a_rank"], 1584);
    let text = schedule(&["allreduce", "-a", "ring", "-n", "100"]);
    assert!(text.contains(" → … → "), "{text}");
}

fn one_rank_can_be_looked_at() {
    let arguments = ["gather", "-a", "binomial", "-n", "8", "-b", "16", "--rank", "4"];
    let text = schedule(&arguments);
    assert!(
        text.ends_with(
            "  0: recv 16b from 5 tag 0\n  1: recv 32b from 6 tag 0\n  2: send 64b to 0 tag 0, after 0, 1\n"
        ),
        "{text}"
    );
    assert_eq!(json(&arguments)["rank"].as_array().expect("a list").len(), 3);
    let picture = schedule(&[&arguments[..], &["--draw", "svg"]].concat());
    let messages = picture.matches("class=\"message\"").count();
    assert_eq!(messages, 3, "its own messages only: {picture}");
}

fn two_levels_are_one_schedule() {
    let arguments = ["-n", "12", "--ranks-per-node", "4"];
    for collective in ["barrier", "bcast", "reduce", "allreduce", "allgather", "alltoall"] {
        let algorithm = match collective {
            "bcast" | "reduce" => "binomial",
            "alltoall" => "rotated-direct",
            _ => "recursive-doubling",
        };
        let text = schedule(&[&[collective, "-a", algorithm], &arguments[..]].concat());
        assert!(
            text.lines().next().is_some_and(|title| title.ends_with(", 4 ranks a node")),
            "{text}"
        );
    }
    let error = refused(&[&["scan", "-a", "chain"], &arguments[..]].concat(), 1);
    assert!(
        error.contains("scan has no form in two levels: leave out --ranks-per-node"),
        "{error}"
    );
    let error = refused(&[&["bcast", "-a", "join"], &arguments[..]].concat(), 1);
    assert!(error.contains("use another algorithm"), "{error}");
    let error = refused(&[&["alltoall", "-a", "bruck"], &arguments[..]].concat(), 1);
    assert!(error.contains("use direct, rotated-direct or pairwise"), "{error}");
}

/// As with `| head`, which ends before the command.
fn a_reader_that_has_enough_is_no_failure_to_report() {
    let closed = || {
        let (reader, writer) = std::io::pipe().expect("descriptors");
        drop(reader);
        writer
    };
    let command = || Command::new(env!("CARGO_BIN_EXE_tradewind"));
    let output = command().args(["schedule", "bcast"]).stdout(closed()).output();
    let output = output.expect("cargo has built the command");
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(141), &b""[..]), "{output:?}");
    // Of an error that nothing reads, the status is left.
    let status = command().args(["check", "no-such-file"]).stderr(closed()).status();
    assert_eq!(status.expect("cargo has built the command").code(), Some(1));
}

fn a_goal_file_may_be_binary_and_may_go_to_standard_output() {
    let folder = tempfile::tempdir().expect("a directory for temporary files");
    let path = folder.path().join("chain.bin");
    schedule(&["bcast", "-a", "chain", "--goal", path.to_str().expect("readable")]);
    assert_eq!(std::fs::read(&path).expect("it was written")[..8], 4223u64.to_le_bytes());
    let text = schedule(&["bcast", "-a", "chain", "-n", "2", "-b", "8", "--goal", "-"]);
    assert_eq!(text, "num_ranks 2\n\nrank 0 {\nsend 8b to 1\n}\n\nrank 1 {\nrecv 8b from 0\n}\n");
}
