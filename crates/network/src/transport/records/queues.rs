//! Records of queues, as frames between nodes contain them.
//!
//! | byte | field |
//! |---|---|
//! | 0 | u32 owner of the queue: a rank of the job |
//! | 4 | u24 number of bytes that follow the head, a multiple of 8 |
//! | 7 | u8 class |
//! | 8 | u64 port |
//! | 16 | u32 opener of the link to the queue: a rank of the node that sends |
//! | 20 | 0 |
//! | 24 | the bytes |
//!
//! | class | to the | bytes |
//! |---|---|---|
//! | 0 messages | owner | the messages |
//! | 1 exit | owner | u64 rank of the sending node, behind everything that it has sent on this link |
//! | 2 end | owner | none: no rank of the node sends on this link any more |
//! | 3 credit | opener | u64 bytes of messages that the queue has taken |
//! | 4 closed | opener | none: the queue takes nothing any more |

use crate::transport::records;

/// Bytes of a head.
pub(crate) const HEAD_BYTES: usize = 24;
/// Largest number of bytes behind a head.
pub(crate) const MAX_BYTES: usize = 32 << 10;
/// Longest frame of records.
pub(crate) const MAX_FRAME_BYTES: u64 = records::longest_frame(HEAD_BYTES + MAX_BYTES);

const LENGTH_SHIFT: u32 = 32;
const CLASS_SHIFT: u32 = 56;

/// Name of a queue in the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueueId {
    /// The rank of the job that receives.
    pub(crate) owner: u32,
    /// Number by which its senders name it.
    pub(crate) port: u64,
}

/// Link from a node to a queue on another one, which all ranks of the node share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Link {
    pub(crate) queue: QueueId,
    /// The rank of the sending node that has opened it.
    pub(crate) opener: u32,
}

/// Contents of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    /// Messages for the queue.
    Messages(&'a [u8]),
    /// Exit of a rank of the sending node.
    Exit(u32),
    /// No rank of the sending node sends any more.
    End,
    /// Number of bytes of messages that the queue has taken.
    Credit(u64),
    /// The queue takes nothing any more.
    Closed,
}

impl Content<'_> {
    fn class(self) -> u64 {
        match self {
            Content::Messages(_) => 0,
            Content::Exit(_) => 1,
            Content::End => 2,
            Content::Credit(_) => 3,
            Content::Closed => 4,
        }
    }
}

impl Link {
    /// Returns the head of a record of `bytes` bytes of messages.
    pub(crate) fn head(self, bytes: usize) -> [u8; HEAD_BYTES] {
        self.encode(Content::Messages(&[]), bytes)
    }

    /// Appends a record.
    pub(crate) fn append(self, content: Content<'_>, batch: &mut Vec<u8>) {
        let word = match content {
            Content::Messages(bytes) => {
                batch.extend(self.encode(content, bytes.len()));
                return batch.extend(bytes);
            }
            Content::Exit(rank) => Some(u64::from(rank)),
            Content::Credit(bytes) => Some(bytes),
            Content::End | Content::Closed => None,
        };
        let word = word.map(u64::to_le_bytes);
        let bytes = word.as_ref().map_or(&[][..], |word| word);
        batch.extend(self.encode(content, bytes.len()));
        batch.extend(bytes);
    }

    fn encode(self, content: Content<'_>, bytes: usize) -> [u8; HEAD_BYTES] {
        let Link { queue: QueueId { owner, port }, opener } = self;
        let length = (bytes as u64) << LENGTH_SHIFT;
        let word = u64::from(owner) | length | content.class() << CLASS_SHIFT;
        records::encode_head([word, port, u64::from(opener)])
    }
}

/// Splits the first record off a frame: its link, its content, and the rest of the frame. `None`
/// if the frame does not begin with a whole record.
pub(crate) fn split_first(frame: &[u8]) -> Option<(Link, Content<'_>, &[u8])> {
    let (head, rest) = frame.split_first_chunk::<HEAD_BYTES>()?;
    let (words, _) = head.as_chunks();
    let word = u64::from_le_bytes(words[0]);
    let queue = QueueId { owner: word as u32, port: u64::from_le_bytes(words[1]) };
    let link = Link { queue, opener: u32::try_from(u64::from_le_bytes(words[2])).ok()? };
    let length = (word >> LENGTH_SHIFT) as usize & 0xff_ffff;
    let (bytes, rest) = rest.split_at_checked(length)?;
    let value = bytes.try_into().map(u64::from_le_bytes);
    let content = match word >> CLASS_SHIFT {
        0 if length.is_multiple_of(8) && length <= MAX_BYTES => Content::Messages(bytes),
        1 => Content::Exit(u32::try_from(value.ok()?).ok()?),
        2 if bytes.is_empty() => Content::End,
        3 => Content::Credit(value.ok()?),
        4 if bytes.is_empty() => Content::Closed,
        _ => return None,
    };
    Some((link, content, rest))
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
            records in proptest::collection::vec((any::<u32>(), any::<u64>(), any::<u32>(), 0..50_usize, any::<u64>()), 0..20),
        ) {
            let mut frame = Vec::new();
            let mut appended = Vec::new();
            for &(owner, port, opener, words, credit) in &records {
                let link = Link { queue: QueueId { owner, port }, opener };
                let contents = [
                    Content::Messages(&[7; 400][..8 * words]),
                    Content::Exit(owner),
                    Content::End,
                    Content::Credit(credit),
                    Content::Closed,
                ];
                for content in contents {
                    link.append(content, &mut frame);
                    appended.push((link, content));
                }
            }
            prop_assert!(is_valid(&frame));
            let mut rest = &frame[..];
            for (link, content) in appended {
                let (found, read, behind) = split_first(rest).expect("a record");
                prop_assert_eq!((found, read), (link, content));
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
