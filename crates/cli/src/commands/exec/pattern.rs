//! Content of messages: windows into one sequence of bytes.
//!
//! A message of n bytes is n bytes of the sequence, from a multiple of eight on: its window. So a
//! rank needs no more memory for all that it sends than its longest message and some, and it can
//! compute any byte of any message. The eight bytes at which a window begins distinguish it from
//! all others: the first two are its number.

/// Bytes from one window to the next.
pub(super) const STEP: u64 = 8;
/// Windows that differ in their first two bytes.
pub(super) const WINDOWS: u64 = 255 * 256;

/// The eight bytes that begin window `index`. The first is never 0, so that memory where nothing
/// arrived is recognised.
fn word(index: u64) -> [u8; STEP as usize] {
    let mut bytes = mix(index).to_le_bytes();
    bytes[0] = (index % 255) as u8 + 1;
    bytes[1] = (index / 255) as u8;
    bytes
}

/// A mixing of 64 bits (the finaliser of SplitMix64, Steele et al. 2014).
pub(super) fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Writes the sequence from its beginning.
pub(super) fn fill(bytes: &mut [u8]) {
    for (index, chunk) in (0..).zip(bytes.chunks_mut(STEP as usize)) {
        chunk.copy_from_slice(&word(index)[..chunk.len()]);
    }
}

/// The first byte that is not that of the window: its position, and what it should be.
pub(super) fn first_difference(window: u64, found: &[u8]) -> Option<(usize, u8)> {
    for (index, chunk) in (0..).zip(found.chunks(STEP as usize)) {
        let expected = word(window + index);
        if chunk != &expected[..chunk.len()] {
            let at = chunk.iter().zip(expected).position(|(found, expected)| *found != expected)?;
            return Some((index as usize * STEP as usize + at, expected[at]));
        }
    }
    None
}

/// Modulus of the window number in a message's first bytes. Two bytes say all, one
/// byte less, none nothing.
pub(super) fn distinction(bytes: u64) -> u64 {
    match bytes {
        0 => 1,
        1 => 255,
        _ => WINDOWS,
    }
}

/// The window that bytes begin like, as far as [`distinction`] goes; `None` when no window does.
pub(super) fn window_of(found: &[u8]) -> Option<u64> {
    match found {
        [] => Some(0),
        [0, ..] => None,
        [first] => Some(u64::from(*first) - 1),
        // 255 and 256 have no common factor, so index mod 255 and ⌊index / 255⌋ name each index
        // below their product.
        [first, second, ..] => Some(u64::from(*second) * 255 + u64::from(*first) - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(index: u64, bytes: usize) -> Vec<u8> {
        let mut sequence = vec![0; (index * STEP) as usize + bytes];
        fill(&mut sequence);
        sequence.split_off((index * STEP) as usize)
    }

    #[test]
    fn a_window_is_found_again_from_its_first_bytes() {
        for index in (0..WINDOWS).step_by(97).chain([254, 255, 256, WINDOWS - 1]) {
            for bytes in [1, 2, 7, 8, 100] {
                let found = window_of(&window(index, bytes)).expect("it is one");
                assert_eq!(
                    found,
                    index % distinction(bytes as u64),
                    "{bytes} bytes of window {index}"
                );
            }
        }
        assert_eq!(window_of(&[0, 0, 0]), None, "nothing arrived");
    }

    #[test]
    fn every_changed_byte_is_found() {
        let original = window(300, 61);
        assert_eq!(first_difference(300, &original), None);
        for at in 0..original.len() {
            let mut changed = original.clone();
            changed[at] ^= 0x40;
            assert_eq!(first_difference(300, &changed), Some((at, original[at])));
        }
    }

    #[test]
    fn bytes_from_elsewhere_in_the_message_are_found() {
        let original = window(0, 1 << 20);
        for shift in [8, 64, 4096, WINDOWS as usize * STEP as usize] {
            let expected = &original[..64];
            let moved = &original[shift..shift + 64];
            assert_ne!(expected, moved, "a shift of {shift} bytes");
            assert!(first_difference(0, moved).is_some());
        }
    }
}
