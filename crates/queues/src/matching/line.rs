//! Lines of a ring of matched messages. The first line of a message has its envelope.
//!
//! | word | contents |
//! |---|---|
//! | 0 to 5 | up to 48 bytes of the message, or the words of an offer, an answer or a request |
//! | 6 | communicator in the lower half, tag in the upper half |
//! | 7 | length in bits 0 to 39, kind from bit 60 on |
//!
//! A line does not name its sender: the ring that it lies in does, so no rank can send as another.
//!
//! The lines that follow the first one of a longer message hold 64 bytes of it each. They come in
//! blocks: the first line of a block is put in last and arrives as a value of the ring does, the
//! others are its tail.

use shm::process_memory::GuardValue;

/// Bytes of a line.
pub(crate) const LINE_BYTES: usize = 64;

/// Lines of a block: one kibibyte, so that a receiver copies one while its sender writes the next.
pub(crate) const BLOCK_LINES: u64 = 16;

/// Bytes of a block without an envelope.
pub(crate) const BLOCK_BYTES: usize = BLOCK_LINES as usize * LINE_BYTES;

/// Returns the number of lines behind the first one of a block, if `left` bytes of the message
/// follow the first line.
#[inline]
pub(crate) const fn tail_lines(left: u64) -> u64 {
    let lines = left.div_ceil(LINE_BYTES as u64);
    if lines < BLOCK_LINES { lines } else { BLOCK_LINES - 1 }
}

/// Returns the number of lines that stay empty behind an eager message of this length. A processor
/// that reads consecutive lines prefetches some twenty further ones: it would take those that the
/// sender has prepared for its next message.
#[inline]
pub(crate) const fn gap_lines(bytes: u64) -> u64 {
    if bytes > BLOCK_BYTES as u64 { 20 } else { 0 }
}

/// Words of a message in its first line.
pub(crate) const INLINE_WORDS: usize = 6;

/// Bytes of a message in its first line.
pub(crate) const INLINE_BYTES: usize = INLINE_WORDS * 8;

/// Longest message, in bytes.
pub const MAX_BYTES: u64 = (1 << 40) - 1;

const KIND_SHIFT: u32 = 60;

/// Description of a message by its sender, by which a receiver selects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Number of the communicator.
    pub context: u32,
    /// Tag.
    pub tag: u32,
    /// Length in bytes.
    pub bytes: u64,
}

/// A message that a receive or a probe has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageHead {
    /// Place of the sender at the endpoint. It follows from the ring, or the transport's record, in
    /// which the message has arrived.
    pub sender: u32,
    /// Its description.
    pub envelope: Envelope,
}

/// Kind of a first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The message follows.
    Eager = 1,
    /// The message follows in later lines; its sender waits for an answer when it is matched.
    Synchronous = 2,
    /// The message lies in the memory of its sender.
    Offer = 3,
    /// Answer to the sender: the message has been read, or matched.
    Answer = 4,
    /// Request to the sender: the message must come through the ring.
    Request = 5,
    /// The requested message follows in later lines, and an [`Ending`].
    Requested = 6,
}

/// Outcome of a requested message, in the line behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The lines before hold the message.
    Whole,
    /// Its sender could not read part of it.
    Lost,
}

impl Ending {
    const WHOLE: u64 = 1;

    pub(crate) fn of_stream(is_lost: bool) -> Self {
        if is_lost { Ending::Lost } else { Ending::Whole }
    }

    pub(crate) fn line(self) -> Line {
        let word = if self == Ending::Whole { Ending::WHOLE } else { 0 };
        Line { lead: [word, 0, 0, 0, 0, 0, 0], last: 0 }
    }

    pub(crate) fn of_line(line: &Line) -> Self {
        Ending::of_stream(line.lead[0] != Ending::WHOLE)
    }
}

/// One line of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) lead: [u64; 7],
    pub(crate) last: u64,
}

impl Line {
    /// Creates the first line of a message.
    #[inline]
    pub(crate) fn new(kind: Kind, envelope: Envelope, words: [u64; INLINE_WORDS]) -> Self {
        let [a, b, c, d, e, f] = words;
        let matched = u64::from(envelope.tag) << 32 | u64::from(envelope.context);
        Line {
            lead: [a, b, c, d, e, f, matched],
            last: envelope.bytes & MAX_BYTES | (kind as u64) << KIND_SHIFT,
        }
    }

    /// Returns the kind; `None` if no sender writes such a line.
    #[inline]
    pub(crate) fn kind(&self) -> Option<Kind> {
        Some(match self.last >> KIND_SHIFT {
            1 => Kind::Eager,
            2 => Kind::Synchronous,
            3 => Kind::Offer,
            4 => Kind::Answer,
            5 => Kind::Request,
            6 => Kind::Requested,
            _ => return None,
        })
    }

    /// Returns the envelope.
    #[inline]
    pub(crate) fn envelope(&self) -> Envelope {
        let matched = self.lead[INLINE_WORDS];
        Envelope {
            context: matched as u32,
            tag: (matched >> 32) as u32,
            bytes: self.last & MAX_BYTES,
        }
    }

    /// Returns the words before the envelope.
    #[inline]
    pub(crate) fn words(&self) -> [u64; INLINE_WORDS] {
        let [a, b, c, d, e, f, _] = self.lead;
        [a, b, c, d, e, f]
    }

    /// Creates a line of the rest of a message, from up to 64 bytes.
    #[inline]
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        let [lead @ .., last] = words_of::<8>(bytes);
        Line { lead, last }
    }

    /// Copies the start of the line's 64 bytes.
    #[inline]
    pub(crate) fn copy_to(&self, bytes: &mut [u8]) {
        let [a, b, c, d, e, f, g] = self.lead;
        copy_words(&[a, b, c, d, e, f, g, self.last], bytes);
    }
}

/// An offered message: where it lies in its sender's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Number of the send in its process.
    pub(crate) send: u64,
    /// Address of the bytes.
    pub(crate) address: u64,
    /// Guard of the bytes.
    pub(crate) guard: GuardValue,
}

impl Offer {
    pub(crate) fn words(self) -> [u64; INLINE_WORDS] {
        [self.send, self.address, self.guard.address, self.guard.generation, 0, 0]
    }

    pub(crate) fn of_words([send, address, guard, generation, ..]: [u64; INLINE_WORDS]) -> Self {
        Offer { send, address, guard: GuardValue { address: guard, generation } }
    }
}

/// Returns up to `8 N` bytes as words; the rest is zero.
#[inline]
pub(crate) fn words_of<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    // Whole arrays, because a copy of unknown length costs a call of `memmove`.
    let (whole, tail) = bytes.as_chunks::<8>();
    let mut free = words.iter_mut();
    for (chunk, word) in whole.iter().zip(free.by_ref()) {
        *word = u64::from_ne_bytes(*chunk);
    }
    if !tail.is_empty()
        && let Some(word) = free.next()
    {
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        *word = u64::from_ne_bytes(last);
    }
    words
}

/// Copies the first bytes of these words.
#[inline]
pub(crate) fn copy_words(words: &[u64], bytes: &mut [u8]) {
    let (whole, tail) = bytes.as_chunks_mut::<8>();
    let mut rest = words.iter();
    for (chunk, word) in whole.iter_mut().zip(rest.by_ref()) {
        *chunk = word.to_ne_bytes();
    }
    if let Some(word) = rest.next() {
        tail.copy_from_slice(&word.to_ne_bytes()[..tail.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn an_envelope_survives(
            context: u32, tag: u32, bytes in 0..=MAX_BYTES, words: [u64; 6],
        ) {
            let envelope = Envelope { context, tag, bytes };
            for kind in [
                Kind::Eager, Kind::Synchronous, Kind::Offer, Kind::Answer, Kind::Request,
                Kind::Requested,
            ] {
                let line = Line::new(kind, envelope, words);
                prop_assert_eq!(line.kind(), Some(kind));
                prop_assert_eq!(line.envelope(), envelope);
                prop_assert_eq!(line.words(), words);
            }
        }

        #[test]
        fn bytes_survive(bytes in proptest::collection::vec(any::<u8>(), 0..=64)) {
            let mut copy = vec![0; bytes.len()];
            Line::of_bytes(&bytes).copy_to(&mut copy);
            prop_assert_eq!(copy, bytes);
        }
    }
}
