//! What a channel carries: numbers of 32 or 64 bits, whole or real, and whole cache lines.

/// A type that a channel can carry, over the full range of its values: `u32`, `u64`, `f32`, `f64` (bit for bit, every NaN
/// too), and whole cache lines as `[u64; 8]`, `[f64; 8]` or `[u8; 64]`.
pub trait Value: sealed::Wire + Copy + Send + 'static {}

pub(crate) mod sealed {
    use crate::channel::ring::{Consumer, Nothing, Producer, Refused, Words};

    /// How a value stands in a slot.
    pub trait Wire: Sized {
        /// Words a slot.
        const WORDS: u64;
        /// Says in shared memory what the channel carries. Never 0.
        const KIND: u32;
        /// The type's name.
        const NAME: &'static str;

        #[doc(hidden)]
        fn offer(self, producer: &mut Producer, words: Words<'_>) -> Result<(), Refused>;

        #[doc(hidden)]
        fn take(consumer: &mut Consumer, words: Words<'_>) -> Result<Self, Nothing>;
    }
}

use super::ring::{Consumer, Nothing, Producer, Refused, Words};

macro_rules! values {
    ($($type:ty, $kind:literal, $lead:literal: $value:ident => $split:expr, $parts:ident => $join:expr;)+) => {$(
        impl sealed::Wire for $type {
            const WORDS: u64 = $lead + 1;
            const KIND: u32 = $kind;
            const NAME: &'static str = stringify!($type);

            #[inline(always)]
            fn offer(self, producer: &mut Producer, words: Words<'_>) -> Result<(), Refused> {
                let $value = self;
                let (lead, tell): ([u64; $lead], u64) = $split;
                producer.offer(words, lead, tell)
            }

            #[inline(always)]
            fn take(consumer: &mut Consumer, words: Words<'_>) -> Result<Self, Nothing> {
                let $parts: ([u64; $lead], u64) = consumer.take(words)?;
                Ok($join)
            }
        }

        impl Value for $type {}
    )+};
}

values! {
    u32, 1, 0: value => ([], u64::from(value)), parts => parts.1 as u32;
    u64, 2, 0: value => ([], value), parts => parts.1;
    f32, 3, 0: value => ([], u64::from(value.to_bits())), parts => f32::from_bits(parts.1 as u32);
    f64, 4, 0: value => ([], value.to_bits()), parts => f64::from_bits(parts.1);
    [u64; 8], 5, 7: value => split(value), parts => join(parts);
    [f64; 8], 6, 7: value => split(value.map(f64::to_bits)), parts => join(parts).map(f64::from_bits);
    [u8; 64], 7, 7: value => split(words_of(value)), parts => bytes_of(join(parts));
}

#[inline(always)]
fn split([a, b, c, d, e, f, g, tell]: [u64; 8]) -> ([u64; 7], u64) {
    ([a, b, c, d, e, f, g], tell)
}

#[inline(always)]
fn join(([a, b, c, d, e, f, g], tell): ([u64; 7], u64)) -> [u64; 8] {
    [a, b, c, d, e, f, g, tell]
}

#[inline(always)]
fn words_of(bytes: [u8; 64]) -> [u64; 8] {
    let (words, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|index| u64::from_ne_bytes(words[index]))
}

#[inline(always)]
fn bytes_of(words: [u64; 8]) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *place = word.to_ne_bytes();
    }
    bytes
}
