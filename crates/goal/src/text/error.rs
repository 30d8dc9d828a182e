//! Errors in text files, with their positions.

use std::fmt;

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line, from 1.
    pub line: u32,
    /// The character within the line, from 1.
    pub column: u32,
}

impl Position {
    /// The place right behind this text.
    pub(super) fn end_of(text: &str) -> Position {
        let line_start = text.rfind('\n').map_or(0, |newline| newline + 1);
        let line = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = text[line_start..].chars().count() + 1;
        let clamp = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Position { line: clamp(line), column: clamp(column) }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}, column {}", self.line, self.column)
    }
}

/// Why a text is not a GOAL file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// Something else should stand here.
    #[error("{at}: found {found}, expected {expected}")]
    Unexpected {
        /// Its position.
        at: Position,
        /// The text there.
        found: String,
        /// The expected text.
        expected: &'static str,
    },
    /// A number that its field cannot hold.
    #[error("{at}: {found} is too large for {what}, which goes up to {limit}")]
    NumberTooLarge {
        /// Its position.
        at: Position,
        /// The number.
        found: String,
        /// The counted thing.
        what: &'static str,
        /// The largest possible value.
        limit: u64,
    },
    /// No ranks at all.
    #[error("{at}: there must be at least one rank: write num_ranks 1 or more")]
    NoRanks {
        /// Position of the number.
        at: Position,
    },
    /// A rank that is out of order.
    #[error(
        "{at}: found rank {found}, expected rank {expected}: ranks come in order and each once"
    )]
    RankOrder {
        /// Position of the number.
        at: Position,
        /// The rank found.
        found: u32,
        /// The expected rank.
        expected: u32,
    },
    /// More ranks than announced.
    #[error(
        "{at}: found rank {found}, but num_ranks says there are {ranks}: remove the rank or correct num_ranks"
    )]
    TooManyRanks {
        /// Position of the number.
        at: Position,
        /// The rank found.
        found: u32,
        /// The number declared.
        ranks: u32,
    },
    /// The text ends before all ranks were there.
    #[error(
        "{at}: the file ends, but rank {rank} of {ranks} is missing: add it or correct num_ranks"
    )]
    MissingRank {
        /// The end of the text.
        at: Position,
        /// The first rank that is missing.
        rank: u32,
        /// The number declared.
        ranks: u32,
    },
    /// The text ends within a rank.
    #[error(
        "{at}: the file ends within rank {rank}, which begins at line {opened}: close it with `}}`"
    )]
    OpenRank {
        /// The end of the text.
        at: Position,
        /// The rank.
        rank: u32,
        /// The line where it begins.
        opened: u32,
    },
    /// A comment without an end.
    #[error("{at}: the comment that begins here has no end: close it with `*/`")]
    OpenComment {
        /// Start position.
        at: Position,
    },
    /// A label that names two operations.
    #[error("{at}: the label `{label}` is already used at line {first}: choose another")]
    DuplicateLabel {
        /// Its position.
        at: Position,
        /// The label.
        label: String,
        /// The line of its first use.
        first: u32,
    },
    /// A label that names no operation.
    #[error("{at}: no operation above has the label `{label}`: define it before it is used")]
    UnknownLabel {
        /// Its position.
        at: Position,
        /// The label.
        label: String,
    },
    /// An operation that waits for itself.
    #[error("{at}: `{label}` waits for itself and could never start: remove the line")]
    SelfEdge {
        /// Position of the second mention.
        at: Position,
        /// The label.
        label: String,
    },
    /// Bytes that are no text.
    #[error(
        "{at}: the byte {byte:#04x} is not UTF-8: is this a binary GOAL file? Otherwise save the text as UTF-8"
    )]
    NotUtf8 {
        /// Its position.
        at: Position,
        /// The byte.
        byte: u8,
    },
}
