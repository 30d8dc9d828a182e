//! The messages of libfabric: their header, and those about memory that is read.

use crate::job_nodes::Key;
use crate::transport::frame;
use ::fabric::Remote;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// Bytes of a header. With the header of a frame they are 64, which every provider injects.
pub(super) const HEADER_BYTES: usize = 24;

/// The contents of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bytes of the stream of frames.
    Stream,
    /// An [`Offer`].
    Offer,
    /// An [`Answer`].
    Answer,
}

const KINDS: [Kind; 3] = [Kind::Stream, Kind::Offer, Kind::Answer];

/// The header of a message; little endian: u32 node, u32 kind, u64 number, u64 word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The sender.
    pub(super) node: u32,
    pub(super) kind: Kind,
    /// Number of the message from this sender to this receiver, from 0.
    pub(super) number: u64,
    /// Proof that the sender has the key.
    pub(super) word: u64,
}

impl Header {
    pub(super) fn write(&self, bytes: &mut [u8]) {
        bytes[..4].copy_from_slice(&self.node.to_le_bytes());
        bytes[4..8].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..HEADER_BYTES].copy_from_slice(&self.word.to_le_bytes());
    }

    /// Reads the header of a message. Returns it and the rest.
    pub(super) fn read(bytes: &[u8]) -> Option<(Header, &[u8])> {
        let (node, rest) = bytes.split_first_chunk()?;
        let (kind, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (word, rest) = rest.split_first_chunk()?;
        let header = Header {
            node: u32::from_le_bytes(*node),
            kind: *KINDS.get(u32::from_le_bytes(*kind) as usize)?,
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

/// A long message that its receiver reads from registered memory; the header of its frame, then
/// three u64: number, address, key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// Header of the frame, with the length of the payload.
    pub(super) frame: [u8; frame::HEADER_BYTES],
    /// Number of the offer from this sender to this receiver.
    pub(super) number: u64,
    pub(super) remote: Remote,
}

impl Offer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Offer { frame, number, remote: Remote { address, key } } = self;
        let words = [number, address, key].map(|word| word.to_le_bytes());
        [frame.as_slice(), words.as_flattened()].concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Offer> {
        let (frame, rest) = bytes.split_first_chunk()?;
        let ([number, address, key], []) = rest.as_chunks::<8>() else { return None };
        let [number, address, key] = [number, address, key].map(|word| u64::from_le_bytes(*word));
        Some(Offer { frame: *frame, number, remote: Remote { address, key } })
    }
}

/// The answer to an offer: u64 number, u8 1 if the message was read, 0 if it must be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) number: u64,
    pub(super) was_read: bool,
}

impl Answer {
    pub(super) fn encode(self) -> Vec<u8> {
        [self.number.to_le_bytes().as_slice(), &[u8::from(self.was_read)]].concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Answer> {
        let (number, rest) = bytes.split_first_chunk()?;
        let was_read = match rest {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        Some(Answer { number: u64::from_le_bytes(*number), was_read })
    }
}

/// A message about memory that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Offer(Offer),
    Answer(Answer),
}

impl Request {
    pub(super) fn decode(kind: Kind, bytes: &[u8]) -> Option<Request> {
        match kind {
            Kind::Stream => None,
            Kind::Offer => Offer::decode(bytes).map(Request::Offer),
            Kind::Answer => Answer::decode(bytes).map(Request::Answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_are_written() {
        let word_of = |from, to| word(&[9; 16], from, to);
        for kind in KINDS {
            let header = Header { node: 7, kind, number: u64::MAX - 3, word: word_of(7, 8) };
            let mut bytes = [1; HEADER_BYTES + 2];
            header.write(&mut bytes);
            assert_eq!(Header::read(&bytes), Some((header, &[1, 1][..])));
            assert_eq!(Header::read(&bytes[..HEADER_BYTES - 1]), None);
            bytes[4] = KINDS.len() as u8;
            assert_eq!(Header::read(&bytes), None, "there is no such kind");
        }
        assert_ne!(word_of(7, 8), word_of(8, 7), "each direction has its own");
    }

    #[test]
    fn offers_and_answers_are_read_as_they_are_written() {
        let remote = Remote { address: 1 << 40, key: 7 };
        let offer = Offer { frame: [3; frame::HEADER_BYTES], number: 9, remote };
        let bytes = offer.encode();
        assert_eq!(Offer::decode(&bytes), Some(offer));
        for was_read in [false, true] {
            let answer = Answer { number: 1 << 50, was_read };
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        for wrong in [&[][..], &bytes[..bytes.len() - 1], &longer] {
            assert_eq!(Offer::decode(wrong), None);
        }
        for wrong in [&[][..], &[0; 8], &[2; 9], &[0; 10]] {
            assert_eq!(Answer::decode(wrong), None);
        }
    }
}
