//! Types of values that a channel carries: integers and floating-point numbers of 32 or 64 bits,
//! and whole cache lines.

use super::ring::{Consumer, Next, Producer, PutError, RingWords, TakeError};

/// A type that a channel can carry, over the full range of its values: `u32`, `u64`, `f32`, `f64`
/// (bit for bit, every NaN too), and whole cache lines as `[u64; 8]`, `[f64; 8]` or `[u8; 64]`.
pub trait Value: sealed::Wire + Copy + Send + 'static {}

mod sealed {
    /// Representation of a value in a slot.
    pub trait Wire: Sized {
        /// Words per slot: 1 or 8.
        const WORDS: u64;
        /// Code of the type in shared memory. Never 0.
        const KIND: u8;
        /// Name of the type.
        const NAME: &'static str;

        /// Returns the value's words; a value of one word is the last of them.
        fn into_words(self) -> [u64; 8];

        /// Returns the value of these words.
        fn from_words(words: [u64; 8]) -> Self;
    }
}

macro_rules! values {
    ($($type:ty, $kind:literal, $words:literal: $value:ident => $into:expr, $all:ident => $from:expr;)+) => {$(
        impl sealed::Wire for $type {
            const WORDS: u64 = $words;
            const KIND: u8 = $kind;
            const NAME: &'static str = stringify!($type);

            #[inline(always)]
            fn into_words(self) -> [u64; 8] {
                let $value = self;
                $into
            }

            #[inline(always)]
            fn from_words($all: [u64; 8]) -> Self {
                $from
            }
        }

        impl Value for $type {}
    )+

        /// Returns the number of words of a value of the type with this code in shared memory;
        /// `None` if there is none.
        pub(super) fn words_of_kind(kind: u32) -> Option<u64> {
            match kind {
                $($kind => Some($words),)+
                _ => None,
            }
        }
    };
}

values! {
    u32, 1, 1: value => single(u64::from(value)), all => all[7] as u32;
    u64, 2, 1: value => single(value), all => all[7];
    f32, 3, 1: value => single(u64::from(value.to_bits())), all => f32::from_bits(all[7] as u32);
    f64, 4, 1: value => single(value.to_bits()), all => f64::from_bits(all[7]);
    [u64; 8], 5, 8: value => value, all => all;
    [f64; 8], 6, 8: value => value.map(f64::to_bits), all => all.map(f64::from_bits);
    [u8; 64], 7, 8: value => words_of(value), all => bytes_of(all);
}

/// Puts a value into the ring.
#[inline(always)]
pub(super) fn put<T: Value>(
    value: T,
    producer: &mut Producer,
    words: RingWords<'_>,
) -> Result<(), PutError> {
    let [a, b, c, d, e, f, g, last] = value.into_words();
    if T::WORDS == 1 {
        producer.put(words, [], last)
    } else {
        producer.put(words, [a, b, c, d, e, f, g], last)
    }
}

/// Takes a value out of the ring.
#[inline(always)]
pub(super) fn take<T: Value>(
    consumer: &mut Consumer,
    words: RingWords<'_>,
) -> Result<T, TakeError> {
    if T::WORDS == 1 {
        let ([], last) = consumer.take(words)?;
        Ok(T::from_words(single(last)))
    } else {
        let ([a, b, c, d, e, f, g], last) = consumer.take(words)?;
        Ok(T::from_words([a, b, c, d, e, f, g, last]))
    }
}

/// Returns the words that the next value of this type changes.
#[inline(always)]
pub(super) fn next<'a, T: Value>(consumer: &Consumer, words: RingWords<'a>) -> Next<'a> {
    if T::WORDS == 1 { consumer.next::<0>(words) } else { consumer.next::<7>(words) }
}

#[inline(always)]
fn single(word: u64) -> [u64; 8] {
    [0, 0, 0, 0, 0, 0, 0, word]
}

#[inline(always)]
fn words_of(bytes: [u8; 64]) -> [u64; 8] {
    let (words, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|index| u64::from_ne_bytes(words[index]))
}

#[inline(always)]
fn bytes_of(words: [u64; 8]) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (chunk, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *chunk = word.to_ne_bytes();
    }
    bytes
}
