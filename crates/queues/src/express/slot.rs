//! Encoding of an Express slot: one message, or the state of a slot without a message.
//!
//! | bits | of a full slot | of an empty slot | of a closed slot |
//! |---|---|---|---|
//! | 63 | 1 | 0 | 0 |
//! | 62 | parity of the lap | 0 | 1 |
//! | 48 to 61 | source name | lap | lap |
//! | 40 to 47 | handler | lap | lap |
//! | 0 to 39 | five bytes of data | lap | lap |
//!
//! A position counts the messages of a ring since its creation; its lap is the position divided by
//! the number of slots. An empty slot holds the lap in which it will be written next, so every
//! empty word occurs once in the life of a slot. A sender that was stopped for any number of laps
//! therefore fails its compare-exchange. Zeroed slots are empty in lap 0.

use crate::message::{ExpressMessage, MESSAGE_BITS};

const FULL: u64 = 1 << 63;
const PARITY_SHIFT: u32 = 62;
const CLOSED: u64 = 1 << 62;
/// Bits of a message or a lap.
const CONTENT: u64 = MESSAGE_BITS;

/// State of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// Holds a message of a lap with this parity.
    Full { odd: bool, message: ExpressMessage },
    /// Empty; to be written in this lap.
    Empty(u64),
    /// Closed from this lap on.
    Closed(u64),
}

/// Encodes a slot that holds `message`, written in `lap`.
#[inline]
pub(crate) const fn full(lap: u64, message: ExpressMessage) -> u64 {
    FULL | (lap & 1) << PARITY_SHIFT | message.to_bits()
}

/// Encodes a slot that is to be written in `lap`.
#[inline]
pub(crate) const fn empty(lap: u64) -> u64 {
    lap & CONTENT
}

/// Encodes a slot that is closed from `lap` on.
#[inline]
pub(crate) const fn closed(lap: u64) -> u64 {
    CLOSED | lap & CONTENT
}

/// Returns whether `word` is a message written in `lap` or another lap of the same parity.
#[inline]
pub(crate) const fn is_full_in(word: u64, lap: u64) -> bool {
    // The parity suffices: a slot holds a message of this lap or of the one before, unless the
    // position is out of date. A receiver with such a head fails in its exchange.
    word >> PARITY_SHIFT == 2 | lap & 1
}

/// Decodes a word. Every word has a meaning.
#[inline]
pub(crate) const fn read(word: u64) -> SlotState {
    if word & FULL != 0 {
        SlotState::Full { odd: word & CLOSED != 0, message: ExpressMessage::from_bits(word) }
    } else if word & CLOSED != 0 {
        SlotState::Closed(word & CONTENT)
    } else {
        SlotState::Empty(word & CONTENT)
    }
}

/// Returns whether the lap in an empty or closed word comes after `lap`.
#[inline]
pub(crate) const fn is_later(in_word: u64, lap: u64) -> bool {
    // Laps wrap in the bits of a word. Two laps in use are never half of the range apart.
    let ahead = in_word.wrapping_sub(lap) & CONTENT;
    ahead != 0 && ahead <= CONTENT / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::SourceName;

    #[test]
    fn fields_do_not_overlap() {
        for source in [0, 1, 0x2aaa, 0x3fff] {
            for handler in [0, 0x55, 0xff] {
                for data in [[0; 5], [0xff; 5], [1, 2, 3, 4, 5]] {
                    for lap in [0, 1, 2, CONTENT] {
                        let source = SourceName::new(source).expect("14 bits");
                        let word = full(lap, ExpressMessage::new(source, handler, data));
                        let SlotState::Full { odd, message } = read(word) else {
                            panic!("a full word is full")
                        };
                        assert_eq!(odd, lap % 2 == 1);
                        assert!(is_full_in(word, lap) && !is_full_in(word, lap + 1));
                        assert_eq!(
                            (message.source(), message.handler(), message.data()),
                            (source, handler, data)
                        );
                        assert_eq!(ExpressMessage::from_bits(word), message);
                    }
                }
            }
        }
    }

    #[test]
    fn empty_and_closed_words_hold_their_lap() {
        for lap in [0, 1, 77, CONTENT] {
            assert_eq!(read(empty(lap)), SlotState::Empty(lap));
            assert_eq!(read(closed(lap)), SlotState::Closed(lap));
            assert!(!is_full_in(empty(lap), lap) && !is_full_in(closed(lap), lap));
        }
        assert_eq!(empty(0), 0, "zeroed memory is an empty ring");
    }

    #[test]
    fn laps_compare_across_wrap_around() {
        assert!(is_later(1, 0) && !is_later(0, 0) && !is_later(0, 1));
        assert!(is_later(0, CONTENT), "laps start over after 2^62");
    }
}
