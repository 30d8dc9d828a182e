//! Who gives out the places of a rank's arena.

use crate::layout::ARENA_BYTES;
use std::collections::BTreeMap;

/// Places begin at multiples of this: a cache line.
pub(crate) const ALIGNMENT: u32 = 64;

/// The free places, by where they begin. Offset 0 is never given out: to the program it means
/// "none".
#[derive(Debug)]
pub(crate) struct Arena {
    free: BTreeMap<u32, u32>,
}

impl Arena {
    pub(crate) fn new() -> Self {
        Arena { free: BTreeMap::from([(ALIGNMENT, ARENA_BYTES as u32 - ALIGNMENT)]) }
    }

    /// The first place that is large enough.
    pub(crate) fn take(&mut self, bytes: u32) -> Option<u32> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let (start, length) = self
            .free
            .iter()
            .map(|(start, length)| (*start, *length))
            .find(|(_, length)| *length >= bytes)?;
        self.free.remove(&start);
        if length > bytes {
            self.free.insert(start + bytes, length - bytes);
        }
        Some(start)
    }

    /// The last place that is large enough, if it is behind so many bytes.
    pub(crate) fn take_last(&mut self, bytes: u32, behind: u32) -> Option<u32> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let places = self.free.iter().map(|(start, length)| (*start, *length));
        let (start, length) = places.rev().find(|(_, length)| *length >= bytes)?;
        let place = start + length - bytes;
        if place < behind {
            return None;
        }
        self.free.remove(&start);
        if length > bytes {
            self.free.insert(start, length - bytes);
        }
        Some(place)
    }

    /// Takes back what [`take`](Self::take) and [`take_last`](Self::take_last) gave for the same
    /// number of bytes.
    pub(crate) fn give_back(&mut self, start: u32, bytes: u32) {
        let (mut start, mut length) = (start, bytes.max(1).next_multiple_of(ALIGNMENT));
        if let Some((before, before_length)) =
            self.free.range(..start).next_back().map(|(place, length)| (*place, *length))
            && before + before_length == start
        {
            self.free.remove(&before);
            (start, length) = (before, before_length + length);
        }
        if let Some(after) = self.free.remove(&(start + length)) {
            length += after;
        }
        self.free.insert(start, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Places are whole, apart from each other, and all come back.
        #[test]
        fn places_are_apart(sizes in prop::collection::vec((1u32..200_000, any::<bool>()), 1..100)) {
            let mut arena = Arena::new();
            let mut taken: Vec<(u32, u32)> = Vec::new();
            for (bytes, keep) in sizes {
                let place = if bytes % 2 == 0 { arena.take(bytes) } else { arena.take_last(bytes, 1 << 20) };
                if let Some(place) = place {
                    prop_assert!(bytes % 2 == 0 || place >= 1 << 20);
                    prop_assert!(place >= ALIGNMENT && place % ALIGNMENT == 0 && (place + bytes) as usize <= ARENA_BYTES);
                    prop_assert!(taken.iter().all(|(other, length)| place + bytes <= *other || other + length <= place));
                    taken.push((place, bytes));
                }
                if !keep && !taken.is_empty() {
                    let (place, bytes) = taken.swap_remove(bytes as usize % taken.len());
                    arena.give_back(place, bytes);
                }
            }
            for (place, bytes) in taken {
                arena.give_back(place, bytes);
            }
            prop_assert_eq!(arena.free, Arena::new().free);
        }
    }
}
