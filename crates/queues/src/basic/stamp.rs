//! The first word of a line in a Basic ring: whether the line holds something, what, and from whom.
//!
//! | bits | what |
//! |---|---|
//! | 0 to 19 | length in bytes (a message), or how many lines are skipped |
//! | 20 to 27 | handler |
//! | 28 to 41 | source name |
//! | 42, 43 | kind: 1 a message, 2 a skip to the ring's start, 3 the end |
//! | 44 to 63 | lap of the ring, modulo 2²⁰ |
//!
//! A line that is still to be written holds 0 or a stamp of the lap before, and nothing else: so
//! whoever writes at random is found out almost surely.

use crate::name::SourceName;

const LENGTH_BITS: u32 = 20;
const HANDLER_SHIFT: u32 = 20;
const SOURCE_SHIFT: u32 = 28;
const KIND_SHIFT: u32 = 42;
const LAP_SHIFT: u32 = 44;
const KIND_MASK: u64 = 3;
const LAP_MASK: u64 = (1 << (64 - LAP_SHIFT)) - 1;

/// The longest message that a stamp can announce, in bytes, however large the ring.
pub(crate) const MAX_BYTES: usize = (1 << LENGTH_BITS) - 1;

/// What goes with every message besides its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// Who sends it: the name to which the receiver can answer.
    pub source: SourceName,
    /// Which of the receiver's handlers it is for.
    pub handler: u8,
}

/// What a line holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// A message begins here.
    Message {
        /// What goes with it.
        header: Header,
        /// Its length in bytes.
        bytes: usize,
    },
    /// Nothing, and nothing in this many lines up to the ring's end: the next message begins at its
    /// start.
    Skip {
        /// How many lines, this one included.
        lines: u64,
    },
    /// The sender has closed its end.
    End,
}

/// A word that no sender writes there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoStamp;

impl Stamp {
    /// The word for this lap. `bytes` and `lines` must fit their field; what does not is cut off.
    pub(crate) fn encode(self, lap: u64) -> u64 {
        let (kind, length, header) = match self {
            Stamp::Message { header, bytes } => (1, bytes as u64, header),
            Stamp::Skip { lines } => (2, lines, Header::default()),
            Stamp::End => (3, 0, Header::default()),
        };
        length & MAX_BYTES as u64
            | u64::from(header.handler) << HANDLER_SHIFT
            | u64::from(header.source.number()) << SOURCE_SHIFT
            | kind << KIND_SHIFT
            | (lap & LAP_MASK) << LAP_SHIFT
    }

    /// What the word says to a receiver in this lap: `None` if nothing has been written yet.
    pub(crate) fn decode(word: u64, lap: u64) -> Result<Option<Stamp>, NoStamp> {
        if word == 0 {
            return Ok(None);
        }
        let (kind, found) = (word >> KIND_SHIFT & KIND_MASK, word >> LAP_SHIFT);
        if kind == 0 {
            return Err(NoStamp);
        }
        if found == lap.wrapping_sub(1) & LAP_MASK {
            return Ok(None);
        }
        if found != lap & LAP_MASK {
            return Err(NoStamp);
        }
        let length = word & MAX_BYTES as u64;
        Ok(Some(match kind {
            1 => {
                let source = SourceName::from_bits(word >> SOURCE_SHIFT);
                let header = Header { source, handler: (word >> HANDLER_SHIFT) as u8 };
                Stamp::Message { header, bytes: length as usize }
            }
            2 => Stamp::Skip { lines: length },
            _ => Stamp::End,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_in_its_own_lap_only() {
        let source = SourceName::new(16_383).expect("the last name");
        let message = Stamp::Message { header: Header { source, handler: 255 }, bytes: MAX_BYTES };
        for stamp in [message, Stamp::Skip { lines: 3 }, Stamp::End] {
            for lap in [0, 1, LAP_MASK - 1, LAP_MASK, LAP_MASK + 1, u64::MAX] {
                let word = stamp.encode(lap);
                assert_eq!(Stamp::decode(word, lap), Ok(Some(stamp)));
                assert_eq!(
                    Stamp::decode(word, lap.wrapping_add(1)),
                    Ok(None),
                    "left from the lap before"
                );
                assert_eq!(Stamp::decode(word, lap.wrapping_add(2)), Err(NoStamp));
                assert_eq!(
                    Stamp::decode(word, lap.wrapping_sub(1)),
                    Err(NoStamp),
                    "from the future"
                );
            }
        }
        assert_eq!(Stamp::decode(0, 5), Ok(None));
        assert_eq!(Stamp::decode(1, 0), Err(NoStamp), "of no kind");
    }
}
