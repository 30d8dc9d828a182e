//! The first two words of a slot: its state, and the header, which identifies the claim.

/// Number of bits of a [`SenderId`].
const SENDER_BITS: u32 = 6;

/// Number of sender identities of a ring, including [`SenderId::NONE`].
pub(crate) const MAX_SENDERS: usize = 1 << SENDER_BITS;

/// Number of a sending process in the table of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SenderId(u8);

impl SenderId {
    /// A process without a number in this ring, or no process.
    pub(crate) const NONE: SenderId = SenderId(0);

    /// Reads the lowest bits of a word.
    #[inline(always)]
    pub(crate) const fn from_bits(bits: u64) -> SenderId {
        SenderId(bits as u8 & (MAX_SENDERS as u8 - 1))
    }

    /// Returns the number, below [`MAX_SENDERS`].
    #[inline(always)]
    pub(crate) const fn number(self) -> u64 {
        self.0 as u64
    }
}

/// State of a slot in a lap. In memory: the lap in the upper 48 bits, then the sender, then two
/// bits of state, so that a later state is a larger number (until the laps wrap).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Neither published nor voided in this lap.
    Empty,
    /// Holds the message of this lap.
    Full,
    /// Voided: holds no message in this lap and is still in use by a sender of this process, or of
    /// an unknown process.
    Void(SenderId),
}

// The order of the bits is the order of the states: the lap decides first, then void (bit 1)
// over full (bit 0) over empty. All exchanges of the protocol lead to a later state, so an exchange
// that was delayed for any time fails instead of undoing a newer state.
const LAP_SHIFT: u32 = 16;
const SENDER_SHIFT: u32 = 2;

/// Encodes a state of a lap.
#[inline]
pub(crate) const fn encode(lap: u64, state: State) -> u64 {
    let low = match state {
        State::Empty => 0,
        State::Full => 1,
        State::Void(claimant) => claimant.number() << SENDER_SHIFT | 2,
    };
    lap << LAP_SHIFT | low
}

/// Decodes a state. Every word is valid.
#[inline]
pub(crate) const fn decode(word: u64) -> State {
    match word & 3 {
        0 => State::Empty,
        1 => State::Full,
        _ => State::Void(SenderId::from_bits(word >> SENDER_SHIFT)),
    }
}

/// Returns the lap of a state word.
#[inline]
pub(crate) const fn lap_of(word: u64) -> u64 {
    word >> LAP_SHIFT
}

/// Returns whether a state word is later than another.
#[inline(always)]
pub(crate) const fn is_later(word: u64, than: u64) -> bool {
    // Signed difference: laps wrap after 2⁴⁸, and two states in use are never half of that apart.
    word.wrapping_sub(than).cast_signed() > 0
}

/// Returns whether a slot is free for the message with the state word `full`: neither claimed and
/// voided nor published in that lap, which must be the next to be written.
#[inline(always)]
pub(crate) const fn is_free(found: u64, full: u64) -> bool {
    // Full of an earlier lap counts as free: the caller has seen the head past that message.
    found & 2 == 0 && is_later(full, found)
}

/// Returns whether a slot was voided in a lap before that of the state word `full`.
#[inline]
pub(crate) const fn is_voided(found: u64, full: u64) -> bool {
    found & 2 != 0 && is_later(full, found)
}

/// Bits of a header word that belong to the message.
pub(crate) const MESSAGE_BITS: u64 = (1 << HEADER_LAP_SHIFT) - 1;

const HEADER_LAP_SHIFT: u32 = 44;
const HEADER_LAP: u64 = (1 << 7) - 1;
const OWN_SHIFT: u32 = 51;
const BEFORE_SHIFT: u32 = 57;
const WRITTEN: u64 = 1 << 63;

/// Encodes the header word of a slot claimed in `lap` by `own`, after a claim by `before`. In
/// memory: the message's bits in 0 to 43, the low bits of the lap in 44 to 50, which distinguish a
/// claim of this lap from an earlier one, the sender of the claim in 51 to 56, the sender of the
/// previous claim in 57 to 62, and a 1 in bit 63, which distinguishes the header from zeroed
/// memory.
#[inline(always)]
pub(crate) const fn claim_header(message: u64, lap: u64, own: SenderId, before: SenderId) -> u64 {
    let claims = own.number() << OWN_SHIFT | before.number() << BEFORE_SHIFT;
    message & MESSAGE_BITS | (lap & HEADER_LAP) << HEADER_LAP_SHIFT | claims | WRITTEN
}

/// Returns the sender that claimed the slot in `lap` and the one that claimed before, if the header
/// was written in that lap.
#[inline]
pub(crate) const fn claimants(header: u64, lap: u64) -> Option<(SenderId, SenderId)> {
    // Seven bits of the lap suffice: a slot is claimed in every lap in which it is free, which writes
    // a new header, and a void slot has its header cleared before it is free again.
    if header & WRITTEN != 0 && header >> HEADER_LAP_SHIFT & HEADER_LAP == lap & HEADER_LAP {
        let own = SenderId::from_bits(header >> OWN_SHIFT);
        Some((own, SenderId::from_bits(header >> BEFORE_SHIFT)))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAP: u64 = u64::MAX >> LAP_SHIFT;

    #[test]
    fn a_word_keeps_its_lap_and_state() {
        for lap in [0, 1, 77, LAP] {
            for of in
                [State::Empty, State::Full, State::Void(SenderId::NONE), State::Void(SenderId(63))]
            {
                let word = encode(lap, of);
                assert_eq!((decode(word), lap_of(word)), (of, lap));
            }
        }
        assert_eq!(encode(0, State::Empty), 0, "zeroed memory is an empty ring");
    }

    #[test]
    fn states_of_a_slot_ascend() {
        for lap in [0, 1, 77, LAP - 1] {
            let in_order = [
                encode(lap, State::Empty),
                encode(lap, State::Full),
                encode(lap, State::Void(SenderId::NONE)),
                encode(lap, State::Void(SenderId(63))),
                encode(lap + 1, State::Empty),
            ];
            assert!(
                in_order
                    .windows(2)
                    .all(|two| is_later(two[1], two[0]) && !is_later(two[0], two[1]))
            );
            let full = encode(lap + 1, State::Full);
            assert_eq!(
                in_order.map(|found| is_free(found, full)),
                [true, true, false, false, true]
            );
            assert_eq!(
                in_order.map(|found| is_voided(found, full)),
                [false, false, true, true, false]
            );
            let full = encode(lap, State::Full);
            assert_eq!(
                in_order.map(|found| is_free(found, full)),
                [true, false, false, false, false]
            );
            assert!(!in_order.into_iter().any(|found| is_voided(found, full)));
        }
        assert!(
            is_later(encode(0, State::Empty), encode(LAP, State::Full)),
            "laps wrap after 2^48"
        );
    }

    #[test]
    fn a_header_names_the_sender_of_its_own_lap_only() {
        for message in [0, 1, 0x2aaa_0000_0fff, MESSAGE_BITS] {
            for lap in [0, 1, HEADER_LAP, HEADER_LAP + 1] {
                let own = SenderId::from_bits(message);
                let before = SenderId::from_bits(lap);
                let word = claim_header(message, lap, own, before);
                assert_eq!(word & MESSAGE_BITS, message & MESSAGE_BITS);
                assert_eq!(claimants(word, lap), Some((own, before)));
                assert_eq!(claimants(word, lap + 1), None);
            }
        }
        assert_eq!(claimants(0, 0), None, "zeroed memory holds no claim");
    }
}
