//! Messages between a process and the node service.

use crate::error::{ServiceError, system};
use network::job_nodes::JobNodes;
use rustix::fs::{MemfdFlags, memfd_create};
use shm::broker::MAX_BYTES;
use shm::process::StartTime;
use std::fs::File;
use std::io::Write;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Request of a rank to enter. The kernel reports its process number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) rank: u32,
    /// Number of ranks of this node, for the rank.
    pub(crate) ranks: u32,
    /// Start time of the process. It distinguishes the process from a later one with the same
    /// number.
    pub(crate) started: StartTime,
}

/// Message with the job's nodes, in a file that goes with it.
pub(crate) const JOB_NODES: &[u8] = b"nodes";

/// Request of an observer for a descriptor of the segment. The response is [`Answer::Welcome`] with
/// one through which the segment can only be read.
pub(crate) const OBSERVE: &[u8] = b"observe";

/// First bytes of a message with sockets between ranks, of which the service keeps copies. The
/// number of the rank on this node follows.
const KEEP: &[u8] = b"keep";

/// Encodes the message with which this rank passes sockets.
pub(crate) fn encode_keep(rank: u32) -> Vec<u8> {
    [KEEP, &rank.to_le_bytes()].concat()
}

/// Returns the rank that passes sockets with a message; `None` if it is another message.
pub(crate) fn decode_keep(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.strip_prefix(KEEP)?.try_into().ok()?))
}

/// Largest file with the job's nodes: a million ranks.
const MAX_NODES_BYTES: usize = 32 << 20;

/// Response of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The rank is admitted; the segment's descriptor goes with the message. As the response to the
    /// job's nodes: all nodes are connected.
    Welcome,
    /// The rank is admitted to a job on several nodes. With the message go the segment, the region
    /// shared with the agent, and the agent's doorbell; and for the kernel engine its memory, its
    /// wake-up ring and its program.
    WelcomeToNodes {
        /// The number of this node.
        node: u32,
        /// Its address, for messages.
        address: String,
        /// The rank's slot in the kernel engine, or the reason why there is none.
        kernel: Result<u32, String>,
    },
    /// The request is refused, with the reason.
    Refused(String),
    /// The job has ended; the name will be free at once.
    Over,
}

impl Hello {
    pub(crate) fn encode(self) -> Vec<u8> {
        let parts = [
            &self.rank.to_le_bytes()[..],
            &self.ranks.to_le_bytes(),
            &self.started.0.to_le_bytes(),
        ];
        parts.concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Hello> {
        let (rank, rest) = bytes.split_first_chunk()?;
        let (ranks, rest) = rest.split_first_chunk()?;
        let started = rest.try_into().ok()?;
        Some(Hello {
            rank: u32::from_le_bytes(*rank),
            ranks: u32::from_le_bytes(*ranks),
            started: StartTime(u64::from_le_bytes(started)),
        })
    }
}

impl Answer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        // Reasons are cut to the largest size of a message: a longer response could not be sent,
        // and the rank would get no reason at all.
        match self {
            Answer::Welcome => vec![0],
            Answer::Refused(why) => [&[1], shortened(why, MAX_BYTES - 1).as_bytes()].concat(),
            Answer::Over => vec![2],
            Answer::WelcomeToNodes { node, address, kernel } => {
                let (kind, slot, why) = match kernel {
                    Ok(slot) => (3, *slot, ""),
                    Err(why) => (4, 0, why.as_str()),
                };
                let length = (address.len() as u32).to_le_bytes();
                let head = [
                    &[kind],
                    &node.to_le_bytes()[..],
                    &slot.to_le_bytes(),
                    &length,
                    address.as_bytes(),
                ]
                .concat();
                [&head, shortened(why, MAX_BYTES - head.len()).as_bytes()].concat()
            }
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Answer> {
        match bytes {
            [0] => Some(Answer::Welcome),
            [1, why @ ..] => Some(Answer::Refused(String::from_utf8_lossy(why).into_owned())),
            [2] => Some(Answer::Over),
            [kind @ (3 | 4), rest @ ..] => {
                let (node, rest) = rest.split_first_chunk()?;
                let (slot, rest) = rest.split_first_chunk()?;
                let (length, rest) = rest.split_first_chunk()?;
                let (address, why) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                let kernel =
                    if *kind == 3 { Ok(u32::from_le_bytes(*slot)) } else { Err(text(why)) };
                Some(Answer::WelcomeToNodes {
                    node: u32::from_le_bytes(*node),
                    address: text(address),
                    kernel,
                })
            }
            _ => None,
        }
    }
}

/// Returns the longest prefix of a text of at most `bytes` bytes.
fn shortened(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Writes the job's nodes into a file in memory, because they may exceed a message.
pub(crate) fn write_nodes(nodes: &JobNodes) -> Result<OwnedFd, ServiceError> {
    let file = memfd_create("tradewind-nodes", MemfdFlags::CLOEXEC)
        .map_err(system("create a file in memory for the job's nodes"))?;
    let mut file = File::from(file);
    file.write_all(&nodes.encode()).map_err(system("write the job's nodes into memory"))?;
    Ok(file.into())
}

/// Reads the job's nodes from a file. Returns `None` for any other contents, and for a descriptor
/// that cannot be read at an offset, for example a pipe.
pub(crate) fn read_nodes(file: BorrowedFd<'_>) -> Option<JobNodes> {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    // The sender may be any process of this user. A read at an offset never waits, and the limit
    // bounds the memory.
    loop {
        let count = rustix::io::pread(file, &mut part, bytes.len() as u64).ok()?;
        if count == 0 {
            return JobNodes::decode(&bytes);
        }
        bytes.extend_from_slice(&part[..count]);
        if bytes.len() > MAX_NODES_BYTES {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_decoded_as_they_were_encoded() {
        let hello = Hello { rank: 3, ranks: 1 << 20, started: StartTime(u64::MAX - 5) };
        assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        assert_eq!(decode_keep(&encode_keep(u32::MAX - 3)), Some(u32::MAX - 3));
        let to_nodes =
            |kernel| Answer::WelcomeToNodes { node: 7, address: "10.0.0.1:80".into(), kernel };
        let both = [to_nodes(Err("no rights".into())), to_nodes(Ok(0))];
        for answer in
            [Answer::Welcome, Answer::Refused("no".into()), Answer::Over].into_iter().chain(both)
        {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn long_reasons_are_cut_between_letters() {
        let long = "é".repeat(MAX_BYTES);
        let to_nodes = Answer::WelcomeToNodes {
            node: 7,
            address: "10.0.0.1:80".into(),
            kernel: Err(long.clone()),
        };
        assert!(
            to_nodes.encode().len() <= MAX_BYTES && Answer::decode(&to_nodes.encode()).is_some()
        );
        let bytes = Answer::Refused(long).encode();
        assert!(bytes.len() <= MAX_BYTES);
        assert!(
            matches!(Answer::decode(&bytes), Some(Answer::Refused(why)) if why.chars().all(|letter| letter == 'é'))
        );
    }

    #[test]
    fn other_bytes_are_no_message() {
        let hello = Hello { rank: 0, ranks: 1, started: StartTime(1) }.encode();
        for length in 0..hello.len() {
            assert_eq!(Hello::decode(&hello[..length]), None);
        }
        assert_eq!(Hello::decode(&[&hello[..], &[0]].concat()), None);
        assert_eq!(decode_keep(&hello), None);
        assert_eq!(Answer::decode(&[]), None);
        assert_eq!(Answer::decode(&[9]), None);
    }
}
