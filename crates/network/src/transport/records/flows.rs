//! Records of flows, as frames between nodes contain them.
//!
//! | byte | field |
//! |---|---|
//! | 0 | u32 sender of the flow: a rank of the node from which the bytes come |
//! | 4 | u32 receiver of the flow: a rank of the node to which they go |
//! | 8 | u64 port |
//! | 16 | u48 number of bytes that follow, a multiple of 8; of credit: bytes; of an exit: the rank |
//! | 22 | u8 kind of the flow: 0 a queue, 1 a channel, 2 commands on a window, 3 their answers |
//! | 23 | u8 class |
//! | 24 | the bytes |
//!
//! | class | to the | meaning |
//! |---|---|---|
//! | 0 data | receiver | whole messages, or a part of a command |
//! | 1 credit | sender | bytes of which the space is free again |
//! | 2 exit | receiver | exit of a rank, behind everything that it has sent on this flow |
//! | 3 the sender has closed its end | receiver | nothing follows |
//! | 4 the receiver has closed its end | sender | it takes nothing any more |

use crate::transport::records;

/// Bytes of a head.
pub(crate) const HEAD_BYTES: usize = 24;
/// Largest number of bytes behind a head.
pub(crate) const MAX_BYTES: usize = 32 << 10;
/// Longest frame of records.
pub(crate) const MAX_FRAME_BYTES: u64 = records::longest_frame(HEAD_BYTES + MAX_BYTES);

const KIND_SHIFT: u32 = 48;
const CLASS_SHIFT: u32 = 56;
const COUNT: u64 = (1 << KIND_SHIFT) - 1;

/// Kind of contents of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FlowKind {
    /// Messages of all ranks of a node to a queue.
    Queue,
    /// Values of a channel.
    Channel,
    /// Commands on a window.
    Commands,
    /// Answers to commands.
    Answers,
}

/// Name of a flow in the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FlowId {
    pub(crate) kind: FlowKind,
    /// The rank that has opened the sending end.
    pub(crate) sender: u32,
    /// The rank that has opened the receiving end.
    pub(crate) receiver: u32,
    /// Number that both have agreed on.
    pub(crate) port: u64,
}

/// Contents of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    /// Bytes for the receiver.
    Data(&'a [u8]),
    /// Number of bytes of which the space is free again.
    Credit(u64),
    /// Exit of a rank of the sending node.
    Exit(u32),
    /// The last record to the receiver.
    SenderClosed,
    /// The last record to the sender.
    ReceiverClosed,
}

impl FlowKind {
    fn of(number: u8) -> Option<FlowKind> {
        use FlowKind::{Answers, Channel, Commands, Queue};
        [Queue, Channel, Commands, Answers].get(usize::from(number)).copied()
    }
}

impl FlowId {
    /// Returns the head of a record of so many bytes of data.
    #[inline]
    pub(crate) fn head(self, bytes: usize) -> [u8; HEAD_BYTES] {
        self.encode(0, bytes as u64)
    }

    /// Appends a record.
    pub(crate) fn append(self, content: Content<'_>, batch: &mut Vec<u8>) {
        let (class, count) = match content {
            Content::Data(bytes) => (0, bytes.len() as u64),
            Content::Credit(bytes) => (1, bytes),
            Content::Exit(rank) => (2, rank.into()),
            Content::SenderClosed => (3, 0),
            Content::ReceiverClosed => (4, 0),
        };
        batch.extend_from_slice(&self.encode(class, count));
        if let Content::Data(bytes) = content {
            batch.extend_from_slice(bytes);
        }
    }

    #[inline]
    fn encode(self, class: u64, count: u64) -> [u8; HEAD_BYTES] {
        let ranks = u64::from(self.sender) | u64::from(self.receiver) << 32;
        let kind = (self.kind as u64) << KIND_SHIFT;
        records::encode_head([ranks, self.port, count & COUNT | kind | class << CLASS_SHIFT])
    }
}

/// Splits the first record off a frame: its flow, its content, and the rest of the frame. `None` if
/// the frame does not begin with a whole record.
pub(crate) fn split_first(frame: &[u8]) -> Option<(FlowId, Content<'_>, &[u8])> {
    let (head, rest) = frame.split_first_chunk::<HEAD_BYTES>()?;
    let [ranks, port, last] = records::decode_head(head);
    let kind = FlowKind::of((last >> KIND_SHIFT) as u8)?;
    let id = FlowId { kind, sender: ranks as u32, receiver: (ranks >> 32) as u32, port };
    let count = last & COUNT;
    let content = match last >> CLASS_SHIFT {
        0 if count.is_multiple_of(8) && count <= MAX_BYTES as u64 => {
            let (bytes, rest) = rest.split_at_checked(count as usize)?;
            return Some((id, Content::Data(bytes), rest));
        }
        1 => Content::Credit(count),
        2 => Content::Exit(u32::try_from(count).ok()?),
        3 if count == 0 => Content::SenderClosed,
        4 if count == 0 => Content::ReceiverClosed,
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
                (0..4_u8, any::<[u32; 2]>(), any::<u64>(), 0..50_usize, 0..=COUNT), 0..20),
        ) {
            let mut frame = Vec::new();
            let mut appended = Vec::new();
            for &(kind, [sender, receiver], port, words, credit) in &records {
                let kind = FlowKind::of(kind).expect("one of four");
                let id = FlowId { kind, sender, receiver, port };
                let contents = [
                    Content::Data(&[7; 400][..8 * words]),
                    Content::Credit(credit),
                    Content::Exit(receiver),
                    Content::SenderClosed,
                    Content::ReceiverClosed,
                ];
                for content in contents {
                    id.append(content, &mut frame);
                    appended.push((id, content));
                }
            }
            prop_assert!(is_valid(&frame));
            let mut rest = &frame[..];
            for (id, content) in appended {
                let (found, read, behind) = split_first(rest).expect("a record");
                prop_assert_eq!((found, read), (id, content));
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
