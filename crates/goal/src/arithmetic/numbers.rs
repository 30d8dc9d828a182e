//! The operations on one element of each type. None of them panics.

use super::data_type::{F32At, F64At, I32At, I64At};
use num_complex::Complex;

/// A type of `N` bytes in memory.
pub(super) trait Stored<const N: usize>: Copy {
    fn from_memory(bytes: [u8; N]) -> Self;
    fn to_memory(self) -> [u8; N];
}

/// A type with sums, differences and products.
pub(super) trait Number<const N: usize>: Stored<N> {
    fn add(self, right: Self) -> Self;
    fn subtract(self, right: Self) -> Self;
    fn multiply(self, right: Self) -> Self;
}

/// A type with an order.
pub(super) trait Ordered<const N: usize>: Stored<N> {
    fn minimum(self, right: Self) -> Self;
    fn maximum(self, right: Self) -> Self;
}

/// A floating-point number.
pub(super) trait Float<const N: usize>: Number<N> + Ordered<N> {
    fn divide(self, right: Self) -> Self;
}

/// An integer.
pub(super) trait Integer<const N: usize>: Number<N> + Ordered<N> {
    /// Zero when divided by zero.
    fn divide(self, right: Self) -> Self;
    fn and(self, right: Self) -> Self;
    fn or(self, right: Self) -> Self;
    fn xor(self, right: Self) -> Self;
}

macro_rules! integers {
    ($($integer:ty),+) => {$(
        impl Stored<{ size_of::<$integer>() }> for $integer {
            #[inline(always)]
            fn from_memory(bytes: [u8; size_of::<$integer>()]) -> Self {
                Self::from_le_bytes(bytes)
            }

            #[inline(always)]
            fn to_memory(self) -> [u8; size_of::<$integer>()] {
                self.to_le_bytes()
            }
        }

        impl Number<{ size_of::<$integer>() }> for $integer {
            #[inline(always)]
            fn add(self, right: Self) -> Self {
                self.wrapping_add(right)
            }

            #[inline(always)]
            fn subtract(self, right: Self) -> Self {
                self.wrapping_sub(right)
            }

            #[inline(always)]
            fn multiply(self, right: Self) -> Self {
                self.wrapping_mul(right)
            }
        }

        impl Ordered<{ size_of::<$integer>() }> for $integer {
            #[inline(always)]
            fn minimum(self, right: Self) -> Self {
                self.min(right)
            }

            #[inline(always)]
            fn maximum(self, right: Self) -> Self {
                self.max(right)
            }
        }

        impl Integer<{ size_of::<$integer>() }> for $integer {
            #[inline(always)]
            fn divide(self, right: Self) -> Self {
                if right == 0 { 0 } else { self.wrapping_div(right) }
            }

            #[inline(always)]
            fn and(self, right: Self) -> Self {
                self & right
            }

            #[inline(always)]
            fn or(self, right: Self) -> Self {
                self | right
            }

            #[inline(always)]
            fn xor(self, right: Self) -> Self {
                self ^ right
            }
        }
    )+};
}

integers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128);

/// The operators of the language, for the types with these.
macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl Number<{ size_of::<$number>() }> for $number {
            #[inline(always)]
            fn add(self, right: Self) -> Self {
                self + right
            }

            #[inline(always)]
            fn subtract(self, right: Self) -> Self {
                self - right
            }

            #[inline(always)]
            fn multiply(self, right: Self) -> Self {
                self * right
            }
        }
    )+};
}

numbers!(f32, f64, Complex<f32>, Complex<f64>);

macro_rules! floats {
    ($($float:ident with canonical NaN $canonical:literal),+) => {$(
        impl Stored<{ size_of::<$float>() }> for $float {
            #[inline(always)]
            fn from_memory(bytes: [u8; size_of::<$float>()]) -> Self {
                Self::from_le_bytes(bytes)
            }

            /// Makes every NaN the canonical one.
            #[inline(always)]
            fn to_memory(self) -> [u8; size_of::<$float>()] {
                // Chosen among bit patterns, since arithmetic may change which NaN a number is.
                let bits = if self.is_nan() { $canonical } else { self.to_bits() };
                bits.to_le_bytes()
            }
        }

        impl Ordered<{ size_of::<$float>() }> for $float {
            #[inline(always)]
            fn minimum(self, right: Self) -> Self {
                // Two selections and a disjunction cost less than branches. The selections differ
                // in two cases only: −0 and +0 have the disjunction −0, and beside a NaN
                // any disjunction is a NaN.
                let one = if self < right { self } else { right };
                let other = if right < self { right } else { self };
                Self::from_bits(one.to_bits() | other.to_bits())
            }

            #[inline(always)]
            fn maximum(self, right: Self) -> Self {
                // As in `minimum`: the conjunction of −0 and +0 is +0. That of a NaN and a number
                // may be a number, though.
                let one = if self > right { self } else { right };
                let other = if right > self { right } else { self };
                let greater = Self::from_bits(one.to_bits() & other.to_bits());
                if self.is_nan() | right.is_nan() { Self::NAN } else { greater }
            }
        }

        impl Float<{ size_of::<$float>() }> for $float {
            #[inline(always)]
            fn divide(self, right: Self) -> Self {
                self / right
            }
        }
    )+};
}

floats!(f32 with canonical NaN 0x7fc0_0000, f64 with canonical NaN 0x7ff8_0000_0000_0000);

/// Defines a floating-point number of 16 bits, computed as an `f32` and rounded to memory. An `f32`
/// has at least twice its precision and two bits, so rounding twice is rounding once (Figueroa
/// 1995). `bf16` has the exponents of `f32`; its subnormal results are exact as `f32` or farther from a
/// tie than the error of an `f32`.
macro_rules! short_floats {
    ($($(#[$note:meta])* $name:ident: $stored:ty, canonical NaN $canonical:literal;)+) => {$(
        $(#[$note])*
        #[derive(Clone, Copy)]
        pub(super) struct $name(f32);

        impl Stored<2> for $name {
            #[inline(always)]
            fn from_memory(bytes: [u8; 2]) -> Self {
                $name(<$stored>::from_le_bytes(bytes).to_f32())
            }

            #[inline(always)]
            fn to_memory(self) -> [u8; 2] {
                let bits = <$stored>::from_f32(self.0).to_bits();
                let bits: u16 = if self.0.is_nan() { $canonical } else { bits };
                bits.to_le_bytes()
            }
        }

        impl Number<2> for $name {
            #[inline(always)]
            fn add(self, right: Self) -> Self {
                $name(self.0 + right.0)
            }

            #[inline(always)]
            fn subtract(self, right: Self) -> Self {
                $name(self.0 - right.0)
            }

            #[inline(always)]
            fn multiply(self, right: Self) -> Self {
                $name(self.0 * right.0)
            }
        }

        impl Ordered<2> for $name {
            #[inline(always)]
            fn minimum(self, right: Self) -> Self {
                $name(Ordered::minimum(self.0, right.0))
            }

            #[inline(always)]
            fn maximum(self, right: Self) -> Self {
                $name(Ordered::maximum(self.0, right.0))
            }
        }

        impl Float<2> for $name {
            #[inline(always)]
            fn divide(self, right: Self) -> Self {
                $name(self.0 / right.0)
            }
        }
    )+};
}

short_floats! {
    /// IEEE 754 binary16.
    Half: half::f16, canonical NaN 0x7e00;
    /// bfloat16: the upper half of an `f32`.
    BFloat: half::bf16, canonical NaN 0x7fc0;
}

macro_rules! complex {
    ($($float:ident),+) => {$(
        impl Stored<{ 2 * size_of::<$float>() }> for Complex<$float> {
            #[inline(always)]
            fn from_memory(bytes: [u8; 2 * size_of::<$float>()]) -> Self {
                let (re, im) = halves(bytes);
                Complex { re: Stored::from_memory(re), im: Stored::from_memory(im) }
            }

            #[inline(always)]
            fn to_memory(self) -> [u8; 2 * size_of::<$float>()] {
                joined(self.re.to_memory(), self.im.to_memory())
            }
        }
    )+};
}

complex!(f32, f64);

/// Splits the bytes of a pair.
#[inline(always)]
fn halves<const N: usize, const HALF: usize>(bytes: [u8; N]) -> ([u8; HALF], [u8; HALF]) {
    const { assert!(N == 2 * HALF) };
    let half = |from: usize| std::array::from_fn(|at| bytes[from + at]);
    (half(0), half(HALF))
}

/// Joins the bytes of a pair.
#[inline(always)]
fn joined<const N: usize, const HALF: usize>(first: [u8; HALF], second: [u8; HALF]) -> [u8; N] {
    const { assert!(N == 2 * HALF) };
    std::array::from_fn(|at| if at < HALF { first[at] } else { second[at - HALF] })
}

macro_rules! located {
    ($($located:ident: $value:ty),+) => {$(
        impl Stored<{ size_of::<$located>() }> for $located {
            #[inline(always)]
            fn from_memory(bytes: [u8; size_of::<$located>()]) -> Self {
                let (value, index) = halves(bytes);
                $located { value: Stored::from_memory(value), index: Stored::from_memory(index) }
            }

            #[inline(always)]
            fn to_memory(self) -> [u8; size_of::<$located>()] {
                joined(self.value.to_memory(), self.index.to_memory())
            }
        }

        impl $located {
            /// The extreme value with its index; `value` is the extreme of the two.
            #[inline(always)]
            fn found(self, right: Self, value: $value) -> Self {
                // As stored, so that all NaNs are the same, and zeros of different signs are not.
                let is_there = |one: Self| one.value.to_memory() == value.to_memory();
                let index = match (is_there(self), is_there(right)) {
                    (true, true) => self.index.min(right.index),
                    (true, false) => self.index,
                    _ => right.index,
                };
                $located { value, index }
            }
        }

        impl Ordered<{ size_of::<$located>() }> for $located {
            #[inline(always)]
            fn minimum(self, right: Self) -> Self {
                self.found(right, Ordered::minimum(self.value, right.value))
            }

            #[inline(always)]
            fn maximum(self, right: Self) -> Self {
                self.found(right, Ordered::maximum(self.value, right.value))
            }
        }
    )+};
}

located!(I32At: i32, I64At: i64, F32At: f32, F64At: f64);
