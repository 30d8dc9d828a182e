//! Recovery on a network that loses, repeats, reorders and damages packets, or is interrupted.

use crate::wire::harness::{Family, ONCE, WireNode, relayed, wire_nodes};
use kernel::wire::{NODE_TIMEOUT, requests_within};
use std::time::{Duration, Instant};
use testing::relay::{Faults, Relay};

testing::tests![needs(Tap, Bpf, Clang):
    nothing_is_lost_or_repeated_without_faults,
    nothing_is_lost_or_repeated_at_1_percent,
    nothing_is_lost_or_repeated_at_5_percent,
    nothing_is_lost_or_repeated_at_20_percent,
    damaged_and_replayed_packets_change_nothing,
    a_link_that_is_down_for_a_second_costs_time_only,
    a_node_that_vanishes_is_noticed_by_unanswered_requests,
];

const MESSAGES: u32 = 3000;
/// Time after which a test has failed; it is no measure of speed.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Sends messages of many sizes in both directions, and requests while there is no other work,
/// until everything has arrived.
fn exchange(relay: &Relay, wire_nodes: &[WireNode<'_>], mut between: impl FnMut(u32)) {
    let mut sent = [0; 2];
    let end = Instant::now() + TIME_LIMIT;
    let arrived = |wire_node: &WireNode<'_>| {
        let deliveries = wire_node.deliveries(0..MESSAGES);
        deliveries.iter().all(|times| *times == ONCE)
    };
    while sent != [MESSAGES; 2] || !wire_nodes.iter().all(arrived) {
        assert!(
            Instant::now() < end,
            "sent {sent:?}; {:?}; {:?}",
            wire_nodes[0].counts(),
            wire_nodes[1].counts()
        );
        for (from, count) in sent.iter_mut().enumerate() {
            let bytes = [0, 8, 100, 1300][*count as usize % 4];
            let many = (MESSAGES - *count).min(20);
            *count += wire_nodes[from].send(1 - from, *count, bytes, many);
            wire_nodes[from].ask(1 - from);
        }
        between(sent[0]);
        std::thread::yield_now();
    }
    // Packets that are still under way have no effect.
    relay.set_faults(Faults::default());
    wire_nodes.iter().for_each(|wire_node| {
        assert_eq!(wire_node.deliveries(0..MESSAGES), vec![ONCE; MESSAGES as usize])
    });
}

fn under(faults: Faults, family: Family, mtu: u32) -> [kernel::wire::Counters; 2] {
    let (testbed, relay) = relayed(2, mtu, 11);
    let wire_nodes = wire_nodes(&testbed, family);
    relay.set_faults(faults);
    exchange(&relay, &wire_nodes, |_| {});
    [wire_nodes[0].counts(), wire_nodes[1].counts()]
}

fn nothing_is_lost_or_repeated_without_faults() {
    let counts = under(Faults::default(), Family::V4, 1500);
    assert!(counts.iter().all(|counts| counts.rejected() == 0), "{counts:?}");
}

fn nothing_is_lost_or_repeated_at_1_percent() {
    under(Faults::of_networks(0.01), Family::V6, 1500);
}

fn nothing_is_lost_or_repeated_at_5_percent() {
    under(Faults::of_networks(0.05), Family::V4, 9000);
}

fn nothing_is_lost_or_repeated_at_20_percent() {
    let counts = under(Faults::of_networks(0.2), Family::V4, 1500);
    assert!(
        counts.iter().all(|counts| counts.resent > 500 && counts.duplicate > 500),
        "{counts:?}"
    );
}

fn damaged_and_replayed_packets_change_nothing() {
    let faults = Faults { mutate: 0.1, truncate: 0.1, replay: 0.2, ..Faults::of_networks(0.02) };
    let counts = under(faults, Family::V4, 1500);
    assert!(
        counts
            .iter()
            .all(|counts| counts.forged > 50 && counts.truncated > 100 && counts.stale > 0),
        "{counts:?}"
    );
}

fn a_link_that_is_down_for_a_second_costs_time_only() {
    let (testbed, relay) = relayed(2, 1500, 3);
    let wire_nodes = wire_nodes(&testbed, Family::V4);
    let mut since = None;
    let mut worst = 0;
    exchange(&relay, &wire_nodes, |sent| {
        worst = worst.max(wire_nodes[0].ask(1));
        match since {
            None if sent > MESSAGES / 2 => {
                testbed.unplug(1).expect("there is such a node");
                since = Some(Instant::now());
            }
            Some(start) if start.elapsed() > Duration::from_secs(1) => {
                testbed.plug(1).expect("there is such a node");
                since = Some(Instant::now() + TIME_LIMIT);
            }
            _ => {}
        }
    });
    assert!(since.is_some(), "the link was down");
    assert!(
        (5..requests_within(NODE_TIMEOUT)).contains(&worst),
        "{worst} requests stayed unanswered"
    );
}

fn a_node_that_vanishes_is_noticed_by_unanswered_requests() {
    let (testbed, _relay) = relayed(2, 1500, 3);
    let wire_nodes = wire_nodes(&testbed, Family::V4);
    assert_eq!(wire_nodes[0].ask(1), 1);
    testbed.unplug(1).expect("there is such a node");
    let start = Instant::now();
    let mut asked = 0;
    let maximum = requests_within(NODE_TIMEOUT);
    while asked < maximum {
        assert!(start.elapsed() < TIME_LIMIT);
        asked = wire_nodes[0].ask(1);
        // Growing sleeps, like those of a waiting rank, leave the core to others.
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(
        wire_nodes[0].counts().asked <= u64::from(maximum) + 1,
        "however often a rank wants to ask"
    );
}
