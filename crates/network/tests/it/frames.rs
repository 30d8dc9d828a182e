//! Frames as bytes.

use interpreter::{Handle, Packet};
use network::error::{Error, RankExit};
use network::run_counts::StartedRuns;
use network::transport::frame::{
    Frame, HEADER_BYTES, MAX_MESSAGE, MAX_OPERATIONS, Route, payload_bytes,
};
use network::transport::records::messages::{Class, Head};
use proptest::prelude::*;

testing::tests![decoding_reverses_encoding, noise_is_refused_or_decoded_exactly];

fn route() -> impl Strategy<Value = Route> {
    (any::<u32>(), any::<u32>(), any::<u32>(), any::<u64>(), 0..1u32 << 24).prop_map(
        |(destination, communicator, source, sequence, signature)| Route {
            destination,
            communicator,
            source,
            sequence,
            signature,
        },
    )
}

/// Records with these destinations, words and numbers of bytes.
pub(crate) fn records(heads: &[(u32, [u64; 3], usize)]) -> Vec<u8> {
    let mut records = Vec::new();
    for (peer, words, bytes) in heads.iter().copied() {
        records.extend(Head { peer, class: Class::Message, bytes, words }.encode());
        records.resize(records.len() + bytes.next_multiple_of(8), 3);
    }
    records
}

/// Records of flows of these kinds, with these ranks, ports and numbers of words, each with the exit
/// of its sender and its end.
pub(crate) fn flow_records(flows: &[(u64, [u32; 2], u64, usize)]) -> Vec<u8> {
    let mut records = Vec::new();
    for (kind, [sender, receiver], port, words) in flows.iter().copied() {
        let ranks = u64::from(sender) | u64::from(receiver) << 32;
        let exit = u64::from(sender) | 2 << 56;
        for (last, words) in [(8 * words as u64, words), (exit, 0), (3 << 56, 0)] {
            let head = [ranks, port, last | kind << 48];
            head.iter().for_each(|word| records.extend(word.to_le_bytes()));
            records.resize(records.len() + 8 * words, 3);
        }
    }
    records
}

fn frame() -> impl Strategy<Value = Frame> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..100);
    let operation = || (0..MAX_OPERATIONS).prop_map(Handle);
    let packet =
        prop_oneof![
            (any::<u32>(), any::<u32>(), bytes())
                .prop_map(|(tag, ordinal, payload)| Packet::Eager { tag, ordinal, payload }),
            (any::<u32>(), any::<u32>(), 0..=MAX_MESSAGE, operation()).prop_map(
                |(tag, ordinal, bytes, send)| Packet::RequestToSend { tag, ordinal, bytes, send }
            ),
            (operation(), operation())
                .prop_map(|(send, receive)| Packet::ClearToSend { send, receive }),
            (operation(), bytes()).prop_map(|(receive, payload)| Packet::Data { receive, payload }),
        ];
    let span = (any::<u32>(), any::<u32>(), any::<u64>());
    let span = span.prop_map(|(first, last, count)| StartedRuns { first, last, count });
    let started = || proptest::collection::vec(span.clone(), 0..5);
    let how = prop_oneof![Just(RankExit::Left), ".{0,40}".prop_map(RankExit::Failed)];
    prop_oneof![
        (route(), packet).prop_map(|(route, packet)| Frame::Packet(route, packet)),
        (route(), any::<u32>(), bytes()).prop_map(|(route, ordinal, contribution)| {
            Frame::Join { route, ordinal, contribution }
        }),
        (route(), ".{0,40}").prop_map(|(route, text)| Frame::Fail(route, Error::Operation(text))),
        (any::<u32>(), how, started()).prop_map(|(rank, how, started)| Frame::RankExited {
            rank,
            how,
            started
        }),
        (any::<u32>(), started()).prop_map(|(rank, started)| Frame::RankLeaves { rank, started }),
        (
            any::<u32>(),
            proptest::collection::vec((any::<u32>(), any::<[u64; 3]>(), 0..100_usize), 1..9)
        )
            .prop_map(|(source, heads)| Frame::Messages { source, records: records(&heads) }),
        proptest::collection::vec((0..4_u64, any::<[u32; 2]>(), any::<u64>(), 0..50_usize), 1..9)
            .prop_map(|flows| Frame::Flows { records: flow_records(&flows) }),
        route().prop_map(Frame::Waits),
        any::<u64>().prop_map(Frame::Credit),
        Just(Frame::Shutdown),
        Just(Frame::ShutdownAck),
        (any::<u32>(), proptest::option::of(".{0,40}"))
            .prop_map(|(node, failure)| Frame::NodeEnded { node, failure }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    fn decoding_reverses_encoding(frame in frame()) {
        let (header, payload) = frame.clone().encode();
        prop_assert_eq!(payload_bytes(&header), Ok(payload.len() as u64));
        prop_assert_eq!(Frame::decode(&header, payload), Ok(frame));
    }

    fn noise_is_refused_or_decoded_exactly(header in any::<[u8; HEADER_BYTES]>(), payload: Vec<u8>) {
        if let Ok(frame) = Frame::decode(&header, payload.clone()) {
            prop_assert_eq!(payload_bytes(&header), Ok(payload.len() as u64));
            let (again, kept) = frame.clone().encode();
            prop_assert_eq!(Frame::decode(&again, kept), Ok(frame));
        }
    }
}
