//! Ranks that cannot find each other: every rank that can speak reports the reason.

use super::loops::{SECRET, finish, nodes, rank, start};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

testing::tests![needs(Nodes):
    ranks_that_are_not_started_are_named_by_the_others,
    a_rank_without_the_secret_or_with_another_one_is_told_so,
    a_port_in_use_is_named_by_rank_0,
    a_rank_that_is_started_twice_is_refused,
    a_network_that_drops_everything_is_reported_with_addresses_by_both_ends,
    a_firewall_before_a_node_service_is_reported_with_its_port_by_both_ends,
];

/// Two of four ranks.
fn ranks_that_are_not_started_are_named_by_the_others() {
    let testbed = nodes(2);
    let ranks = [(0, 0), (2, 1)].map(|(number, node)| {
        let mut command = rank(&testbed, (number, 4), node, "joins");
        command.env("TRADEWIND_START_TIMEOUT", "1");
        start(command)
    });
    for rank in ranks {
        let (_, text) = finish(rank);
        let expected = "ranks 1 and 3 did not connect to rank 0 at 10.84.0.1:29501 (MASTER_ADDR, MASTER_PORT + 1)";
        assert!(text.contains(expected), "{text}");
    }
}

fn a_rank_without_the_secret_or_with_another_one_is_told_so() {
    let testbed = nodes(2);
    let mut without = rank(&testbed, (1, 3), 1, "joins");
    without.env_remove("TRADEWIND_SECRET");
    let mut other = rank(&testbed, (2, 3), 1, "joins");
    other.env("TRADEWIND_SECRET", "the secret of another test");
    let mut first = rank(&testbed, (0, 3), 0, "joins");
    first.env("TRADEWIND_START_TIMEOUT", "1");
    let [first, without, other] = [first, without, other].map(start).map(|rank| finish(rank).1);
    assert!(without.contains("set TRADEWIND_SECRET"), "{without}");
    assert!(other.contains("rank 0 at 10.84.0.1:29501 has another secret"), "{other}");
    assert!(first.contains("ranks 1 and 2 did not connect"), "{first}");
    assert!(first.contains("another secret connected from 10.84.0.2"), "{first}");
    assert!(!first.contains(SECRET) && !other.contains(SECRET));
}

fn a_port_in_use_is_named_by_rank_0() {
    let testbed = nodes(1);
    let node = &testbed.nodes()[0];
    let held = node.run(|| TcpListener::bind((node.address(), 29501))).expect("a free port");
    let (_, text) = finish(start(rank(&testbed, (0, 2), 0, "joins")));
    assert!(text.contains("rank 0 cannot listen at 10.84.0.1:29501"), "{text}");
    drop(held);
}

/// The last rank starts when the second rank 1 has been refused: a complete job no longer listens.
fn a_rank_that_is_started_twice_is_refused() {
    let testbed = nodes(2);
    let begin = |number, node| start(rank(&testbed, (number, 3), node, "collectives"));
    let (ends, ended) = mpsc::channel();
    for child in [begin(1, 1), begin(1, 1), begin(0, 0)] {
        let ends = ends.clone();
        std::thread::spawn(move || ends.send(finish(child)));
    }
    let end = || ended.recv_timeout(Duration::from_secs(60)).expect("a rank ends");
    let (_, refusal) = end();
    assert!(refusal.contains("rank 1 has connected already"), "{refusal}");
    let last = begin(2, 1);
    for (succeeded, text) in [end(), end(), finish(last)] {
        assert!(succeeded && text.contains("3 ranks on 2 nodes"), "{text}");
    }
}

fn a_network_that_drops_everything_is_reported_with_addresses_by_both_ends() {
    let testbed = nodes(2);
    testbed.unplug(1).expect("a cable can be pulled");
    let ranks = [0, 1].map(|number| {
        let mut command = rank(&testbed, (number, 2), number as usize, "joins");
        command.env("TRADEWIND_START_TIMEOUT", "1");
        start(command)
    });
    let [first, second] = ranks.map(|rank| finish(rank).1);
    assert!(first.contains("rank 1 did not connect to rank 0 at 10.84.0.1:29501"), "{first}");
    assert!(second.contains("rank 1 cannot reach rank 0 at 10.84.0.1:29501"), "{second}");
    for text in [first, second] {
        assert!(text.contains("firewall"), "{text}");
    }
}

/// The ranks exchange their addresses, and the node services cannot connect.
fn a_firewall_before_a_node_service_is_reported_with_its_port_by_both_ends() {
    let testbed = nodes(2);
    // What the services of node 0 answer is lost.
    let rule = ["rule", "add", "ipproto", "tcp", "sport", "7000-7007", "blackhole"];
    let added = testbed.nodes()[0].command("ip").args(rule).status().expect("ip is there");
    assert!(added.success());
    let ranks = [0, 1].map(|number| {
        let mut command = rank(&testbed, (number, 2), number as usize, "joins");
        command.env("TRADEWIND_START_TIMEOUT", "2").env("TRADEWIND_PORTS", "7000-7007");
        start(command)
    });
    let [first, second] = ranks.map(|rank| finish(rank).1);
    assert!(first.contains("node 1 (10.84.0.2:7000) is unreachable"), "{first}");
    assert!(first.contains("it has not connected with 10.84.0.1:7000 on this node"), "{first}");
    assert!(second.contains("node 0 (10.84.0.1:7000) is unreachable"), "{second}");
    for text in [first, second] {
        assert!(text.contains("firewall"), "{text}");
    }
}
