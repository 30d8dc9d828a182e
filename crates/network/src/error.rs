//! Failures between nodes, and their encoding.
//!
//! Agents send the outcome of a run to each other and to their ranks:
//!
//! | byte | field |
//! |---|---|
//! | 0 | u8 kind: 0 success, 1 [`Error::DivisionByZero`], 2 sizes, 3 operation, 4 rank, 5 node, 6 system, 7 mismatch, 8 a rank that left |
//! | 1 | u32 number, 5: u32 second number |
//! | 9 | u16 length of the first text; then both texts |

use std::fmt;

/// A failure of a run, or of a call between nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A node does not respond any more, or its node service has ended.
    #[error(
        "node {node} ({address}) is unreachable: {why}; its ranks are no longer members of any communicator"
    )]
    NodeUnreachable {
        /// Number of the node in the job.
        node: u32,
        /// Address of the node.
        address: String,
        /// The symptom.
        why: String,
    },
    /// A rank on another node, or on this one, has exited.
    #[error("rank {rank} {how}")]
    RankFailed {
        /// Number of the rank in the job.
        rank: u32,
        /// Manner of its exit.
        how: RankExit,
    },
    /// An integer was divided by zero; the element's result is 0, the run is complete and its
    /// results are there.
    #[error("{why}")]
    DivisionByZero {
        /// The rank, by its number in the communicator.
        rank: u32,
        /// The operation's place in the rank's vertex order.
        vertex: u32,
        /// The operation, and the way out.
        why: String,
    },
    /// A message is not as long as its receive; the text names both.
    #[error("{0}")]
    SizesDiffer(String),
    /// Two ranks have called different collectives.
    #[error(
        "this rank and rank {rank} are in different collectives at run {sequence} of a communicator"
    )]
    Mismatch {
        /// Number of the run on its communicator.
        sequence: u64,
        /// Signature of this rank's call.
        ours: u32,
        /// The other rank, by its number in the job.
        rank: u32,
        /// Signature of its call.
        theirs: u32,
    },
    /// Another failure of a run.
    #[error("{0}")]
    Operation(String),
    /// The number of buffers differs from the schedule's.
    #[error("the schedule has {expected} buffers, {found} were given")]
    BufferCount {
        /// Buffers of the schedule.
        expected: usize,
        /// Buffers that were passed.
        found: usize,
    },
    /// A buffer's length differs from the schedule's.
    #[error(
        "buffer {buffer} is {found} bytes long, the schedule says {expected}: pass as many as the graph declares"
    )]
    Length {
        /// Number of the buffer in the graph.
        buffer: usize,
        /// Bytes in the schedule.
        expected: u64,
        /// Bytes that were passed.
        found: u64,
    },
    /// A schedule, run or message that is too large for the backend.
    #[error("{what} needs {needed}, the {backend} engine takes {limit}: {way_out}")]
    TooLarge {
        /// Name of the backend.
        backend: &'static str,
        /// The thing that is too large.
        what: String,
        /// Its size.
        needed: u64,
        /// The largest possible one.
        limit: u64,
        /// The way out.
        way_out: &'static str,
    },
    /// The system refused something.
    #[error("{what}: {why}")]
    System {
        /// The attempt.
        what: String,
        /// The system's reason, and the way out.
        why: String,
    },
}

impl Error {
    /// Returns true if a rank that has left the job in order is the cause.
    pub fn has_left(&self) -> bool {
        matches!(self, Error::RankFailed { how: RankExit::Left, .. })
    }
}

/// Manner of a rank's exit. Its text continues a sentence that begins with the rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankExit {
    /// In order.
    Left,
    /// Another way, as the rest of the sentence.
    Failed(String),
}

impl fmt::Display for RankExit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            RankExit::Left => "has left the job",
            RankExit::Failed(how) => how,
        })
    }
}

/// Makes an error of an attempt, as the end of a sentence, and the reason why it failed.
pub(crate) fn system(what: &str, why: impl fmt::Display) -> Error {
    Error::System { what: format!("cannot {what}"), why: why.to_string() }
}

/// For `map_err`: the same of a system call.
pub(crate) fn refused<E: Into<std::io::Error>>(what: &'static str) -> impl Fn(E) -> Error {
    move |error| system(what, error.into())
}

/// Longest text of an outcome. Longer ones are cut, so that an outcome fits where a rank reads it.
const MAX_TEXT: usize = 400;

/// Largest number of bytes of an outcome.
pub(crate) const MAX_OUTCOME_BYTES: usize = 11 + 2 * MAX_TEXT;

/// Encodes an outcome.
pub(crate) fn encode(outcome: &Result<(), Error>) -> Vec<u8> {
    let sequence;
    let theirs;
    let (kind, number, second, texts): (u8, u32, u32, [&str; 2]) = match outcome {
        Ok(()) => (0, 0, 0, ["", ""]),
        Err(Error::DivisionByZero { rank, vertex, why }) => (1, *rank, *vertex, [why, ""]),
        Err(Error::SizesDiffer(why)) => (2, 0, 0, [why, ""]),
        Err(Error::RankFailed { rank, how: RankExit::Failed(how) }) => (4, *rank, 0, [how, ""]),
        Err(Error::RankFailed { rank, how: RankExit::Left }) => (8, *rank, 0, ["", ""]),
        Err(Error::NodeUnreachable { node, address, why }) => (5, *node, 0, [address, why]),
        Err(Error::System { what, why }) => (6, 0, 0, [what, why]),
        Err(Error::Operation(why)) => (3, 0, 0, [why, ""]),
        Err(Error::Mismatch { sequence: run, ours, rank, theirs: signature }) => {
            sequence = run.to_string();
            theirs = signature.to_string();
            (7, *rank, *ours, [&sequence, &theirs])
        }
        // The rest is found before a run starts, so agents do not exchange it.
        Err(other) => return encode(&Err(Error::Operation(other.to_string()))),
    };
    let [first, last] = texts.map(shortened);
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&second.to_le_bytes());
    bytes.extend_from_slice(&(first.len() as u16).to_le_bytes());
    bytes.extend_from_slice(first.as_bytes());
    bytes.extend_from_slice(last.as_bytes());
    bytes
}

/// Decodes the reason in a record of an exit (see
/// [`Class::Exit`](crate::transport::records::messages::Class::Exit)); `None` if the bytes are none.
pub fn decode_exit(bytes: &[u8]) -> Option<Error> {
    decode(bytes)?.err()
}

/// Decodes an outcome; `None` if the bytes are none.
pub(crate) fn decode(bytes: &[u8]) -> Option<Result<(), Error>> {
    let (kind, rest) = bytes.split_first()?;
    let (number, rest) = rest.split_first_chunk()?;
    let (second, rest) = rest.split_first_chunk()?;
    let (length, texts) = rest.split_first_chunk()?;
    let (first, last) = texts.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let number = u32::from_le_bytes(*number);
    let second = u32::from_le_bytes(*second);
    let first = text(first);
    let last = text(last);
    Some(Err(match kind {
        0 => return Some(Ok(())),
        1 => Error::DivisionByZero { rank: number, vertex: second, why: first },
        2 => Error::SizesDiffer(first),
        3 => Error::Operation(first),
        4 => Error::RankFailed { rank: number, how: RankExit::Failed(first) },
        8 => Error::RankFailed { rank: number, how: RankExit::Left },
        5 => Error::NodeUnreachable { node: number, address: first, why: last },
        6 => Error::System { what: first, why: last },
        7 => {
            let sequence = first.parse().ok()?;
            let theirs = last.parse().ok()?;
            Error::Mismatch { sequence, ours: second, rank: number, theirs }
        }
        _ => return None,
    }))
}

fn shortened(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_reverses_encoding() {
        let text = || "why é".to_owned();
        for error in [
            Error::DivisionByZero { rank: 1, vertex: 2, why: text() },
            Error::SizesDiffer(text()),
            Error::Operation(String::new()),
            Error::RankFailed { rank: u32::MAX, how: RankExit::Failed(text()) },
            Error::RankFailed { rank: 6, how: RankExit::Failed("has left the job".into()) },
            Error::RankFailed { rank: 6, how: RankExit::Left },
            Error::NodeUnreachable { node: 7, address: "10.0.0.1:80".into(), why: text() },
            Error::System { what: text(), why: text() },
            Error::Mismatch { sequence: u64::MAX, ours: 3, rank: 4, theirs: 5 },
        ] {
            assert_eq!(decode(&encode(&Err(error.clone()))), Some(Err(error)));
        }
        assert_eq!(decode(&encode(&Ok(()))), Some(Ok(())));
    }

    #[test]
    fn long_texts_are_cut_and_noise_is_refused() {
        let bytes = encode(&Err(Error::System { what: "é".repeat(500), why: "x".repeat(500) }));
        assert!(bytes.len() <= MAX_OUTCOME_BYTES && decode(&bytes).is_some());
        assert_eq!(decode(&bytes[..200]), None);
        assert_eq!(decode(&[9; 20]), None);
    }
}
