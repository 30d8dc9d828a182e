//! How a run ended, as bytes: between agents and from an agent to its rank.
//!
//! | byte | field |
//! |---|---|
//! | 0 | u8 kind: 0 well, 1 [`Error::DivisionByZero`], 2 sizes, 3 operation, 4 rank, 5 node, 6 system, 7 mismatch, 8 a rank that left |
//! | 1 | u32 number, 5: u32 second number |
//! | 9 | u16 length of the first text; then both texts |

use crate::carrier::{Error, Exit};

/// The bytes of an outcome.
pub(crate) fn encode(outcome: &Result<(), Error>) -> Vec<u8> {
    let (sequence, theirs);
    let (kind, number, second, texts): (u8, u32, u32, [&str; 2]) = match outcome {
        Ok(()) => (0, 0, 0, ["", ""]),
        Err(Error::DivisionByZero { rank, vertex, why }) => (1, *rank, *vertex, [why, ""]),
        Err(Error::SizesDiffer(why)) => (2, 0, 0, [why, ""]),
        Err(Error::RankFailed { rank, how: Exit::Failed(how) }) => (4, *rank, 0, [how, ""]),
        Err(Error::RankFailed { rank, how: Exit::Left }) => (8, *rank, 0, ["", ""]),
        Err(Error::NodeUnreachable { node, address, why }) => (5, *node, 0, [address, why]),
        Err(Error::System { what, why }) => (6, 0, 0, [what, why]),
        Err(Error::Operation(why)) => (3, 0, 0, [why, ""]),
        Err(Error::Mismatch { sequence: run, ours, rank, theirs: stamp }) => {
            (sequence, theirs) = (run.to_string(), stamp.to_string());
            (7, *rank, *ours, [&sequence, &theirs])
        }
        // Found before a run starts; an agent has none of these to tell.
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

/// The outcome of bytes, if they are one.
pub(crate) fn decode(bytes: &[u8]) -> Option<Result<(), Error>> {
    let (kind, rest) = bytes.split_first()?;
    let (number, rest) = rest.split_first_chunk()?;
    let (second, rest) = rest.split_first_chunk()?;
    let (length, texts) = rest.split_first_chunk()?;
    let (first, last) = texts.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (number, second, first, last) =
        (u32::from_le_bytes(*number), u32::from_le_bytes(*second), text(first), text(last));
    Some(Err(match kind {
        0 => return Some(Ok(())),
        1 => Error::DivisionByZero { rank: number, vertex: second, why: first },
        2 => Error::SizesDiffer(first),
        3 => Error::Operation(first),
        4 => Error::RankFailed { rank: number, how: Exit::Failed(first) },
        8 => Error::RankFailed { rank: number, how: Exit::Left },
        5 => Error::NodeUnreachable { node: number, address: first, why: last },
        6 => Error::System { what: first, why: last },
        7 => {
            let (sequence, theirs) = (first.parse().ok()?, last.parse().ok()?);
            Error::Mismatch { sequence, ours: second, rank: number, theirs }
        }
        _ => return None,
    }))
}

/// Longer texts are cut, so that both of an outcome fit where a rank reads them.
fn shortened(text: &str) -> &str {
    const MOST: usize = 400;
    let mut end = text.len().min(MOST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The most bytes of an outcome.
pub(crate) const MAX_BYTES: usize = 11 + 2 * 400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let text = || "why é".to_owned();
        for error in [
            Error::DivisionByZero { rank: 1, vertex: 2, why: text() },
            Error::SizesDiffer(text()),
            Error::Operation(String::new()),
            Error::RankFailed { rank: u32::MAX, how: Exit::Failed(text()) },
            Error::RankFailed { rank: 6, how: Exit::Failed("has left the job".into()) },
            Error::RankFailed { rank: 6, how: Exit::Left },
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
        assert!(bytes.len() <= MAX_BYTES && decode(&bytes).is_some());
        assert_eq!(decode(&bytes[..200]), None);
        assert_eq!(decode(&[9; 20]), None);
    }
}
