//! Sizes, windows and acknowledgements on a network without faults.

use crate::wire::harness::{Family, JOB, ONCE, PORT, Tally, WireNode, joined, wire_nodes};
use kernel::wire::{Key, WINDOW, piece_bytes};

testing::tests![needs(Nodes, Bpf, Clang):
    messages_of_every_size_arrive,
    traffic_acknowledges_and_only_a_half_full_window_does_it_by_itself,
    a_full_window_holds_the_sender_until_it_opens,
    messages_without_space_are_sent_again,
    a_receiver_without_space_holds_the_sender,
    two_jobs_on_the_same_nodes_do_not_disturb_each_other,
];

fn messages_of_every_size_arrive() {
    for (family, mtu) in
        [(Family::V4, 1500), (Family::V4, 9000), (Family::V6, 1500), (Family::V6, 9000)]
    {
        let testbed = joined(2, mtu);
        let nodes = wire_nodes(&testbed, family);
        let address = crate::wire::harness::endpoint(&testbed.nodes()[0], family, PORT).address;
        let mut ordinal = 0;
        for bytes in [0, 1, 7, 8, 9, 63, 64, 65, 1000, piece_bytes(mtu, address)] {
            assert_eq!(nodes[0].send(1, ordinal, bytes, 1), 1);
            assert_eq!(nodes[1].send(0, ordinal, bytes, 1), 1);
            ordinal += 1;
        }
        for node in &nodes {
            assert_eq!(node.deliveries(0..ordinal), vec![ONCE; ordinal as usize]);
            assert_eq!(node.counts().rejected(), 0);
        }
    }
}

fn traffic_acknowledges_and_only_a_half_full_window_does_it_by_itself() {
    let testbed = joined(2, 1500);
    let [one, other] = &wire_nodes(&testbed, Family::V4)[..] else { unreachable!("there are two") };
    let half = WINDOW as u32 / 2;
    one.send(1, 0, 8, half - 1);
    assert_eq!(other.counts().acknowledged, 0);
    one.send(1, half - 1, 8, 1);
    assert_eq!(other.counts().acknowledged, 1);
    // A packet each way: each acknowledges the one before, so the window never fills.
    for ordinal in half..half + 4 * WINDOW as u32 {
        assert_eq!((one.send(1, ordinal, 8, 1), other.send(0, ordinal, 8, 1)), (1, 1));
    }
    assert_eq!((one.counts().acknowledged, other.counts().acknowledged), (0, 1));
    assert_eq!((one.counts().held, other.counts().held), (0, 0));
}

fn a_full_window_holds_the_sender_until_it_opens() {
    let testbed = joined(2, 1500);
    let [one, other] = &wire_nodes(&testbed, Family::V4)[..] else { unreachable!("there are two") };
    let window = WINDOW as u32;
    testbed.unplug(1).expect("there is such a node");
    assert_eq!(one.send(1, 0, 8, 2 * window), window);
    assert_eq!(one.send(1, window, 8, 1), 0);
    assert_eq!((one.counts().held, one.tally(Tally::Resumed)), (2, 0));
    testbed.plug(1).expect("there is such a node");
    other.ask(0);
    assert_eq!(other.deliveries(0..window), vec![ONCE; window as usize]);
    assert_eq!(one.counts().resent, u64::from(window));
    assert!(one.tally(Tally::Resumed) >= 1, "the acknowledgement opened the window");
    assert_eq!(one.send(1, window, 8, 1), 1);
    assert_eq!(other.deliveries(window..window + 1), [ONCE]);
}

fn messages_without_space_are_sent_again() {
    let testbed = joined(2, 1500);
    let [one, other] = &wire_nodes(&testbed, Family::V6)[..] else { unreachable!("there are two") };
    other.refuse(5);
    one.send(1, 0, 100, 20);
    assert_eq!((other.tally(Tally::Delivered), other.counts().refused), (15, 5));
    other.ask(0);
    assert_eq!(other.deliveries(0..20), [ONCE; 20]);
    assert_eq!((one.counts().resent, other.counts().duplicate), (5, 0));
}

fn a_receiver_without_space_holds_the_sender() {
    let testbed = joined(2, 1500);
    let [one, other] = &wire_nodes(&testbed, Family::V4)[..] else { unreachable!("there are two") };
    let window = WINDOW as u32;
    other.refuse(u64::MAX);
    assert_eq!(one.send(1, 0, 8, 2 * window), window);
    one.ask(1);
    assert_eq!(one.send(1, window, 8, 1), 0, "nothing has been taken");
    other.refuse(0);
    other.ask(0);
    assert_eq!(other.deliveries(0..window), vec![ONCE; window as usize]);
    assert_eq!(one.send(1, window, 8, window), window);
}

fn two_jobs_on_the_same_nodes_do_not_disturb_each_other() {
    let testbed = joined(3, 1500);
    let first = wire_nodes(&testbed, Family::V4);
    let job = JOB + 1;
    let key = Key([5, 6]);
    let second: Vec<_> =
        (0..3).map(|node| WireNode::new(&testbed, node, Family::V4, job, key, PORT + 1)).collect();
    for ordinal in 0..200 {
        for from in 0..3 {
            let to = (from + 1) % 3;
            first[from].send(to, ordinal, 16, 1);
            second[from].send(to, 1000 + ordinal, 16, 1);
            second[to].send(from, 2000 + ordinal, 16, 1);
        }
    }
    for node in &first {
        assert_eq!((node.deliveries(0..200), node.tally(Tally::Delivered)), (vec![ONCE; 200], 200));
        assert_eq!(node.counts().rejected(), 0);
    }
    for node in &second {
        assert_eq!(node.deliveries(1000..1200), [ONCE; 200]);
        assert_eq!(node.deliveries(2000..2200), [ONCE; 200]);
        assert_eq!((node.tally(Tally::Delivered), node.counts().rejected()), (400, 0));
    }
}
