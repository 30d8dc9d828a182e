//! Commands on a window of another node and their answers, as lines of two channels.
//!
//! A command and an answer each have a head of one line, and then their bytes, unless these fit into
//! the head. Numbers are little-endian words:
//!
//! | word | of a command | of an answer |
//! |---|---|---|
//! | 0 | its number; 2⁶⁴ − 1: no answer | the number of its command |
//! | 1 | first byte in the window | 0 |
//! | 2 | length: bytes of the window, or indices | 0 |
//! | 3 | u32 bytes, u8 kind, u8 data type, u8 operation | u32 bytes, u8 outcome |
//! | 4 to 7 | the bytes, if there are at most 32 | the same |
//!
//! A condition is a command: its second word is the position of the word to be observed, and its
//! third one the value to be reached.

use goal::arithmetic::{Arithmetic, DataType};

/// A line of a channel.
pub(super) type Line = [u64; 8];
/// Bytes of a line.
pub const LINE_BYTES: usize = 64;
/// Most bytes of a command or an answer.
pub(super) const MAX_BYTES: usize = 8 << 10;
/// Most conditions that one rank waits for on one window.
pub(super) const MOST_AWAITED: usize = 128;
/// Most lines of a command or an answer.
pub const MAX_LINES: u64 = lines_of(MAX_BYTES);
/// Number of all commands that are not answered.
pub(super) const UNANSWERED: u64 = u64::MAX;
/// Bytes in a head.
const INLINE: usize = 32;

/// Returns the number of lines of a command or an answer with so many bytes.
pub(super) const fn lines_of(bytes: usize) -> u64 {
    if bytes <= INLINE { 1 } else { 1 + bytes.div_ceil(LINE_BYTES) as u64 }
}

/// The effect of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Stores its bytes.
    Put,
    /// Loads bytes.
    Get,
    /// Combines elements with its bytes.
    Accumulate(Arithmetic, DataType),
    /// Combines an element with its bytes, and loads what it was.
    FetchAccumulate(Arithmetic, DataType),
    /// Loads an element, and stores the second half of its bytes if it equals the first.
    CompareExchange(DataType),
    /// Stores elements, which follow their indices.
    Scatter(DataType),
    /// Loads the elements of indices.
    Gather(DataType),
    /// Counts a notification of the owner.
    Notify,
    /// Answers when a condition is true.
    Await,
    /// Answers the [`Kind::Await`] of the same number, whether its condition is true or not.
    Cancel,
}

/// Head of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) number: u64,
    pub(super) kind: Kind,
    pub(super) at: u64,
    pub(super) length: u64,
}

/// Outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// A condition is not true.
    NotTrue,
    /// The window was withdrawn.
    Withdrawn,
    /// The command is none that a window executes.
    Refused,
}

/// Head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) number: u64,
    pub(super) outcome: Outcome,
}

impl Command {
    fn codes(self) -> (u8, u8, u8) {
        match self.kind {
            Kind::Put => (0, 0, 0),
            Kind::Get => (1, 0, 0),
            Kind::Accumulate(operation, data_type) => (2, data_type as u8, operation as u8),
            Kind::Scatter(data_type) => (3, data_type as u8, 0),
            Kind::Gather(data_type) => (4, data_type as u8, 0),
            Kind::Notify => (5, 0, 0),
            Kind::Await => (6, 0, 0),
            Kind::Cancel => (7, 0, 0),
            Kind::FetchAccumulate(operation, data_type) => (8, data_type as u8, operation as u8),
            Kind::CompareExchange(data_type) => (9, data_type as u8, 0),
        }
    }

    /// Passes the lines of the command with these bytes to `put`.
    pub(super) fn encode<E>(
        self,
        bytes: &[u8],
        put: impl FnMut(Line) -> Result<(), E>,
    ) -> Result<(), E> {
        let (kind, data_type, operation) = self.codes();
        let [a, b, c] = [kind, data_type, operation].map(u64::from);
        encode([self.number, self.at, self.length], a | b << 8 | c << 16, bytes, put)
    }

    fn of_words([number, at, length]: [u64; 3], codes: u32) -> Option<Command> {
        let data_type = DataType::from_u8((codes >> 8) as u8);
        let operation = Arithmetic::from_u8((codes >> 16) as u8);
        let kind = match codes as u8 {
            0 => Kind::Put,
            1 => Kind::Get,
            2 => Kind::Accumulate(operation?, data_type?),
            3 => Kind::Scatter(data_type?),
            4 => Kind::Gather(data_type?),
            5 => Kind::Notify,
            6 => Kind::Await,
            7 => Kind::Cancel,
            8 => Kind::FetchAccumulate(operation?, data_type?),
            9 => Kind::CompareExchange(data_type?),
            _ => return None,
        };
        Some(Command { number, kind, at, length })
    }

    /// Returns the number of bytes of the answer; `None` if it has too many.
    pub(super) fn answer_bytes(self) -> Option<usize> {
        let bytes = match self.kind {
            Kind::Get => self.length,
            Kind::Gather(data_type) => self.length.checked_mul(data_type.bytes() as u64)?,
            Kind::FetchAccumulate(_, data_type) | Kind::CompareExchange(data_type) => {
                data_type.bytes() as u64
            }
            _ => 0,
        };
        usize::try_from(bytes).ok().filter(|bytes| *bytes <= MAX_BYTES)
    }
}

impl Answer {
    /// Passes the lines of the answer with these bytes to `put`.
    pub(super) fn encode<E>(
        self,
        bytes: &[u8],
        put: impl FnMut(Line) -> Result<(), E>,
    ) -> Result<(), E> {
        encode([self.number, 0, 0], self.outcome as u64, bytes, put)
    }

    fn of_words([number, ..]: [u64; 3], codes: u32) -> Option<Answer> {
        let outcomes = [Outcome::Done, Outcome::NotTrue, Outcome::Withdrawn, Outcome::Refused];
        let outcome = *outcomes.get(usize::from(codes as u8))?;
        Some(Answer { number, outcome })
    }
}

fn encode<E>(
    [a, b, c]: [u64; 3],
    codes: u64,
    bytes: &[u8],
    mut put: impl FnMut(Line) -> Result<(), E>,
) -> Result<(), E> {
    let mut head = [a, b, c, bytes.len() as u64 | codes << 32, 0, 0, 0, 0];
    if bytes.len() <= INLINE {
        fill(&mut head[4..], bytes);
        return put(head);
    }
    put(head)?;
    bytes.chunks(LINE_BYTES).try_for_each(|chunk| {
        let mut line = [0; 8];
        fill(&mut line, chunk);
        put(line)
    })
}

fn fill(words: &mut [u64], bytes: &[u8]) {
    for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_le_bytes(whole);
    }
}

/// A head that was read, and the bytes behind it.
pub(super) struct Read<'a, H> {
    pub(super) head: H,
    pub(super) bytes: &'a [u8],
    /// Bytes of all of its lines.
    pub(super) length: usize,
}

/// Bytes that are no command or answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Invalid;

/// Reads the first command of lines; `None` if it is not complete.
pub(super) fn command(lines: &[u8]) -> Result<Option<Read<'_, Command>>, Invalid> {
    read(lines, Command::of_words)
}

/// Reads the first answer of lines; `None` if it is not complete.
pub(super) fn answer(lines: &[u8]) -> Result<Option<Read<'_, Answer>>, Invalid> {
    read(lines, Answer::of_words)
}

fn read<H>(
    lines: &[u8],
    head_of: impl FnOnce([u64; 3], u32) -> Option<H>,
) -> Result<Option<Read<'_, H>>, Invalid> {
    let Some((head, rest)) = lines.split_at_checked(LINE_BYTES) else { return Ok(None) };
    let (words, _) = head.as_chunks::<8>();
    let [a, b, c, last] = [0, 1, 2, 3].map(|word: usize| u64::from_le_bytes(words[word]));
    let count = last as u32 as usize;
    if count > MAX_BYTES {
        return Err(Invalid);
    }
    let head_of = head_of([a, b, c], (last >> 32) as u32).ok_or(Invalid)?;
    let length = lines_of(count) as usize * LINE_BYTES;
    let bytes = if count <= INLINE { head.get(32..32 + count) } else { rest.get(..count) };
    Ok(bytes.filter(|_| lines.len() >= length).map(|bytes| Read { head: head_of, bytes, length }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(
        encode: impl FnOnce(&mut dyn FnMut(Line) -> Result<(), ()>) -> Result<(), ()>,
    ) -> Vec<u8> {
        let mut lines = Vec::new();
        let mut put = |line: Line| {
            lines.extend(line.iter().flat_map(|word| word.to_le_bytes()));
            Ok(())
        };
        encode(&mut put).expect("a vector has space");
        lines
    }

    fn kinds() -> impl Strategy<Value = Kind> {
        let operation = || prop::sample::select(Arithmetic::ALL.to_vec());
        let data_type = || prop::sample::select(DataType::ALL.to_vec());
        prop_oneof![
            (operation(), data_type()).prop_map(|(one, of)| Kind::Accumulate(one, of)),
            (operation(), data_type()).prop_map(|(one, of)| Kind::FetchAccumulate(one, of)),
            data_type().prop_map(Kind::CompareExchange),
            Just(Kind::Put),
            Just(Kind::Get),
            Just(Kind::Scatter(DataType::F32)),
            Just(Kind::Gather(DataType::Bit)),
            Just(Kind::Notify),
            Just(Kind::Await),
            Just(Kind::Cancel),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn commands_and_answers_survive(
            number: u64, kind in kinds(), at: u64, length: u64, code in 0..4_u32,
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let sent = Command { number, kind, at, length };
            let encoded = lines(|put| sent.encode(&bytes, put));
            prop_assert_eq!(encoded.len() as u64, 64 * lines_of(bytes.len()));
            let read = command(&encoded).expect("valid").expect("complete");
            prop_assert_eq!((read.head, read.bytes, read.length), (sent, &bytes[..], encoded.len()));
            prop_assert!(command(&encoded[..encoded.len() - 1]).expect("valid").is_none());
            let sent = Answer::of_words([number, 0, 0], code).expect("an outcome");
            prop_assert_eq!(sent.outcome as u32, code);
            let encoded = lines(|put| sent.encode(&bytes, put));
            let read = answer(&encoded).expect("valid").expect("complete");
            prop_assert_eq!((read.head, read.bytes, read.length), (sent, &bytes[..], encoded.len()));
        }

        #[test]
        fn noise_is_read_inside_its_bounds(
            noise in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let _ = (command(&noise).is_ok(), answer(&noise).is_ok());
        }
    }
}
