//! `tradewind run --nodes`, with a command that enters network namespaces in the place of ssh.

use super::loops::{finish, start};
use super::reachable::Reachable;
use crate::nodes::harness::{PROGRAM, processes};
use measure::rows::{Measurements, Run};
use models::decision::DecisionTable;
use models::machine_file::{Engine, Machine};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Child;

testing::tests![needs(Nodes):
    ranks_run_on_the_nodes_of_a_list_or_a_file,
    ranks_meet_where_sockets_of_ipv6_take_no_ipv4,
    a_rank_that_fails_ends_the_job_with_its_status,
    a_node_that_cannot_be_reached_is_named,
    nothing_is_left_when_the_launcher_is_killed,
    nothing_is_left_when_the_launcher_of_a_node_is_killed,
    a_signal_to_the_launcher_of_a_node_reaches_its_ranks,
    the_doctor_reports_all_nodes_of_a_job,
];

testing::tests![needs(Nodes, Bpf):
    a_job_with_the_kernel_engine_is_tuned_for_it,
];

fn ranks_run_on_the_nodes_of_a_list_or_a_file() {
    let reachable = Reachable::new();
    let file = reachable.path("hosts");
    std::fs::write(&file, "# two nodes\nn0 slots=2\nn1:2\n").expect("there is space");
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

/// Measurements of the kernel do not pass for those of the node services.
fn a_job_with_the_kernel_engine_is_tuned_for_it() {
    let reachable = Reachable::new();
    let place = tempfile::tempdir().expect("space for files");
    let path = |name: &str| place.path().join(name).to_str().expect("readable").to_owned();
    let (table, results) = (path("decisions.json"), path("results"));
    let tune = ["tune", "--quick", "--out", &table, "--measurements", &results];
    let program = [&[env!("CARGO_BIN_EXE_tradewind")], &tune[..]].concat();
    let (succeeded, text) = finish(start(reachable.run(&["--nodes", "n0,n1"], &program)));
    assert!(succeeded && text.contains("with TRADEWIND_INTERNODE=direct"), "{text}");
    let table = DecisionTable::read(Path::new(&table)).expect("a table");
    let mut ranges = table.rows().iter().flat_map(|row| &row.ranges);
    assert!(ranges.all(|range| range.engine == Some(Engine::Kernel)), "{table:?}");
    let results = Path::new(&results);
    let rows = Measurements::read(results).expect("rows");
    assert!(rows.run("plogp-nodes-kernel").is_some_and(Run::is_complete), "{text}");
    assert!(rows.run("decisions-nodes-kernel").is_some_and(Run::is_complete), "{text}");
    let machine = Machine::read(&results.join("machine.json")).expect("parameters");
    assert!(machine.engines[&Engine::Kernel].calibration.is_some(), "{machine:?}");
    reachable.wait_for_silence();
}

fn ranks_meet_where_sockets_of_ipv6_take_no_ipv4() {
    let reachable = Reachable::new();
    let node = &reachable.testbed().nodes()[0];
    let set = ["-c", "echo 1 > /proc/sys/net/ipv6/bindv6only"];
    assert!(node.command("sh").args(set).status().expect("every system has sh").success());
    let this = std::env::current_exe().expect("this test program");
    let program = [this.to_str().expect("readable"), "--part", "nodes::rank::program"];
    let variable = format!("{PROGRAM}=examples");
    let command = reachable.run(&["--nodes", "n0,n1", "--env", &variable], &program);
    let (succeeded, text) = finish(start(command));
    assert!(succeeded && text.matches("together we are 3").count() == 2, "{text}");
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

/// Starts ranks that never look at their job, and waits until they run.
fn endless(reachable: &Reachable, options: &[&str], ranks: usize) -> Child {
    let script = "echo started; exec sleep 1000";
    let mut launcher = start(reachable.run(options, &["sh", "-c", script]));
    let output = launcher.stdout.take().expect("piped");
    let started = BufReader::new(output).lines().map_while(Result::ok).take(ranks).count();
    assert_eq!(started, ranks, "all ranks run");
    launcher
}

/// The launchers of nodes, `tradewind internal node`.
fn launchers_of_nodes(reachable: &Reachable) -> Vec<Pid> {
    let is_node = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(2) == Some(b"node")
    };
    let all = processes(reachable.testbed()).into_iter().filter(is_node);
    all.filter_map(Pid::from_raw).collect()
}

fn nothing_is_left_when_the_launcher_is_killed() {
    let reachable = Reachable::new();
    let mut launcher = endless(&reachable, &["--nodes", "n0:2,n1"], 3);
    kill_process(Pid::from_child(&launcher), Signal::KILL).expect("it lives");
    launcher.wait().expect("a child");
    reachable.wait_for_silence();
}

/// It cannot end its ranks itself.
fn nothing_is_left_when_the_launcher_of_a_node_is_killed() {
    let reachable = Reachable::new();
    let launcher = endless(&reachable, &["--nodes", "n0:2", "--grace", "0"], 2);
    let [of_node] = launchers_of_nodes(&reachable)[..] else { panic!("there is one node") };
    kill_process(of_node, Signal::KILL).expect("it lives");
    let output = launcher.wait_with_output().expect("a child");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(137), "{text}");
    reachable.wait_for_silence();
}

fn a_signal_to_the_launcher_of_a_node_reaches_its_ranks() {
    let reachable = Reachable::new();
    let launcher = endless(&reachable, &["--nodes", "n0", "--grace", "0"], 1);
    let [of_node] = launchers_of_nodes(&reachable)[..] else { panic!("there is one node") };
    kill_process(of_node, Signal::TERM).expect("it lives");
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
