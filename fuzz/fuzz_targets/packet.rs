//! Arbitrary bytes as a packet between nodes, as they are and with a correct MAC and correct
//! lengths, so that they pass the first checks and the later ones are tested, too.
#![no_main]

use kernel::wire::{Key, MAGIC, Packet, VERSION, seal};
use libfuzzer_sys::fuzz_target;

const KEY: Key = Key([1, 2]);
const JOB: u64 = 7;
const HEADER: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    if bytes.len() < HEADER {
        return;
    }
    let mut bytes = bytes.to_vec();
    bytes[8..12].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[12] = VERSION;
    bytes[16..24].copy_from_slice(&JOB.to_le_bytes());
    let length = (bytes.len() - HEADER) as u32;
    bytes[56..60].copy_from_slice(&length.to_le_bytes());
    if let Some(piece) = (length as usize).checked_sub(48) {
        bytes[108..112].copy_from_slice(&(piece as u32).to_le_bytes());
    }
    seal(&mut bytes, &KEY);
    check(&bytes);
});

/// Writes a packet that was read, and reads it again.
fn check(bytes: &[u8]) {
    if let Ok(packet) = Packet::decode(bytes, JOB, &KEY) {
        assert_eq!(Packet::decode(&packet.encode(&KEY), JOB, &KEY), Ok(packet));
    }
}
