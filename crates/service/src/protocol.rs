//! What a rank says at the node service's door, and what it is answered.

use shm::broker::MAX_BYTES;
use shm::process::StartTime;

/// What a rank says. Its process number the kernel tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) rank: u32,
    /// How many ranks it believes there are.
    pub(crate) ranks: u32,
    /// When its process started: a number that has gone to another process meanwhile is recognised
    /// by it.
    pub(crate) started: StartTime,
}

/// What somebody says who brings the invitation of the job's other nodes, in a file that goes with
/// it.
pub(crate) const INVITATION: &[u8] = b"invitation";

/// What the service answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Come in; the segment's descriptor goes with it. To an invitation: all nodes are connected.
    Welcome,
    /// Come in, other nodes can be reached: with it go the segment, the area shared with the agent,
    /// and its doorbell; and where there is the kernel engine, its memory, bell and program.
    Reachable {
        /// The number of this node.
        node: u32,
        /// Its address, for messages.
        address: String,
        /// The rank's slot in the kernel engine, or why there is none.
        kernel: Result<u32, String>,
    },
    /// Not you, and why.
    Refused(String),
    /// This job is over; the name will be free at once.
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
        match self {
            Answer::Welcome => vec![0],
            Answer::Refused(why) => [&[1], shortened(why, MAX_BYTES - 1).as_bytes()].concat(),
            Answer::Over => vec![2],
            Answer::Reachable { node, address, kernel } => {
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
                Some(Answer::Reachable {
                    node: u32::from_le_bytes(*node),
                    address: text(address),
                    kernel,
                })
            }
            _ => None,
        }
    }
}

/// As much of a text as fits into so many bytes.
fn shortened(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let hello = Hello { rank: 3, ranks: 1 << 20, started: StartTime(u64::MAX - 5) };
        assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        let reachable =
            |kernel| Answer::Reachable { node: 7, address: "10.0.0.1:80".into(), kernel };
        let both = [reachable(Err("no rights".into())), reachable(Ok(0))];
        for answer in
            [Answer::Welcome, Answer::Refused("no".into()), Answer::Over].into_iter().chain(both)
        {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn long_reasons_are_cut_between_letters() {
        let long = "é".repeat(MAX_BYTES);
        let reachable =
            Answer::Reachable { node: 7, address: "10.0.0.1:80".into(), kernel: Err(long.clone()) };
        assert!(
            reachable.encode().len() <= MAX_BYTES && Answer::decode(&reachable.encode()).is_some()
        );
        let bytes = Answer::Refused(long).encode();
        assert!(bytes.len() <= MAX_BYTES);
        assert!(
            matches!(Answer::decode(&bytes), Some(Answer::Refused(why)) if why.chars().all(|letter| letter == 'é'))
        );
    }

    #[test]
    fn noise_is_not_understood() {
        let hello = Hello { rank: 0, ranks: 1, started: StartTime(1) }.encode();
        for length in 0..hello.len() {
            assert_eq!(Hello::decode(&hello[..length]), None);
        }
        assert_eq!(Hello::decode(&[&hello[..], &[0]].concat()), None);
        assert_eq!(Answer::decode(&[]), None);
        assert_eq!(Answer::decode(&[9]), None);
    }
}
