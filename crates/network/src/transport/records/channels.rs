//! Records of channels, as frames between nodes contain them.
//!
//! | byte | field |
//! |---|---|
//! | 0 | u32 sender of the channel: a rank of the job |
//! | 4 | u32 receiver of the channel: a rank of the job |
//! | 8 | u64 port |
//! | 16 | u56 number of bytes of values that follow, a multiple of 8; of credit: number of values |
//! | 23 | u8 class: 0 values, 1 credit, 2 the sender has closed its end, 3 the receiver its own |
//! | 24 | the values |

use crate::transport::records;

/// Bytes of a head.
pub(crate) const HEAD_BYTES: usize = 24;
/// Largest number of bytes behind a head.
pub(crate) const MAX_BYTES: usize = 32 << 10;
/// Longest frame of records.
pub(crate) const MAX_FRAME_BYTES: u64 = records::longest_frame(HEAD_BYTES + MAX_BYTES);

const CLASS_SHIFT: u32 = 56;
const COUNT: u64 = (1 << CLASS_SHIFT) - 1;

/// Name of a channel in the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChannelId {
    /// The rank of the job that sends.
    pub(crate) sender: u32,
    /// The rank of the job that receives.
    pub(crate) receiver: u32,
    /// Number that both have agreed on.
    pub(crate) port: u64,
}

/// Contents of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    /// Values.
    Values(&'a [u8]),
    /// Number of slots that the receiver has released.
    Credit(u64),
    /// The sender has closed its end. The last record in this direction.
    SenderClosed,
    /// The receiver has closed its end. The last record in this direction.
    ReceiverClosed,
}

impl ChannelId {
    /// Returns the head of a record, which its values follow.
    pub(crate) fn head(self, content: Content<'_>) -> [u8; HEAD_BYTES] {
        let (class, count) = match content {
            Content::Values(bytes) => (0, bytes.len() as u64),
            Content::Credit(values) => (1, values),
            Content::SenderClosed => (2, 0),
            Content::ReceiverClosed => (3, 0),
        };
        self.encode(class, count)
    }

    /// Returns the head of a record of so many bytes of values.
    pub(crate) fn head_of_values(self, bytes: usize) -> [u8; HEAD_BYTES] {
        self.encode(0, bytes as u64)
    }

    fn encode(self, class: u64, count: u64) -> [u8; HEAD_BYTES] {
        records::encode_head([
            u64::from(self.sender) | u64::from(self.receiver) << 32,
            self.port,
            count & COUNT | class << CLASS_SHIFT,
        ])
    }
}

/// Splits the first record off a frame: its channel, its content, and the rest of the frame. `None`
/// if the frame does not begin with a whole record.
pub(crate) fn split_first(frame: &[u8]) -> Option<(ChannelId, Content<'_>, &[u8])> {
    let (head, rest) = frame.split_first_chunk::<HEAD_BYTES>()?;
    let (words, _) = head.as_chunks::<8>();
    let [ranks, port, last] = [0, 1, 2].map(|word: usize| u64::from_le_bytes(words[word]));
    let id = ChannelId { sender: ranks as u32, receiver: (ranks >> 32) as u32, port };
    let count = last & COUNT;
    let content = match last >> CLASS_SHIFT {
        0 if count.is_multiple_of(8) && count <= MAX_BYTES as u64 => {
            let (bytes, rest) = rest.split_at_checked(count as usize)?;
            return Some((id, Content::Values(bytes), rest));
        }
        1 => Content::Credit(count),
        2 if count == 0 => Content::SenderClosed,
        3 if count == 0 => Content::ReceiverClosed,
        _ => return None,
    };
    Some((id, content, rest))
}

/// Returns true if a frame consists of whole records.
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
        fn frames_are_split_into_their_records(
            records in proptest::collection::vec(
                (any::<u32>(), any::<u32>(), any::<u64>(), 0..50_usize, 0..4_u8, 0..=COUNT), 0..20),
        ) {
            let values = vec![7; 8 * 50];
            let content = |class, words: usize, credit| match class {
                0 => Content::Values(&values[..8 * words]),
                1 => Content::Credit(credit),
                2 => Content::SenderClosed,
                _ => Content::ReceiverClosed,
            };
            let mut frame = Vec::new();
            for &(sender, receiver, port, words, class, credit) in &records {
                let content = content(class, words, credit);
                frame.extend(ChannelId { sender, receiver, port }.head(content));
                if let Content::Values(bytes) = content {
                    frame.extend_from_slice(bytes);
                }
            }
            prop_assert!(is_valid(&frame));
            let mut rest = &frame[..];
            for (sender, receiver, port, words, class, credit) in records {
                let (id, found, behind) = split_first(rest).expect("a record");
                prop_assert_eq!(id, ChannelId { sender, receiver, port });
                prop_assert_eq!(found, content(class, words, credit));
                rest = behind;
            }
            prop_assert!(rest.is_empty());
            frame.pop();
            prop_assert_eq!(is_valid(&frame), frame.is_empty());
        }

        #[test]
        fn noise_is_read_inside_its_bounds(noise in proptest::collection::vec(any::<u8>(), 0..300)) {
            is_valid(&noise);
        }
    }
}
