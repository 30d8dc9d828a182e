//! Records: messages as the rings and frames between nodes contain them.
//!
//! | byte | field |
//! |---|---|
//! | 0 | u32 rank of the job: the destination on the way out, the source on arrival |
//! | 4 | u24 number of bytes that follow the head |
//! | 7 | u8 class |
//! | 8 | three u64 that only the two ranks interpret |
//! | 32 | the bytes, filled up to a multiple of 8 |

use crate::transport::records;

/// Bytes of a head.
pub const HEAD_BYTES: usize = 32;
/// Largest number of bytes behind a head.
pub const MAX_BYTES: usize = 32 << 10;
/// Longest frame of records.
pub(crate) const MAX_FRAME_BYTES: u64 = records::longest_frame(HEAD_BYTES + MAX_BYTES);

const LENGTH_SHIFT: u32 = 32;
const CLASS_SHIFT: u32 = 56;

/// Class of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A message of a rank.
    Message,
    /// The exit of the rank, or the loss of its node: the bytes are the encoded error. Only an
    /// agent writes such records, into the receive rings of its own ranks.
    Exit,
}

/// Head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The other rank, by its number in the job.
    pub peer: u32,
    /// Class.
    pub class: Class,
    /// Number of bytes that follow.
    pub bytes: usize,
    /// Words that only the two ranks interpret.
    pub words: [u64; 3],
}

impl Head {
    /// Returns the bytes of the head.
    #[inline]
    pub fn encode(self) -> [u8; HEAD_BYTES] {
        let Head { peer, class, bytes, words: [first, second, third] } = self;
        let class = u64::from(class == Class::Exit);
        let word = u64::from(peer) | (bytes as u64) << LENGTH_SHIFT | class << CLASS_SHIFT;
        records::encode_head([word, first, second, third])
    }

    /// Reads a head; `None` if the bytes are no valid head.
    #[inline]
    pub(crate) fn decode(encoded: &[u8; HEAD_BYTES]) -> Option<Head> {
        let [word, words @ ..] = records::decode_head::<4, _>(encoded);
        let class = match word >> CLASS_SHIFT {
            0 => Class::Message,
            1 => Class::Exit,
            _ => return None,
        };
        let bytes = (word >> LENGTH_SHIFT) as usize & 0xff_ffff;
        (bytes <= MAX_BYTES).then_some(Head { peer: word as u32, class, bytes, words })
    }

    /// Returns the length of the whole record.
    #[inline]
    pub(crate) fn record_bytes(&self) -> u64 {
        record_bytes(self.bytes)
    }
}

/// Returns the length of a record with this number of bytes behind its head.
#[inline]
pub fn record_bytes(bytes: usize) -> u64 {
    (HEAD_BYTES + bytes.next_multiple_of(8)) as u64
}

/// Splits the first record off a frame: its head, all of its bytes, and the rest of the frame.
/// `None` if the frame does not begin with a whole record of a message.
pub(crate) fn split_first(frame: &[u8]) -> Option<(Head, &[u8], &[u8])> {
    let head = Head::decode(frame.first_chunk()?)?;
    let (record, rest) = frame.split_at_checked(head.record_bytes() as usize)?;
    (head.class == Class::Message).then_some((head, record, rest))
}

/// Returns true if a frame consists of whole records of messages.
pub(crate) fn is_valid(frame: &[u8]) -> bool {
    records::are_whole(frame, |frame| split_first(frame).map(|(.., rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_head_survives(peer: u32, bytes in 0..=MAX_BYTES, words: [u64; 3], exits: bool) {
            let class = if exits { Class::Exit } else { Class::Message };
            let head = Head { peer, class, bytes, words };
            prop_assert_eq!(Head::decode(&head.encode()), Some(head));
        }

        #[test]
        fn frames_are_split_into_their_records(lengths in proptest::collection::vec(0..200_usize, 0..20)) {
            let heads: Vec<Head> = (0..).zip(&lengths).map(|(peer, bytes)| {
                Head { peer, class: Class::Message, bytes: *bytes, words: [7, 8, 9] }
            }).collect();
            let mut frame = Vec::new();
            for head in &heads {
                frame.extend_from_slice(&head.encode());
                frame.resize(frame.len() + head.bytes.next_multiple_of(8), 1);
            }
            prop_assert!(is_valid(&frame));
            let mut rest = &frame[..];
            for head in &heads {
                let (found, record, behind) = split_first(rest).expect("a record");
                prop_assert_eq!((found, record.len() as u64), (*head, head.record_bytes()));
                rest = behind;
            }
            prop_assert!(rest.is_empty());
            // A frame that was cut is no frame, unless it was cut between records.
            frame.pop();
            prop_assert_eq!(is_valid(&frame), frame.is_empty());
        }

        #[test]
        fn noise_is_no_valid_frame_with_exits(noise in proptest::collection::vec(any::<u8>(), 0..300)) {
            // Reads nothing out of bounds, whatever the bytes are; agents alone report exits.
            if is_valid(&noise) {
                let mut rest = &noise[..];
                while let Some((head, _, behind)) = split_first(rest) {
                    prop_assert_eq!(head.class, Class::Message);
                    rest = behind;
                }
                prop_assert!(rest.is_empty());
            }
        }
    }
}
