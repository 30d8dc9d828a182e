//! Packets from senders without the key, and replayed packets.

use crate::wire::harness::{Family, JOB, KEY, ONCE, PORT, Tally, WireNode, joined, wire_nodes};
use kernel::wire::{Content, Counters, Key, MessageHeader, Packet, WINDOW};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use virtual_nodes::VirtualNodes;

testing::tests![needs(Nodes, Bpf, Clang):
    a_million_forged_packets_change_nothing_and_are_counted,
    a_dropped_packet_does_not_leave_again,
    sound_packets_for_others_or_at_the_wrong_time_change_nothing,
    old_packets_do_not_make_a_node_look_alive_that_is_gone,
];

/// Sends datagrams to node 0's port from node 2, which is not in the job: a sender without the key
/// can forge any source address.
fn stranger(testbed: &VirtualNodes) -> impl Fn(&[u8]) {
    let node = &testbed.nodes()[2];
    let socket = node.run(|| UdpSocket::bind((node.address(), 0))).expect("the port is free");
    socket.connect((testbed.nodes()[0].address(), PORT)).expect("it is a UDP socket");
    move |bytes| drop(socket.send(bytes))
}

fn data(sequence: u64, ordinal: u32) -> Packet {
    let header = MessageHeader { ordinal, length: 40, ..MessageHeader::default() };
    let content = Content::Data { sequence, header, piece: vec![1; 40] };
    Packet { job: JOB, source: 1, destination: 0, acknowledged: WINDOW, content }
}

fn a_million_forged_packets_change_nothing_and_are_counted() {
    const PACKETS: u64 = 1_000_000;
    let testbed = joined(3, 1500);
    let nodes = [0, 1].map(|node| WireNode::new(&testbed, node, Family::V4, JOB, KEY, PORT));
    assert_eq!(nodes[1].send(0, 0, 8, 10), 10);
    let before = nodes[0].counts();
    let send = stranger(&testbed);
    let mut random = SmallRng::seed_from_u64(5);
    let sound = data(WINDOW + 10, 99).encode(&KEY);
    let other_job = Packet { job: JOB + 1, ..data(WINDOW + 10, 99) }.encode(&KEY);
    let other_key = data(WINDOW + 10, 99).encode(&Key([1, 2]));
    for number in 0..PACKETS {
        let mut bytes =
            [&sound, &sound, &sound, &other_job, &other_key][number as usize % 5].clone();
        match number % 5 {
            0 => random.fill_bytes(&mut bytes),
            1 => bytes.truncate(random.random_range(0..bytes.len())),
            2 => bytes[random.random_range(0..sound.len())] ^= 1 << random.random_range(0..8),
            _ => {}
        }
        send(&bytes);
    }
    let after = nodes[0].counts();
    assert_eq!(after.rejected() - before.rejected(), PACKETS, "{after:?}");
    assert!(after.other_job >= PACKETS / 5 && after.forged >= PACKETS / 5, "{after:?}");
    assert!(after.strange > PACKETS / 6 && after.truncated >= PACKETS / 5, "{after:?}");
    let unchanged = Counters {
        truncated: before.truncated,
        strange: before.strange,
        other_job: before.other_job,
        forged: before.forged,
        ..after
    };
    assert_eq!((unchanged, nodes[0].tally(Tally::Delivered)), (before, 10));
    assert_eq!(nodes[1].send(0, 10, 8, 20), 20);
    assert_eq!(nodes[0].deliveries(0..30), [ONCE; 30]);
}

/// The control block of a packet marks that another one is to leave in it; earlier programs may
/// have written there.
fn a_dropped_packet_does_not_leave_again() {
    const DROP: u32 = 2;
    let testbed = joined(1, 1500);
    let wire_node = WireNode::new(&testbed, 0, Family::V4, JOB, KEY, PORT);
    // Ethernet, IPv4 with 20 bytes of header and 12 behind it, UDP with four bytes behind it.
    let mut packet =
        [[0; 12].as_slice(), &[8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17], &[0; 6]].concat();
    packet.extend_from_slice(&testbed.nodes()[0].address().octets());
    packet.extend_from_slice(&[PORT.to_be_bytes(), PORT.to_be_bytes(), [0, 12], [0; 2]].concat());
    packet.extend_from_slice(&[0; 4]);
    let control_block = [u32::MAX; 5];
    assert_eq!(wire_node.run_on(&packet, "ingress", control_block), DROP);
    assert_eq!(wire_node.counts().truncated, 1);
}

fn sound_packets_for_others_or_at_the_wrong_time_change_nothing() {
    let testbed = joined(3, 1500);
    let nodes = wire_nodes(&testbed, Family::V4);
    let send = stranger(&testbed);
    let mut expected = Counters::default();
    let dropped = |packet: Packet| {
        send(&packet.encode(&KEY));
        nodes[0].counts()
    };
    // Packets of node 0 itself, returned to it, and packets for node 2.
    expected.strange += 2;
    dropped(Packet { source: 0, destination: 1, ..data(WINDOW, 0) });
    assert_eq!(dropped(Packet { destination: 2, ..data(WINDOW, 0) }), expected);
    // Packets from nodes that do not exist, or with an acknowledgement of unsent packets.
    expected.strange += 2;
    dropped(Packet { source: 3, ..data(WINDOW, 0) });
    assert_eq!(dropped(Packet { source: u32::MAX, ..data(WINDOW, 0) }), expected);
    expected.received += 1;
    assert_eq!(dropped(Packet { acknowledged: u64::MAX, ..data(WINDOW, 0) }), expected);
    // Duplicates, numbers beyond the window, and numbers before the first.
    expected.duplicate += 2;
    dropped(data(WINDOW, 0));
    assert_eq!(dropped(data(2 * WINDOW + 1, 0)), expected);
    // An old request.
    nodes[0].send(1, 5, 8, 1);
    expected.sent += 1;
    let request = |sequence| {
        let content = Content::Request { sequence, arrived: 0 };
        Packet { job: JOB, source: 1, destination: 0, acknowledged: WINDOW, content }
    };
    dropped(request(7));
    let after = dropped(request(7));
    expected.stale += 2;
    assert_eq!(Counters { resent: 0, ..dropped(request(6)) }, expected);
    assert_eq!(after.resent, 1, "the message to node 1, once");
    assert_eq!(nodes[1].tally(Tally::Delivered), 1);
    // Authentic packets still pass.
    assert_eq!(nodes[0].send(1, 6, 8, 1), 1);
    assert_eq!(nodes[1].deliveries(5..7), [ONCE; 2]);
}

fn old_packets_do_not_make_a_node_look_alive_that_is_gone() {
    let testbed = joined(3, 1500);
    let nodes = wire_nodes(&testbed, Family::V4);
    let send = stranger(&testbed);
    let request = Content::Request { sequence: 1, arrived: 0 };
    let request =
        Packet { job: JOB, source: 1, destination: 0, acknowledged: WINDOW, content: request };
    let old = [data(WINDOW, 0), request].map(|packet| packet.encode(&KEY));
    old.iter().for_each(|packet| send(packet));
    assert_eq!(nodes[0].counts().received, 1);
    testbed.unplug(1).expect("there is such a node");
    let end = Instant::now() + Duration::from_secs(20);
    while nodes[0].ask(1) < 6 {
        assert!(Instant::now() < end, "{:?}", nodes[0].counts());
        old.iter().for_each(|packet| send(packet));
    }
    assert!(nodes[0].counts().duplicate > 0 && nodes[0].counts().stale > 0, "they came");
}
