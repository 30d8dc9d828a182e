//! `tradewind run --nodes`, with a command that enters network namespaces in the place of ssh.

use super::loops::{finish, nodes, start};
use crate::nodes::harness::{PROGRAM, processes};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use virtual_nodes::VirtualNodes;

testing::tests![needs(Nodes):
    ranks_run_on_the_nodes_of_a_list_or_a_file,
    a_rank_that_fails_ends_the_job_with_its_status,
    a_node_that_cannot_be_reached_is_named,
    nothing_is_left_when_the_launcher_is_killed,
    a_signal_to_the_launcher_of_a_node_reaches_its_ranks,
    the_doctor_reports_all_nodes_of_a_job,
];

/// Enters the namespace of a node whose name is n and its number, and executes a command line.
const REACH: &str = r#"#!/bin/sh
eval "namespace=\$NAMESPACE_$1"
[ -n "$namespace" ] || { echo "there is no node $1" >&2; exit 255; }
exec nsenter --net="$namespace" -- sh -c "$2"
"#;

/// Two nodes, and the command that reaches them.
pub(super) struct Reachable {
    testbed: VirtualNodes,
    directory: TempDir,
}

impl Reachable {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().expect("there is room");
        let reach = directory.path().join("reach");
        std::fs::write(&reach, REACH).expect("there is room");
        std::fs::set_permissions(&reach, Permissions::from_mode(0o700)).expect("it is ours");
        Reachable { testbed: nodes(2), directory }
    }

    /// Returns `tradewind run` on the first node with these options and this program.
    pub(super) fn run(&self, options: &[&str], program: &[&str]) -> Command {
        let nodes = self.testbed.nodes();
        let mut command = nodes[0].command(env!("CARGO_BIN_EXE_tradewind"));
        command.args(["run", "--timeout", "60", "--ssh"]).arg(self.directory.path().join("reach"));
        command.args(options).arg("--").args(program);
        for (number, node) in nodes.iter().enumerate() {
            command.env(format!("NAMESPACE_n{number}"), node.namespace());
        }
        command
    }

    /// Waits until no process is left on the nodes.
    pub(super) fn wait_for_silence(&self) {
        let end = Instant::now() + Duration::from_secs(20);
        while !processes(&self.testbed).is_empty() {
            assert!(Instant::now() < end, "left behind: {:?}", processes(&self.testbed));
            std::thread::yield_now();
        }
    }
}

fn ranks_run_on_the_nodes_of_a_list_or_a_file() {
    let reachable = Reachable::new();
    let file = reachable.directory.path().join("hosts");
    std::fs::write(&file, "# two nodes\nn0 slots=2\nn1:2\n").expect("there is room");
    let this = std::env::current_exe().expect("this test program");
    let program = [this.to_str().expect("readable"), "--part", "nodes::rank::program"];
    let variable = format!("{PROGRAM}=collectives");
    for (options, ranks) in [
        (&["--nodes", "n0,n1", "--ppn", "2"][..], [2, 2]),
        (&["--hostfile", file.to_str().expect("readable"), "-n", "3"], [2, 1]),
    ] {
        let options = [options, &["--env", &variable]].concat();
        let (succeeded, text) = finish(start(reachable.run(&options, &program)));
        assert!(succeeded, "{text}");
        let total: u32 = ranks.iter().sum();
        for here in ranks {
            let said = format!("{total} ranks on 2 nodes, {here} here, all is right");
            assert!(text.matches(&said).count() >= here as usize, "{text}");
        }
        reachable.wait_for_silence();
    }
}

fn a_rank_that_fails_ends_the_job_with_its_status() {
    let reachable = Reachable::new();
    let script = "[ $TRADEWIND_RANK = 2 ] && exit 7; exec sleep 1000";
    let options = ["--nodes", "n0:2,n1:2", "--grace", "0"];
    let command = reachable.run(&options, &["sh", "-c", script]);
    let output = start(command).wait_with_output().expect("a child");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{text}");
    assert!(text.contains("rank 2 failed: its process exited with status 7"), "{text}");
    assert!(text.contains("ended the ranks of n0"), "{text}");
    assert!(!text.contains("rank 0 failed"), "only the cause: {text}");
    reachable.wait_for_silence();
}

fn a_node_that_cannot_be_reached_is_named() {
    let reachable = Reachable::new();
    let command = reachable.run(&["--nodes", "n0,n7", "--grace", "0"], &["sleep", "1000"]);
    let (succeeded, text) = finish(start(command));
    assert!(!succeeded, "{text}");
    assert!(text.contains("node n7 cannot be reached"), "{text}");
    reachable.wait_for_silence();
}

fn nothing_is_left_when_the_launcher_is_killed() {
    let reachable = Reachable::new();
    let script = "echo started; exec sleep 1000";
    let mut launcher = start(reachable.run(&["--nodes", "n0:2,n1"], &["sh", "-c", script]));
    let output = launcher.stdout.take().expect("piped");
    let started = BufReader::new(output).lines().map_while(Result::ok).take(3).count();
    assert_eq!(started, 3, "all ranks run");
    let pid = Pid::from_child(&launcher);
    kill_process(pid, Signal::KILL).expect("it lives");
    launcher.wait().expect("a child");
    reachable.wait_for_silence();
}

fn a_signal_to_the_launcher_of_a_node_reaches_its_ranks() {
    let reachable = Reachable::new();
    let script = "echo started; exec sleep 1000";
    let options = ["--nodes", "n0", "--grace", "0"];
    let mut launcher = start(reachable.run(&options, &["sh", "-c", script]));
    let output = launcher.stdout.take().expect("piped");
    assert_eq!(BufReader::new(output).lines().map_while(Result::ok).take(1).count(), 1);
    let is_node = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"node")
    };
    let of_node = processes(&reachable.testbed).into_iter().find(is_node).expect("it runs");
    kill_process(Pid::from_raw(of_node).expect("a number"), Signal::TERM).expect("it lives");
    let output = launcher.wait_with_output().expect("a child");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(143), "{text}");
    assert!(text.contains("rank 0 failed"), "{text}");
    reachable.wait_for_silence();
}

fn the_doctor_reports_all_nodes_of_a_job() {
    let reachable = Reachable::new();
    let program = [env!("CARGO_BIN_EXE_tradewind"), "--format", "json", "doctor"];
    let output = start(reachable.run(&["--nodes", "n0,n1"], &program));
    let output = output.wait_with_output().expect("a child");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(report["job"]["weight"], "good", "{report}");
    let nodes = report["nodes"].as_array().expect("a list");
    assert_eq!(nodes.len(), 2, "{report}");
    for (node, address) in nodes.iter().zip(["10.84.0.1", "10.84.0.2"]) {
        let findings = node["findings"].as_array().expect("a list");
        let of = |subject: &str| {
            let finding = findings.iter().find(|finding| finding["subject"] == subject);
            finding.and_then(|finding| finding["text"].as_str()).unwrap_or_default().to_owned()
        };
        assert!(of("network").contains(address), "{report}");
        assert!(of("launcher").contains("of 2, the others through TCP"), "{report}");
        assert_eq!(of("secret"), "present", "{report}");
    }
    assert!(output.status.success());
    reachable.wait_for_silence();
}
