//! The first two words of a line: the stamp, which says whose the line is, and the header of the message in it.

use crate::name::SourceName;

/// What a line's stamp says, with the lap that it says it of. In memory: the lap in the upper 48 bits, then 14 bits of source
/// name, then two bits of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing was published or voided in this lap.
    Empty,
    /// It holds the message of this lap.
    Full,
    /// It holds none in this lap, because it is away in the hands of a sender; of this one, if that is known.
    Void(Option<SourceName>),
}

const LAP_SHIFT: u32 = 16;
const LAP: u64 = u64::MAX >> LAP_SHIFT;
const SOURCE_SHIFT: u32 = 2;

/// The stamp of a line in this state of this lap.
#[inline]
pub(crate) const fn stamp(lap: u64, state: State) -> u64 {
    let low = match state {
        State::Empty => 0,
        State::Full => 1,
        State::Void(None) => 2,
        State::Void(Some(source)) => (source.number() as u64) << SOURCE_SHIFT | 3,
    };
    lap << LAP_SHIFT | low
}

/// The state in a stamp. Every word is some stamp.
#[inline]
pub(crate) const fn state(stamp: u64) -> State {
    match stamp & 3 {
        0 => State::Empty,
        1 => State::Full,
        2 => State::Void(None),
        _ => State::Void(Some(SourceName::from_bits(stamp >> SOURCE_SHIFT))),
    }
}

/// The lap in a stamp.
#[inline]
pub(crate) const fn lap_of(stamp: u64) -> u64 {
    stamp >> LAP_SHIFT
}

/// Whether the lap in a stamp comes before `lap` (both modulo 2^48).
#[inline]
pub(crate) const fn is_before(stamp: u64, lap: u64) -> bool {
    let behind = lap.wrapping_sub(lap_of(stamp)) & LAP;
    behind != 0 && behind <= LAP / 2
}

/// Whether the lap in a stamp is `lap` (modulo 2^48).
#[inline]
pub(crate) const fn is_in(stamp: u64, lap: u64) -> bool {
    lap_of(stamp) == lap & LAP
}

/// What travels with the data of a line. In memory: length in bits 0 to 5, handler in 6 to 13, source in 14 to 27, tag in 28 to
/// 43, the low bits of the lap in 44 to 62, which tell a claim of this lap from what an earlier one left behind, and a 1 in
/// 63, which tells it from fresh memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineHeader {
    /// Who sends it.
    pub source: SourceName,
    /// Which handler is to run.
    pub handler: u8,
    /// Sixteen bits for whatever the two ends agree on.
    pub tag: u16,
}

const HEADER_LAP_SHIFT: u32 = 44;
const HEADER_LAP: u64 = (1 << 19) - 1;
const WRITTEN: u64 = 1 << 63;

impl LineHeader {
    /// The header's word for a message of `length` bytes (at most 63) in `lap`.
    #[inline]
    pub(crate) const fn pack(self, length: usize, lap: u64) -> u64 {
        (length as u64 & 63)
            | (self.handler as u64) << 6
            | (self.source.number() as u64) << 14
            | (self.tag as u64) << 28
            | (lap & HEADER_LAP) << HEADER_LAP_SHIFT
            | WRITTEN
    }

    /// The header in a word and the length, which may be anything below 64.
    #[inline]
    pub(crate) const fn unpack(word: u64) -> (LineHeader, usize) {
        let source = SourceName::from_bits(word >> 14);
        (LineHeader { source, handler: (word >> 6) as u8, tag: (word >> 28) as u16 }, word as usize & 63)
    }

    /// Who claimed the line in `lap`, if its header was written in that lap.
    #[inline]
    pub(crate) const fn claimant(word: u64, lap: u64) -> Option<SourceName> {
        if word & WRITTEN != 0 && word >> HEADER_LAP_SHIFT & HEADER_LAP == lap & HEADER_LAP {
            Some(SourceName::from_bits(word >> 14))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u16) -> SourceName {
        SourceName::new(number).expect("14 bits")
    }

    #[test]
    fn a_stamp_keeps_its_lap_and_state() {
        for lap in [0, 1, 77, LAP] {
            for of in [State::Empty, State::Full, State::Void(None), State::Void(Some(source(0x3fff)))] {
                let word = stamp(lap, of);
                assert_eq!((state(word), lap_of(word)), (of, lap));
                assert!(is_in(word, lap) && !is_before(word, lap) && is_before(word, lap.wrapping_add(1)));
            }
        }
        assert_eq!(stamp(0, State::Empty), 0, "zeroed memory is an empty ring");
    }

    #[test]
    fn a_header_keeps_its_fields_and_names_the_claimant_of_its_own_lap_only() {
        for number in [0, 0x2aaa, 0x3fff] {
            for (handler, tag, length) in [(0, 0, 0), (0xff, 0xffff, 48), (3, 9, 1)] {
                let header = LineHeader { source: source(number), handler, tag };
                for lap in [0, 1, HEADER_LAP, HEADER_LAP + 1] {
                    let word = header.pack(length, lap);
                    assert_eq!(LineHeader::unpack(word), (header, length));
                    assert_eq!(LineHeader::claimant(word, lap), Some(header.source));
                    assert_eq!(LineHeader::claimant(word, lap + 1), None);
                }
            }
        }
        assert_eq!(LineHeader::claimant(0, 0), None, "nobody claimed fresh memory");
    }
}
