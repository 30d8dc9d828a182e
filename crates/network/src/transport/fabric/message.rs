//! The header of a message of libfabric.

use crate::job_nodes::Key;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// Bytes of a header. With the header of a frame they are 64, which every provider injects.
pub(super) const HEADER_BYTES: usize = 24;

/// The header of a message; little endian: u32 node, u32 0, u64 number, u64 word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The sender.
    pub(super) node: u32,
    /// Number of the message from this sender to this receiver, from 0.
    pub(super) number: u64,
    /// Proof that the sender has the key.
    pub(super) word: u64,
}

impl Header {
    pub(super) fn write(&self, bytes: &mut [u8]) {
        bytes[..4].copy_from_slice(&self.node.to_le_bytes());
        bytes[4..8].fill(0);
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..HEADER_BYTES].copy_from_slice(&self.word.to_le_bytes());
    }

    /// Reads the header of a message. Returns it and the rest.
    pub(super) fn read(bytes: &[u8]) -> Option<(Header, &[u8])> {
        let (node, rest) = bytes.split_first_chunk()?;
        let (_, rest) = rest.split_first_chunk::<4>()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (word, rest) = rest.split_first_chunk()?;
        let header = Header {
            node: u32::from_le_bytes(*node),
            number: u64::from_le_bytes(*number),
            word: u64::from_le_bytes(*word),
        };
        Some((header, rest))
    }
}

/// The word of messages from one node to another.
pub(super) fn word(key: &Key, from: u32, to: u32) -> u64 {
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write_u32(from);
    hasher.write_u32(to);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_are_written() {
        let header = Header { node: 7, number: u64::MAX - 3, word: word(&[9; 16], 7, 8) };
        let mut bytes = [1; HEADER_BYTES + 2];
        header.write(&mut bytes);
        assert_eq!(Header::read(&bytes), Some((header, &[1, 1][..])));
        assert_eq!(Header::read(&bytes[..HEADER_BYTES - 1]), None);
        assert_ne!(header.word, word(&[9; 16], 8, 7), "each direction has its own");
    }
}
