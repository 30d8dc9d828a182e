//! Processes with the variables of torchrun, as loops over ssh and Kubernetes start them.

use crate::nodes::harness::PROGRAM;
use std::process::{Child, Command, Output, Stdio};
use virtual_nodes::VirtualNodes;

testing::tests![needs(Nodes): ranks_meet_at_rank_0_over_ipv4_and_ipv6];

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
