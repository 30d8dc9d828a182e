//! The first two words of a line: the stamp, which says whose the line is, and the header of the
//! message in it.

use crate::name::SourceName;

/// How many bits name a claimant.
const CLAIMANT_BITS: u32 = 6;

/// How many processes a ring can tell apart, and nobody.
pub(crate) const CLAIMANTS: usize = 1 << CLAIMANT_BITS;

/// Which of the processes that send to a ring has claimed a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SenderId(u8);

impl SenderId {
    /// A process without a number in this ring, or none.
    pub(crate) const NOBODY: SenderId = SenderId(0);

    /// From the lowest bits of a word.
    #[inline(always)]
    pub(crate) const fn from_bits(bits: u64) -> SenderId {
        SenderId(bits as u8 & (CLAIMANTS as u8 - 1))
    }

    /// Its number, below [`CLAIMANTS`].
    #[inline(always)]
    pub(crate) const fn number(self) -> u64 {
        self.0 as u64
    }
}

/// What a line's stamp says, with the lap that it says it of. In memory: the lap in the upper 48
/// bits, then the claimant, then two bits of state; so a later stamp is a larger number (until the
/// laps start over).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing was published or voided in this lap.
    Empty,
    /// It holds the message of this lap.
    Full,
    /// It holds none in this lap, because it is away in the hands of a sender: one of this process,
    /// or, if it is nobody, of a process that is not known.
    Void(SenderId),
}

const LAP_SHIFT: u32 = 16;
const CLAIMANT_SHIFT: u32 = 2;

/// The stamp of a line in this state of this lap.
#[inline]
pub(crate) const fn encode(lap: u64, state: State) -> u64 {
    let low = match state {
        State::Empty => 0,
        State::Full => 1,
        State::Void(claimant) => claimant.number() << CLAIMANT_SHIFT | 2,
    };
    lap << LAP_SHIFT | low
}

/// The state in a stamp. Every word is some stamp.
#[inline]
pub(crate) const fn decode(stamp: u64) -> State {
    match stamp & 3 {
        0 => State::Empty,
        1 => State::Full,
        _ => State::Void(SenderId::from_bits(stamp >> CLAIMANT_SHIFT)),
    }
}

/// The lap in a stamp.
#[inline]
pub(crate) const fn lap_of(stamp: u64) -> u64 {
    stamp >> LAP_SHIFT
}

/// Whether a stamp is later than another.
#[inline(always)]
pub(crate) const fn is_later(stamp: u64, than: u64) -> bool {
    stamp.wrapping_sub(than).cast_signed() > 0
}

/// Whether a stamp is that of a line which nobody has in his hands and nothing was published in
/// yet, as long as the message of `lap`, for which `full` is the stamp, is the next to be written
/// there.
#[inline(always)]
pub(crate) const fn is_free(found: u64, full: u64) -> bool {
    found & 2 == 0 && is_later(full, found)
}

/// Whether a stamp is that of a line that is away since a lap before the one for which `full` is
/// the stamp.
#[inline]
pub(crate) const fn is_away(found: u64, full: u64) -> bool {
    found & 2 != 0 && is_later(full, found)
}

/// What travels with the data of a line. In memory: length in bits 0 to 5, handler in 6 to 13,
/// source in 14 to 27, tag in 28 to 43, the low bits of the lap in 44 to 50, which tell a claim of
/// this lap from what an earlier one left behind, whose claim it is in 51 to 56, whose claim the
/// one before was in 57 to 62, and a 1 in 63, which tells it from fresh memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheLineHeader {
    /// Who sends it.
    pub source: SourceName,
    /// Which handler is to run.
    pub handler: u8,
    /// Sixteen bits for whatever the two ends agree on.
    pub tag: u16,
}

const HEADER_LAP_SHIFT: u32 = 44;
const HEADER_LAP: u64 = (1 << 7) - 1;
const OWN_SHIFT: u32 = 51;
const BEFORE_SHIFT: u32 = 57;
const WRITTEN: u64 = 1 << 63;

impl CacheLineHeader {
    /// The header's word for a message of `length` bytes (at most 63), without the lap.
    #[inline(always)]
    pub(crate) const fn pack(self, length: usize) -> u64 {
        length as u64 & 63
            | (self.handler as u64) << 6
            | (self.source.number() as u64) << 14
            | (self.tag as u64) << 28
    }

    /// The word as it stands in a line that was claimed in `lap` by `own`, after a claim by
    /// `before`.
    #[inline(always)]
    pub(crate) const fn in_lap(word: u64, lap: u64, own: SenderId, before: SenderId) -> u64 {
        let claims = own.number() << OWN_SHIFT | before.number() << BEFORE_SHIFT;
        (word & ((1 << HEADER_LAP_SHIFT) - 1))
            | (lap & HEADER_LAP) << HEADER_LAP_SHIFT
            | claims
            | WRITTEN
    }

    /// The header in a word.
    #[inline]
    pub(crate) const fn unpack(word: u64) -> CacheLineHeader {
        let source = SourceName::from_bits(word >> 14);
        CacheLineHeader { source, handler: (word >> 6) as u8, tag: (word >> 28) as u16 }
    }

    /// The length in a word, which may be anything below 64.
    #[inline]
    pub(crate) const fn length(word: u64) -> usize {
        word as usize & 63
    }

    /// Who claimed the line in `lap`, and who claimed before; if the header was written in that
    /// lap.
    #[inline]
    pub(crate) const fn claims(word: u64, lap: u64) -> Option<(SenderId, SenderId)> {
        if word & WRITTEN != 0 && word >> HEADER_LAP_SHIFT & HEADER_LAP == lap & HEADER_LAP {
            Some((
                SenderId::from_bits(word >> OWN_SHIFT),
                SenderId::from_bits(word >> BEFORE_SHIFT),
            ))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAP: u64 = u64::MAX >> LAP_SHIFT;

    fn source(number: u16) -> SourceName {
        SourceName::new(number).expect("14 bits")
    }

    #[test]
    fn a_stamp_keeps_its_lap_and_state() {
        for lap in [0, 1, 77, LAP] {
            for of in [
                State::Empty,
                State::Full,
                State::Void(SenderId::NOBODY),
                State::Void(SenderId(63)),
            ] {
                let word = encode(lap, of);
                assert_eq!((decode(word), lap_of(word)), (of, lap));
            }
        }
        assert_eq!(encode(0, State::Empty), 0, "zeroed memory is an empty ring");
    }

    #[test]
    fn a_line_goes_through_its_stamps_in_ascending_order() {
        for lap in [0, 1, 77, LAP - 1] {
            let in_order = [
                encode(lap, State::Empty),
                encode(lap, State::Full),
                encode(lap, State::Void(SenderId::NOBODY)),
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
                in_order.map(|found| is_away(found, full)),
                [false, false, true, true, false]
            );
            let full = encode(lap, State::Full);
            assert_eq!(
                in_order.map(|found| is_free(found, full)),
                [true, false, false, false, false]
            );
            assert!(!in_order.into_iter().any(|found| is_away(found, full)));
        }
        assert!(
            is_later(encode(0, State::Empty), encode(LAP, State::Full)),
            "laps start over after 2^48"
        );
    }

    #[test]
    fn a_header_keeps_its_fields_and_names_the_claimant_of_its_own_lap_only() {
        for number in [0, 0x2aaa, 0x3fff] {
            for (handler, tag, length) in [(0, 0, 0), (0xff, 0xffff, 48), (3, 9, 1)] {
                let header = CacheLineHeader { source: source(number), handler, tag };
                for lap in [0, 1, HEADER_LAP, HEADER_LAP + 1] {
                    let (own, before) =
                        (SenderId::from_bits(number.into()), SenderId::from_bits(lap));
                    let word = CacheLineHeader::in_lap(header.pack(length), lap, own, before);
                    assert_eq!(
                        (CacheLineHeader::unpack(word), CacheLineHeader::length(word)),
                        (header, length)
                    );
                    assert_eq!(CacheLineHeader::claims(word, lap), Some((own, before)));
                    assert_eq!(CacheLineHeader::claims(word, lap + 1), None);
                }
            }
        }
        assert_eq!(CacheLineHeader::claims(0, 0), None, "nobody claimed fresh memory");
    }
}
