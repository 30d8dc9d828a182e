//! Records of queues, as frames between nodes contain them.
//!
//! | byte | field |
//! |---|---|
//! | 0 | u32 owner of the queue: a rank of the job |
//! | 4 | u24 number of bytes that follow the head, a multiple of 8 |
//! | 7 | u8 class: 0 messages, 1 credit |
//! | 8 | u64 port |
//! | 16 | the messages; or u64 bytes of messages that the queue has taken |

/// Bytes of a head.
pub(crate) const HEAD_BYTES: usize = 16;
/// Largest number of bytes behind a head.
pub(crate) const MAX_BYTES: usize = 32 << 10;
/// Bytes of records in a frame after which the agent begins another frame.
pub(crate) const BATCH_BYTES: usize = 64 << 10;
/// Longest frame of records.
pub(crate) const MAX_FRAME_BYTES: u64 = (BATCH_BYTES + HEAD_BYTES + MAX_BYTES) as u64;

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

/// Contents of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    /// Messages for the queue.
    Messages(&'a [u8]),
    /// Number of bytes of messages that the queue has taken.
    Credit(u64),
}

impl QueueId {
    /// Returns the head of a record of `bytes` bytes of messages.
    pub(crate) fn head(self, bytes: usize) -> [u8; HEAD_BYTES] {
        self.encode(0, bytes)
    }

    /// Returns a record of credit.
    pub(crate) fn credit(self, bytes: u64) -> [u8; HEAD_BYTES + 8] {
        let mut record = [0; HEAD_BYTES + 8];
        record[..HEAD_BYTES].copy_from_slice(&self.encode(1, 8));
        record[HEAD_BYTES..].copy_from_slice(&bytes.to_le_bytes());
        record
    }

    fn encode(self, class: u64, bytes: usize) -> [u8; HEAD_BYTES] {
        let word = u64::from(self.owner) | (bytes as u64) << LENGTH_SHIFT | class << CLASS_SHIFT;
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&word.to_le_bytes());
        head[8..].copy_from_slice(&self.port.to_le_bytes());
        head
    }
}

/// Splits the first record off a frame: its queue, its content, and the rest of the frame. `None`
/// if the frame does not begin with a whole record.
pub(crate) fn split_first(frame: &[u8]) -> Option<(QueueId, Content<'_>, &[u8])> {
    let (word, rest) = frame.split_first_chunk()?;
    let word = u64::from_le_bytes(*word);
    let (port, rest) = rest.split_first_chunk()?;
    let id = QueueId { owner: word as u32, port: u64::from_le_bytes(*port) };
    let length = (word >> LENGTH_SHIFT) as usize & 0xff_ffff;
    let (bytes, rest) = rest.split_at_checked(length)?;
    let content = match word >> CLASS_SHIFT {
        0 if length.is_multiple_of(8) && length <= MAX_BYTES => Content::Messages(bytes),
        1 => Content::Credit(u64::from_le_bytes(bytes.try_into().ok()?)),
        _ => return None,
    };
    Some((id, content, rest))
}

/// Returns true if a frame consists of whole records.
pub(crate) fn is_valid(mut frame: &[u8]) -> bool {
    while !frame.is_empty() {
        match split_first(frame) {
            Some((.., rest)) => frame = rest,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn frames_are_split_into_their_records(
            records in proptest::collection::vec((any::<u32>(), any::<u64>(), 0..50_usize, any::<u64>()), 0..20),
        ) {
            let mut frame = Vec::new();
            for &(owner, port, words, credit) in &records {
                let id = QueueId { owner, port };
                frame.extend(id.head(8 * words));
                frame.resize(frame.len() + 8 * words, 7);
                frame.extend(id.credit(credit));
            }
            prop_assert!(is_valid(&frame));
            let mut rest = &frame[..];
            for (owner, port, words, credit) in records {
                let id = QueueId { owner, port };
                let (found, content, behind) = split_first(rest).expect("a record");
                prop_assert_eq!((found, content), (id, Content::Messages(&vec![7; 8 * words])));
                let (found, content, behind) = split_first(behind).expect("a record");
                prop_assert_eq!((found, content), (id, Content::Credit(credit)));
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
