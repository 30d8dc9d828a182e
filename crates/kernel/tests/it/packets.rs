//! Packets as bytes.

use kernel::wire::{
    Content, DecodeError, Key, MAGIC, MessageHeader, Packet, VERSION, WINDOW, seal,
};
use proptest::prelude::*;

testing::tests![
    what_is_written_is_read,
    no_changed_bit_passes,
    no_other_length_passes,
    strangers_do_not_pass,
    sealed_nonsense_is_no_packet_or_reads_the_same
];

const KEY: Key = Key([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
/// Length of a packet's header.
const HEADER: usize = 56;

fn packets() -> impl Strategy<Value = Packet> {
    let words = any::<[u32; 8]>();
    let piece = proptest::collection::vec(any::<u8>(), 0..300);
    let data = (WINDOW.., any::<u64>(), words, piece).prop_map(|(sequence, run, words, piece)| {
        let [communicator, signature, destination, source, member, tag, ordinal, offset] = words;
        let header = MessageHeader {
            sequence: run,
            length: piece.len() as u32,
            total: offset.wrapping_add(7),
            ..MessageHeader {
                communicator,
                signature,
                destination,
                source,
                member,
                tag,
                ordinal,
                offset,
                ..Default::default()
            }
        };
        Content::Data { sequence, header, piece }
    });
    let request =
        any::<(u64, u64)>().prop_map(|(sequence, arrived)| Content::Request { sequence, arrived });
    let answer =
        any::<(u64, u64)>().prop_map(|(sequence, arrived)| Content::Answer { sequence, arrived });
    let content = prop_oneof![data, request, answer, Just(Content::Acknowledgement)];
    let nodes =
        any::<(u32, u32)>().prop_filter("two nodes", |(source, destination)| source != destination);
    (any::<u64>(), nodes, WINDOW.., content).prop_map(
        |(job, (source, destination), acknowledged, content)| Packet {
            job,
            source,
            destination,
            acknowledged,
            content,
        },
    )
}

proptest! {
    fn what_is_written_is_read(packet in packets()) {
        prop_assert_eq!(Packet::decode(&packet.encode(&KEY), packet.job, &KEY), Ok(packet));
    }

    fn no_changed_bit_passes(packet in packets(), place in any::<prop::sample::Index>(), bit in 0..8) {
        let mut bytes = packet.encode(&KEY);
        let place = place.index(bytes.len());
        bytes[place] ^= 1u8 << bit;
        prop_assert!(Packet::decode(&bytes, packet.job, &KEY).is_err());
    }

    fn no_other_length_passes(packet in packets(), cut in any::<prop::sample::Index>()) {
        let mut bytes = packet.encode(&KEY);
        prop_assert!(Packet::decode(&bytes[..cut.index(bytes.len())], packet.job, &KEY).is_err());
        bytes.push(0);
        prop_assert!(Packet::decode(&bytes, packet.job, &KEY).is_err());
    }

    fn strangers_do_not_pass(packet in packets(), other in any::<u64>()) {
        let bytes = packet.encode(&KEY);
        prop_assume!(other != packet.job && other != KEY.0[0]);
        prop_assert_eq!(Packet::decode(&bytes, other, &KEY), Err(DecodeError::OtherJob(packet.job)));
        prop_assert_eq!(Packet::decode(&bytes, packet.job, &Key([other, KEY.0[1]])), Err(DecodeError::Forged));
    }

    fn sealed_nonsense_is_no_packet_or_reads_the_same(mut bytes in proptest::collection::vec(any::<u8>(), HEADER..200)) {
        bytes[8..12].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[12..16].copy_from_slice(&u32::from(VERSION).to_le_bytes());
        let job = 7u64;
        let length = (bytes.len() - HEADER) as u32;
        bytes[16..24].copy_from_slice(&job.to_le_bytes());
        bytes[48..52].copy_from_slice(&length.to_le_bytes());
        let flags = u32::from(bytes[52] % 8);
        bytes[52..56].copy_from_slice(&flags.to_le_bytes());
        seal(&mut bytes, &KEY);
        if let Ok(packet) = Packet::decode(&bytes, job, &KEY) {
            prop_assert_eq!(Packet::decode(&packet.encode(&KEY), job, &KEY), Ok(packet));
        }
    }
}
