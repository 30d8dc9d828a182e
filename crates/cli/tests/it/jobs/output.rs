//! The ranks' output, line by line.

use crate::jobs::harness::TRADEWIND;
use std::collections::HashMap;
use std::process::{Command, Stdio};

testing::tests![
    every_line_has_its_rank_and_stays_whole,
    the_two_outputs_stay_apart_and_rests_are_written,
    the_first_rank_reads_what_the_command_is_given,
    a_reader_that_goes_away_ends_the_ranks_that_write,
    ranks_are_told_the_cores_of_the_map,
    ranks_have_the_variables_of_the_command_line,
    options_for_several_nodes_need_nodes,
];

/// Output and error output of ranks with prefixes.
fn prefixed(ranks: &str, script: &str) -> (String, String) {
    let mut command = Command::new(TRADEWIND);
    command.args(["run", "-n", ranks, "--prefix", "--", "sh", "-c", script]).stdin(Stdio::null());
    let output = command.output().expect("cargo has built the command");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (text(output.stdout), text(output.stderr))
}

fn every_line_has_its_rank_and_stays_whole() {
    // Each line in two pieces, so that a careless copy would mix them.
    let script = "i=0; while [ $i -lt 300 ]; do printf \"rank $TRADEWIND_RANK \"; printf \"line $i\\n\"; i=$((i+1)); done";
    let (output, error) = prefixed("4", script);
    let mut next: HashMap<u32, u32> = HashMap::new();
    for line in output.lines() {
        let (prefix, rest) = line.split_once(' ').expect("a prefix");
        let rank: u32 = prefix[1..prefix.len() - 1].parse().expect("a rank");
        let number = next.entry(rank).or_default();
        assert_eq!((prefix, rest), (&*format!("[{rank}]"), &*format!("rank {rank} line {number}")));
        *number += 1;
    }
    assert_eq!(next, (0..4).map(|rank| (rank, 300)).collect());
    assert_eq!(error, "");
}

fn the_two_outputs_stay_apart_and_rests_are_written() {
    let (output, error) = prefixed("2", "printf out; printf wrong >&2");
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&output), ["[0] out", "[1] out"]);
    assert_eq!(sorted(&error), ["[0] wrong", "[1] wrong"]);
}

fn the_first_rank_reads_what_the_command_is_given() {
    let mut command = Command::new(TRADEWIND);
    command.args(["run", "-n", "2", "--prefix", "--", "cat"]);
    command.stdin(Stdio::from(
        std::fs::File::open("/etc/hostname")
            .or_else(|_| std::fs::File::open("/etc/passwd"))
            .expect("one of them"),
    ));
    let output = command.output().expect("cargo has built the command");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("[0] "), "{text}");
    assert!(!text.contains("[1] "), "{text}");
}

fn a_reader_that_goes_away_ends_the_ranks_that_write() {
    let mut command = Command::new(TRADEWIND);
    command.args(["run", "-n", "2", "--prefix", "--", "yes"]).stdin(Stdio::null());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("cargo has built the command");
    drop(child.stdout.take());
    // `yes` is ended by SIGPIPE, as in a shell's pipeline, or says that it cannot write.
    assert!(!child.wait().expect("a child").success());
}

fn ranks_are_told_the_cores_of_the_map() {
    let cores = shm::process::allowed_cores();
    // A rank binds itself to the core that it is assigned when it joins.
    let script = "echo $TRADEWIND_CORE";
    let map = [cores[cores.len() - 1], cores[0]];
    let run = |map: &str| {
        let mut command = Command::new(TRADEWIND);
        command
            .args(["run", "-n", "3", "--prefix", "--map", map, "--", "sh", "-c", script])
            .stdin(Stdio::null());
        command.output().expect("cargo has built the command")
    };
    let output = run(&format!("{},{}", map[0], map[1]));
    let mut lines: Vec<String> =
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    let expected =
        [(0, map[0]), (1, map[1]), (2, map[0])].map(|(rank, core)| format!("[{rank}] {core}"));
    assert_eq!(lines, expected, "{}", String::from_utf8_lossy(&output.stderr));
    let refused = run("0,4095");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("core 4095 of the map"), "{said}");
}

fn ranks_have_the_variables_of_the_command_line() {
    let mut command = Command::new(TRADEWIND);
    command.args(["run", "-n", "1", "--env", "FIRST=1 2", "--env", "SECOND", "--"]);
    command.args(["sh", "-c", "echo $FIRST, $SECOND"]).env("SECOND", "2").stdin(Stdio::null());
    let output = command.output().expect("cargo has built the command");
    assert_eq!(output.stdout, b"1 2, 2\n", "{output:?}");
}

fn options_for_several_nodes_need_nodes() {
    for option in [["--ppn", "2"], ["--ssh", "rsh"]] {
        let mut command = Command::new(TRADEWIND);
        command.args(["run", "-n", "1"]).args(option).args(["--", "true"]);
        let output = command.output().expect("cargo has built the command");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("--nodes"), "{text}");
    }
}
