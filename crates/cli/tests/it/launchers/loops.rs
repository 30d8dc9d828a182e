//! Processes with the variables of torchrun, as loops over ssh and Kubernetes start them.

use crate::nodes::harness::{PROGRAM, processes};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use virtual_nodes::VirtualNodes;

testing::tests![needs(Nodes):
    ranks_meet_at_rank_0_over_ipv4_and_ipv6,
    the_end_of_a_node_is_reported_to_those_without_a_connection,
];

pub(super) const SECRET: &str = "the secret of this test";

pub(super) fn nodes(count: usize) -> VirtualNodes {
    VirtualNodes::new(count, 1500).expect("the runner has made sure of virtual nodes")
}

/// Prepares a rank on a node, with the variables of a loop over ssh.
pub(super) fn rank(
    testbed: &VirtualNodes,
    (rank, ranks): (u32, u32),
    node: usize,
    program: &str,
) -> Command {
    let mut command =
        testbed.nodes()[node].command(std::env::current_exe().expect("this test program"));
    command.args(["--part", "nodes::rank::program"]).env(PROGRAM, program);
    command.env("TRADEWIND_COMMAND", env!("CARGO_BIN_EXE_tradewind"));
    command.env("RANK", rank.to_string()).env("WORLD_SIZE", ranks.to_string());
    command.env("MASTER_ADDR", testbed.nodes()[0].address().to_string());
    command.env("MASTER_PORT", "29500").env("TRADEWIND_SECRET", SECRET);
    command.env("TRADEWIND_START_TIMEOUT", "30");
    command
}

pub(super) fn start(mut command: Command) -> Child {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("a program that exists")
}

/// Waits for a process, and returns its two outputs in one text.
pub(super) fn finish(child: Child) -> (bool, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().expect("a child");
    let text = [stdout, stderr].concat();
    (status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn ranks_meet_at_rank_0_over_ipv4_and_ipv6() {
    let testbed = nodes(2);
    for is_ipv6 in [false, true] {
        let places = [0, 0, 1];
        let ranks: Vec<Child> = (0..3)
            .map(|number| {
                let mut command =
                    rank(&testbed, (number, 3), places[number as usize], "collectives");
                if is_ipv6 {
                    command.env("MASTER_ADDR", testbed.nodes()[0].address_v6().to_string());
                    command.env("TRADEWIND_INTERFACE", "fd54::/16");
                }
                start(command)
            })
            .collect();
        for (ended, here) in ranks.into_iter().map(finish).zip([2, 2, 1]) {
            let expected = format!("3 ranks on 2 nodes, {here} here, all is right");
            assert!(ended.0 && ended.1.contains(&expected), "{ended:?}");
        }
    }
}

/// Twenty nodes, of which each is connected with sixteen.
fn the_end_of_a_node_is_reported_to_those_without_a_connection() {
    const NODES: u32 = 20;
    const KILLED: u32 = 5;
    let testbed = nodes(1);
    let mut ranks: Vec<Child> = (0..NODES)
        .map(|number| {
            let mut command = rank(&testbed, (number, NODES), 0, "waits");
            command.env("TRADEWIND_NODE", format!("node {number}"));
            // By the node services, which alone are not all connected.
            command.env("TRADEWIND_INTERNODE", "agent");
            start(command)
        })
        .collect();
    let outputs = ranks.iter_mut().map(|rank| rank.stdout.take().expect("piped"));
    let mut outputs: Vec<_> = outputs.map(|output| BufReader::new(output).lines()).collect();
    let mut next = |number: usize| {
        let lines = &mut outputs[number];
        lines.map_while(Result::ok).find(|line| line.starts_with("> ")).unwrap_or_default()
    };
    for number in 0..NODES as usize {
        assert_eq!(next(number), format!("> {number} goes on"));
    }
    let is_killed = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let ending = format!("-{KILLED}");
        words.get(2) == Some(&&b"serve"[..]) && words[3].ends_with(ending.as_bytes())
    };
    let services: Vec<i32> = processes(&testbed).into_iter().filter(is_killed).collect();
    let [service] = services[..] else { panic!("{services:?}") };
    kill_process(Pid::from_raw(service).expect("a number"), Signal::KILL).expect("it lives");
    for number in (0..NODES).filter(|number| *number != KILLED) {
        let expected = format!("> {number} node {KILLED} is unreachable");
        assert_eq!(next(number as usize), expected);
    }
    for mut rank in ranks {
        rank.wait().expect("a child");
    }
}
