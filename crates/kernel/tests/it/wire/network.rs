//! The program's packets, checked by the kernel's own IP and UDP and by the decoder in Rust.

use crate::wire::harness::{Family, JOB, KEY, ONCE, PORT, WireNode, endpoint, joined, relayed};
use kernel::wire::{Content, MessageHeader, Packet, WINDOW};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;
use virtual_nodes::Node;

testing::tests![needs(Tap, Bpf, Clang):
    packets_are_sound_datagrams_and_the_decoder_reads_them,
    the_program_takes_what_the_encoder_makes,
    other_traffic_passes_untouched,
];

fn socket(node: &Node, family: Family, port: u16) -> UdpSocket {
    let address = endpoint(node, family, port).address;
    let socket = node.run(|| UdpSocket::bind((address, port))).expect("the port is free");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("it is a duration");
    socket
}

/// Node 1 has no program, so its kernel checks lengths and checksums before a socket receives the
/// packet.
fn packets_are_sound_datagrams_and_the_decoder_reads_them() {
    for (family, is_relayed) in
        [(Family::V4, false), (Family::V6, false), (Family::V4, true), (Family::V6, true)]
    {
        let testbed = if is_relayed { relayed(2, 9000, 1).0 } else { joined(2, 9000) };
        let sender = WireNode::new(&testbed, 0, family, JOB, KEY, PORT);
        let receiver = socket(&testbed.nodes()[1], family, PORT);
        let mut bytes = vec![0; 10_000];
        let mut next = || {
            let (length, from) = receiver.recv_from(&mut bytes).expect("it arrives");
            assert_eq!(from, (endpoint(&testbed.nodes()[0], family, PORT).address, PORT).into());
            Packet::decode(&bytes[..length], JOB, &KEY).expect("the program and the decoder agree")
        };
        for (ordinal, length) in (0..).zip([0, 1, 2, 3, 4, 5, 7, 8, 15, 300, 8191, 8192]) {
            sender.send(1, ordinal, length, 1);
            let packet = next();
            assert_eq!((packet.source, packet.destination, packet.acknowledged), (0, 1, WINDOW));
            let Content::Data { sequence, header, piece } = packet.content else {
                panic!("{packet:?}")
            };
            assert_eq!((sequence, header.ordinal), (WINDOW + u64::from(ordinal), ordinal));
            assert_eq!(header.length as usize, piece.len());
            assert!(piece.iter().zip(0..).all(|(byte, place)| *byte == byte_of(ordinal, place)));
        }
        sender.ask(1);
        assert_eq!(next().content, Content::Request { sequence: 1, arrived: 0 });
    }
}

/// Returns the byte that the test's program expects in a message.
fn byte_of(ordinal: u32, place: u32) -> u8 {
    (ordinal.wrapping_mul(31).wrapping_add(place.wrapping_mul(7))) as u8
}

/// Node 1 has no program: a socket there sends the encoder's packets.
fn the_program_takes_what_the_encoder_makes() {
    for family in [Family::V4, Family::V6] {
        let testbed = joined(2, 9000);
        let receiver = WireNode::new(&testbed, 0, family, JOB, KEY, PORT);
        let sender = socket(&testbed.nodes()[1], family, PORT);
        let to = (endpoint(&testbed.nodes()[0], family, PORT).address, PORT);
        let send = |content: Content| {
            let packet =
                Packet { job: JOB, source: 1, destination: 0, acknowledged: WINDOW, content };
            sender.send_to(&packet.encode(&KEY), to).expect("it goes out");
        };
        for (ordinal, length) in (0..).zip([0, 1, 8, 77, 8192]) {
            let piece: Vec<u8> = (0..length).map(|place| byte_of(ordinal, place)).collect();
            let header = MessageHeader { ordinal, length, ..MessageHeader::default() };
            send(Content::Data { sequence: WINDOW + u64::from(ordinal), header, piece });
        }
        assert_eq!(receiver.deliveries(0..5), [ONCE; 5]);
        // No packet is missing, so the answer is the only packet.
        send(Content::Request { sequence: 1, arrived: 0 });
        let mut bytes = [0; 100];
        let length = sender.recv(&mut bytes).expect("the answer comes");
        let answer = Packet::decode(&bytes[..length], JOB, &KEY).expect("it is one of ours");
        assert_eq!(
            (answer.acknowledged, answer.content),
            (WINDOW + 5, Content::Answer { sequence: 1, arrived: 0 })
        );
        assert_eq!(receiver.counts().rejected(), 0);
    }
}

fn other_traffic_passes_untouched() {
    let testbed = joined(2, 1500);
    let wire_nodes = crate::wire::harness::wire_nodes(&testbed, Family::V4);
    for family in [Family::V4, Family::V6] {
        let [one, other] = [0, 1].map(|node| socket(&testbed.nodes()[node], family, PORT + 7));
        for length in [0, 1, 100, 1400] {
            let message = vec![7; length];
            one.send_to(&message, other.local_addr().expect("it is bound")).expect("it goes out");
            let mut bytes = vec![0; 1500];
            assert_eq!(other.recv(&mut bytes).expect("it arrives"), length);
        }
    }
    // The same port under IPv6 is not the job's, nor is the same number under TCP.
    let [one, other] = [0, 1].map(|node| socket(&testbed.nodes()[node], Family::V6, PORT));
    one.send_to(b"mine", other.local_addr().expect("it is bound")).expect("it goes out");
    assert_eq!(other.recv(&mut [0; 10]).expect("it arrives"), 4);
    let address = (testbed.nodes()[1].address(), PORT);
    let listener = testbed.nodes()[1].run(|| TcpListener::bind(address)).expect("the port is free");
    let _stream = testbed.nodes()[0].run(|| TcpStream::connect(address)).expect("somebody listens");
    listener.accept().expect("somebody connects");
    assert!(
        wire_nodes.iter().all(|wire_node| wire_node.counts() == kernel::wire::Counters::default())
    );
}
