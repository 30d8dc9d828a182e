//! The handshake: both ends of a connection prove that they know the job's key, without revealing
//! it.
//!
//! | sender | bytes |
//! |---|---|
//! | connecting node | "TWN1", u16 version, u16 zero, u32 its number, u32 the number of the other node, 16 random bytes |
//! | accepting node | 16 random bytes of its own; 16 bytes of proof |
//! | connecting node | 16 bytes of proof |
//!
//! A node answers a hello of another version with "TWN1", its own version and zeros, as long as
//! the answer of an accepting node, and closes the connection.
//!
//! A proof is the SipHash-2-4 (Aumasson and Bernstein, 2012; the variant with 128 bits), under the
//! job's key, of a letter for the side, both numbers and both random strings. So the proof of one
//! connection is invalid for any other one, and for the other side of the same.

use crate::job_nodes::Key;
use siphasher::sip128::{Hasher128, SipHasher24};
use std::fmt;
use std::hash::Hasher;

const MAGIC: [u8; 4] = *b"TWN1";
/// Version of the protocol between nodes: of the handshake and of all frames behind it. A new kind
/// of frame, or another layout of an old one, raises it, because an agent ends the connection over
/// which a frame of an unknown kind arrives.
const VERSION: u16 = 6;
pub(super) const HELLO_BYTES: usize = 32;
pub(super) const ANSWER_BYTES: usize = 32;
pub(super) const PROOF_BYTES: usize = 16;

/// Versions of two nodes, as the end of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Versions {
    /// That of the other node.
    pub(crate) theirs: u16,
}

impl fmt::Display for Versions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "version {} of the protocol between nodes, and this node has version {VERSION}: install \
             the same tradewind on all nodes",
            self.theirs
        )
    }
}

pub(crate) type Nonce = [u8; 16];

/// The values that both sides of a connection prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    /// The node that connects.
    pub(super) from: u32,
    /// The node that accepts.
    pub(super) to: u32,
    pub(super) from_nonce: Nonce,
    pub(super) to_nonce: Nonce,
}

/// The side of a connection that proves.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Connecting,
    Accepting,
}

impl Pair {
    pub(super) fn proof(&self, key: &Key, side: Side) -> [u8; PROOF_BYTES] {
        // The letter makes the two proofs of a connection differ, so neither side can return the
        // proof that it has received.
        self.code(
            key,
            match side {
                Side::Connecting => b'c',
                Side::Accepting => b'a',
            },
        )
    }

    /// Returns the key for what one side sends after the handshake. It is never sent.
    pub(crate) fn session_key(&self, key: &Key, side: Side) -> Key {
        self.code(
            key,
            match side {
                Side::Connecting => b'C',
                Side::Accepting => b'A',
            },
        )
    }

    fn code(&self, key: &Key, letter: u8) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(key);
        hasher.write(&MAGIC);
        hasher.write(&[letter]);
        hasher.write(&self.from.to_le_bytes());
        hasher.write(&self.to.to_le_bytes());
        // Both random strings: each side contributes to what the other proves, so an overheard
        // proof is invalid in any other connection.
        hasher.write(&self.from_nonce);
        hasher.write(&self.to_nonce);
        hasher.finish128().as_bytes()
    }
}

/// The first message of the connecting side.
pub(super) fn hello(from: u32, to: u32, nonce: &Nonce) -> [u8; HELLO_BYTES] {
    let mut bytes = [0; HELLO_BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
    bytes[8..12].copy_from_slice(&from.to_le_bytes());
    bytes[12..16].copy_from_slice(&to.to_le_bytes());
    bytes[16..].copy_from_slice(nonce);
    bytes
}

/// A first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hello {
    /// Of a node of this version.
    Node { from: u32, to: u32, nonce: Nonce },
    /// Of a node of another version.
    OtherVersion(u16),
}

/// Decodes the first message; `None` if it is none.
pub(super) fn read_hello(bytes: &[u8; HELLO_BYTES]) -> Option<Hello> {
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let version = version_of(bytes)?;
    if version != VERSION {
        return Some(Hello::OtherVersion(version));
    }
    Some(Hello::Node { from: word(8), to: word(12), nonce: *bytes.last_chunk()? })
}

/// The answer to a hello of another version.
pub(super) fn other_version() -> [u8; ANSWER_BYTES] {
    let mut bytes = [0; ANSWER_BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Decodes the answer to a hello of another version: the version of the accepting node. `None` for
/// an answer with a proof, which has these letters and zeros with a probability of 2⁻²⁴⁰.
pub(super) fn read_other_version(bytes: &[u8; ANSWER_BYTES]) -> Option<u16> {
    version_of(bytes).filter(|_| bytes[6..].iter().all(|byte| *byte == 0))
}

/// The version behind the letters that begin a hello; `None` if the letters are others.
fn version_of(bytes: &[u8; 32]) -> Option<u16> {
    let zeros = bytes[6..8] == [0; 2];
    (bytes[..4] == MAGIC && zeros).then(|| u16::from_le_bytes([bytes[4], bytes[5]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_valid_for_one_side_of_one_connection() {
        let pair = Pair { from: 1, to: 0, from_nonce: [1; 16], to_nonce: [2; 16] };
        let key = [7; 16];
        let proof = pair.proof(&key, Side::Connecting);
        assert_eq!(proof, pair.proof(&key, Side::Connecting));
        assert_ne!(proof, pair.proof(&key, Side::Accepting));
        assert_ne!(proof, pair.proof(&[8; 16], Side::Connecting));
        let session = pair.session_key(&key, Side::Connecting);
        assert_ne!(session, proof);
        assert_ne!(session, pair.session_key(&key, Side::Accepting));
        assert_ne!(proof, Pair { to: 2, ..pair }.proof(&key, Side::Connecting));
        assert_ne!(
            proof,
            Pair { from_nonce: [2; 16], to_nonce: [1; 16], ..pair }.proof(&key, Side::Connecting)
        );
    }

    #[test]
    fn a_hello_is_recognised() {
        let mut bytes = hello(3, 1, &[9; 16]);
        let node = Hello::Node { from: 3, to: 1, nonce: [9; 16] };
        assert_eq!(read_hello(&bytes), Some(node));
        bytes[4] ^= 1;
        assert_eq!(read_hello(&bytes), Some(Hello::OtherVersion(VERSION ^ 1)));
        bytes[0] ^= 1;
        assert_eq!(read_hello(&bytes), None, "another program");
    }

    #[test]
    fn an_answer_to_another_version_is_no_proof() {
        assert_eq!(read_other_version(&other_version()), Some(VERSION));
        assert_eq!(read_other_version(&[0; ANSWER_BYTES]), None);
        assert_eq!(read_other_version(&hello(0, 1, &[9; 16])), None);
    }
}
