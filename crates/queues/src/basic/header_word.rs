//! Header word: the first word of a line in a Basic ring, with the kind, source and length of its
//! message.
//!
//! | Bits | Contents |
//! |---|---|
//! | 0 to 19 | length in bytes (a message), or number of skipped lines |
//! | 20 to 27 | handler |
//! | 28 to 41 | source name |
//! | 42, 43 | kind: 1 message, 2 skip to the start of the ring, 3 end |
//! | 44 to 63 | lap of the ring, modulo 2²⁰ |
//!
//! A line not yet written holds either 0 or a header word of the previous lap. Random corruption is
//! therefore detected almost certainly.

use crate::id::SourceName;

const LENGTH_BITS: u32 = 20;
const HANDLER_SHIFT: u32 = 20;
const SOURCE_SHIFT: u32 = 28;
const KIND_SHIFT: u32 = 42;
const LAP_SHIFT: u32 = 44;
const KIND_MASK: u64 = 3;
const LAP_MASK: u64 = (1 << (64 - LAP_SHIFT)) - 1;

/// Longest message that a header word can encode, in bytes.
pub(crate) const MAX_BYTES: usize = (1 << LENGTH_BITS) - 1;

/// Header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BasicHeader {
    /// Name of the sender, to which a reply goes.
    pub source: SourceName,
    /// Number of the handler to run.
    pub handler: u8,
}

/// Contents of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderWord {
    /// Start of a message.
    Message {
        /// Its header.
        header: BasicHeader,
        /// Its length in bytes.
        bytes: usize,
    },
    /// No message in this many lines up to the end of the ring: the next message begins at the
    /// start of the ring.
    Skip {
        /// Number of lines, including this one.
        lines: u64,
    },
    /// The sender has closed its end.
    End,
}

/// Error: a word that no sender writes there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidHeader;

impl HeaderWord {
    /// Encodes the header word for this lap. `bytes` and `lines` are truncated to their field.
    pub(crate) fn encode(self, lap: u64) -> u64 {
        let (kind, length, header) = match self {
            HeaderWord::Message { header, bytes } => (1, bytes as u64, header),
            HeaderWord::Skip { lines } => (2, lines, BasicHeader::default()),
            HeaderWord::End => (3, 0, BasicHeader::default()),
        };
        length & MAX_BYTES as u64
            | u64::from(header.handler) << HANDLER_SHIFT
            | u64::from(header.source.number()) << SOURCE_SHIFT
            | kind << KIND_SHIFT
            | (lap & LAP_MASK) << LAP_SHIFT
    }

    /// Decodes a word for a receiver in this lap; `None` if the line is not written yet.
    pub(crate) fn decode(word: u64, lap: u64) -> Result<Option<HeaderWord>, InvalidHeader> {
        if word == 0 {
            return Ok(None);
        }
        let kind = word >> KIND_SHIFT & KIND_MASK;
        let found = word >> LAP_SHIFT;
        if kind == 0 {
            return Err(InvalidHeader);
        }
        // Not written yet. The sender clears lines that hold data before a message ends in front of
        // them (`RingSender::clear_next`), so no other lap is possible.
        if found == lap.wrapping_sub(1) & LAP_MASK {
            return Ok(None);
        }
        if found != lap & LAP_MASK {
            return Err(InvalidHeader);
        }
        let length = word & MAX_BYTES as u64;
        Ok(Some(match kind {
            1 => {
                let source = SourceName::from_bits(word >> SOURCE_SHIFT);
                let header = BasicHeader { source, handler: (word >> HANDLER_SHIFT) as u8 };
                HeaderWord::Message { header, bytes: length as usize }
            }
            2 => HeaderWord::Skip { lines: length },
            _ => HeaderWord::End,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_word_is_valid_in_its_own_lap_only() {
        let source = SourceName::new(16_383).expect("the last name");
        let message =
            HeaderWord::Message { header: BasicHeader { source, handler: 255 }, bytes: MAX_BYTES };
        for header_word in [message, HeaderWord::Skip { lines: 3 }, HeaderWord::End] {
            for lap in [0, 1, LAP_MASK - 1, LAP_MASK, LAP_MASK + 1, u64::MAX] {
                let word = header_word.encode(lap);
                assert_eq!(HeaderWord::decode(word, lap), Ok(Some(header_word)));
                assert_eq!(
                    HeaderWord::decode(word, lap.wrapping_add(1)),
                    Ok(None),
                    "left from the lap before"
                );
                assert_eq!(HeaderWord::decode(word, lap.wrapping_add(2)), Err(InvalidHeader));
                assert_eq!(
                    HeaderWord::decode(word, lap.wrapping_sub(1)),
                    Err(InvalidHeader),
                    "from the future"
                );
            }
        }
        assert_eq!(HeaderWord::decode(0, 5), Ok(None));
        assert_eq!(HeaderWord::decode(1, 0), Err(InvalidHeader), "of no kind");
    }
}
