//! Intermediate state of a MAC: the bytes that all packets of a stream share are hashed once.

use super::packet::Key;
use bytemuck::{Pod, Zeroable};

/// State of SipHash-2-4 (Aumasson, Bernstein, 2012) after some whole words: `struct siphash` of the
/// program, which continues from it.
///
/// The state authenticates every packet with these first bytes, so it is as secret as the key.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct State([u64; 4]);

/// Secrets do not go into logs.
impl std::fmt::Debug for State {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("State(…)")
    }
}

impl State {
    /// Returns the state after these bytes. Trailing bytes that fill no word are left out.
    pub(super) fn after(key: &Key, bytes: &[u8]) -> Self {
        let Key([key0, key1]) = *key;
        let mut state = State([
            key0 ^ 0x736f_6d65_7073_6575,
            key1 ^ 0x646f_7261_6e64_6f6d,
            key0 ^ 0x6c79_6765_6e65_7261,
            key1 ^ 0x7465_6462_7974_6573,
        ]);
        for word in bytes.as_chunks().0 {
            state.take(u64::from_le_bytes(*word));
        }
        state
    }

    /// Compresses one word: two rounds, the "2" in SipHash-2-4.
    fn take(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    fn round(&mut self) {
        let [v0, v1, v2, v3] = &mut self.0;
        *v0 = v0.wrapping_add(*v1);
        *v2 = v2.wrapping_add(*v3);
        *v1 = v1.rotate_left(13) ^ *v0;
        *v3 = v3.rotate_left(16) ^ *v2;
        *v0 = v0.rotate_left(32).wrapping_add(*v3);
        *v2 = v2.wrapping_add(*v1);
        *v1 = v1.rotate_left(17) ^ *v2;
        *v3 = v3.rotate_left(21) ^ *v0;
        *v2 = v2.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use siphasher::sip::SipHasher24;
    use std::hash::Hasher;

    proptest! {
        #[test]
        fn a_continued_hash_gives_the_mac(words in proptest::collection::vec(any::<u64>(), 0..20), key in any::<[u64; 2]>()) {
            let bytes: &[u8] = bytemuck::cast_slice(&words);
            let mut state = State::after(&Key(key), bytes);
            state.take((bytes.len() as u64) << 56);
            state.0[2] ^= 0xff;
            (0..4).for_each(|_| state.round());
            let mut reference = SipHasher24::new_with_keys(key[0], key[1]);
            reference.write(bytes);
            prop_assert_eq!(state.0.into_iter().fold(0, |mac, word| mac ^ word), reference.finish());
        }
    }
}
