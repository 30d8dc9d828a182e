//! The loops behind the local operations: each operation is written once, each arrangement of the
//! blocks is one loop.
//!
//! A kernel is the product of a [`Number`], one of its operations and an arrangement of [`Blocks`].
//! All three are chosen before the loop starts, so that the compiler sees a loop without branches
//! and vectorises it.

use super::data_type::DataType;
use super::error::ArithmeticError;
use super::operation::Arithmetic;

/// Computes an operation over blocks that are known to be equally long and to hold whole elements.
pub(super) fn run<B: Blocks>(
    operation: Arithmetic,
    data_type: DataType,
    blocks: B,
) -> Result<(), ArithmeticError> {
    match data_type {
        DataType::U8 => integers::<u8, 1>(operation, blocks),
        DataType::U16 => integers::<u16, 2>(operation, blocks),
        DataType::U32 => integers::<u32, 4>(operation, blocks),
        DataType::U64 => integers::<u64, 8>(operation, blocks),
        DataType::I8 => integers::<i8, 1>(operation, blocks),
        DataType::I16 => integers::<i16, 2>(operation, blocks),
        DataType::I32 => integers::<i32, 4>(operation, blocks),
        DataType::I64 => integers::<i64, 8>(operation, blocks),
        DataType::F32 => floats::<f32, 4>(operation, data_type, blocks),
        DataType::F64 => floats::<f64, 8>(operation, data_type, blocks),
        DataType::Bit if operation.is_bitwise() => integers::<u8, 1>(operation, blocks),
        DataType::Bit => Err(ArithmeticError::NotApplicable { operation, data_type }),
    }
}

fn integers<T: Integer<N>, const N: usize>(
    operation: Arithmetic,
    blocks: impl Blocks,
) -> Result<(), ArithmeticError> {
    match operation {
        Arithmetic::Add => blocks.combine(T::add),
        Arithmetic::Subtract => blocks.combine(T::subtract),
        Arithmetic::Multiply => blocks.combine(T::multiply),
        Arithmetic::Divide => {
            // Looked for beforehand, because the divisors may lie in the block that is about to be
            // overwritten.
            let first_zero = first_zero(blocks.right().as_chunks::<N>().0);
            blocks.combine(T::divide);
            if let Some(element) = first_zero {
                return Err(ArithmeticError::DivisionByZero { element });
            }
        }
        Arithmetic::Minimum => blocks.combine(T::minimum),
        Arithmetic::Maximum => blocks.combine(T::maximum),
        Arithmetic::And => blocks.combine(T::and),
        Arithmetic::Or => blocks.combine(T::or),
        Arithmetic::Xor => blocks.combine(T::xor),
    }
    Ok(())
}

fn floats<T: Number<N>, const N: usize>(
    operation: Arithmetic,
    data_type: DataType,
    blocks: impl Blocks,
) -> Result<(), ArithmeticError> {
    match operation {
        Arithmetic::Add => blocks.combine(T::add),
        Arithmetic::Subtract => blocks.combine(T::subtract),
        Arithmetic::Multiply => blocks.combine(T::multiply),
        Arithmetic::Divide => blocks.combine(T::divide),
        Arithmetic::Minimum => blocks.combine(T::minimum),
        Arithmetic::Maximum => blocks.combine(T::maximum),
        Arithmetic::And | Arithmetic::Or | Arithmetic::Xor => {
            return Err(ArithmeticError::NotApplicable { operation, data_type });
        }
    }
    Ok(())
}

/// Returns the index of the first integer with all bytes zero.
fn first_zero<const N: usize>(integers: &[[u8; N]]) -> Option<usize> {
    integers.iter().position(|integer| *integer == [0; N])
}

/// The blocks of one local operation, by the operands that coincide.
pub(super) trait Blocks {
    /// The block of right operands.
    fn right(&self) -> &[u8];

    /// Replaces every element of the destination by what `rule` makes of the left and the right
    /// one.
    fn combine<T: Number<N>, const N: usize>(self, rule: impl Fn(T, T) -> T);
}

/// Three blocks, none of which overlap.
pub(super) struct ThreeAddress<'a> {
    pub(super) left: &'a [u8],
    pub(super) right: &'a [u8],
    pub(super) destination: &'a mut [u8],
}

/// The destination is the left operand.
pub(super) struct InPlaceLeft<'a> {
    pub(super) accumulator: &'a mut [u8],
    pub(super) right: &'a [u8],
}

/// The destination is the right operand.
pub(super) struct InPlaceRight<'a> {
    pub(super) left: &'a [u8],
    pub(super) accumulator: &'a mut [u8],
}

impl Blocks for ThreeAddress<'_> {
    fn right(&self) -> &[u8] {
        self.right
    }

    fn combine<T: Number<N>, const N: usize>(self, rule: impl Fn(T, T) -> T) {
        let ThreeAddress { left, right, destination } = self;
        let bytes = destination.len();
        widest(bytes, || {
            three_address(
                left.as_chunks().0,
                right.as_chunks().0,
                destination.as_chunks_mut().0,
                rule,
            );
        });
    }
}

impl Blocks for InPlaceLeft<'_> {
    fn right(&self) -> &[u8] {
        self.right
    }

    fn combine<T: Number<N>, const N: usize>(self, rule: impl Fn(T, T) -> T) {
        let InPlaceLeft { accumulator, right } = self;
        let bytes = accumulator.len();
        widest(bytes, || in_place(accumulator.as_chunks_mut().0, right.as_chunks().0, rule));
    }
}

impl Blocks for InPlaceRight<'_> {
    fn right(&self) -> &[u8] {
        self.accumulator
    }

    fn combine<T: Number<N>, const N: usize>(self, rule: impl Fn(T, T) -> T) {
        let InPlaceRight { left, accumulator } = self;
        let bytes = accumulator.len();
        let turned = |right, left| rule(left, right);
        widest(bytes, || in_place(accumulator.as_chunks_mut().0, left.as_chunks().0, turned));
    }
}

/// Runs a loop over so many bytes in the widest vectors that this processor has. They round as
/// scalars do, and nothing is fused, so that the result is the same.
#[inline(always)]
#[expect(
    clippy::redundant_closure,
    reason = "the closure is what carries the attribute that has it compiled for the vectors"
)]
fn widest(bytes: usize, body: impl FnOnce()) {
    /// From here on the call that this takes does not count.
    const WORTHWHILE: usize = 256;
    if bytes < WORTHWHILE {
        return body();
    }
    pulp::Arch::new().dispatch(
        #[inline(always)]
        || body(),
    );
}

// The two loops take their blocks as parameters, not as the fields of a structure, because the
// compiler can assume only for parameters that the destination overlaps no operand.

#[inline(always)]
fn three_address<T: Number<N>, const N: usize>(
    left: &[[u8; N]],
    right: &[[u8; N]],
    destination: &mut [[u8; N]],
    rule: impl Fn(T, T) -> T,
) {
    for ((destination, left), right) in destination.iter_mut().zip(left).zip(right) {
        *destination = rule(T::from_memory(*left), T::from_memory(*right)).to_memory();
    }
}

#[inline(always)]
fn in_place<T: Number<N>, const N: usize>(
    accumulator: &mut [[u8; N]],
    operand: &[[u8; N]],
    rule: impl Fn(T, T) -> T,
) {
    for (accumulator, operand) in accumulator.iter_mut().zip(operand) {
        *accumulator = rule(T::from_memory(*accumulator), T::from_memory(*operand)).to_memory();
    }
}

/// A type of `N` bytes with the operations that all data types have. None of them panics.
pub(super) trait Number<const N: usize>: Copy {
    fn from_memory(bytes: [u8; N]) -> Self;
    fn to_memory(self) -> [u8; N];
    fn add(self, right: Self) -> Self;
    fn subtract(self, right: Self) -> Self;
    fn multiply(self, right: Self) -> Self;
    fn divide(self, right: Self) -> Self;
    fn minimum(self, right: Self) -> Self;
    fn maximum(self, right: Self) -> Self;
}

/// A [`Number`] with the bitwise operations.
trait Integer<const N: usize>: Number<N> {
    fn and(self, right: Self) -> Self;
    fn or(self, right: Self) -> Self;
    fn xor(self, right: Self) -> Self;
}

macro_rules! integers {
    ($($integer:ty),+) => {$(
        impl Number<{ size_of::<$integer>() }> for $integer {
            #[inline(always)]
            fn from_memory(bytes: [u8; size_of::<$integer>()]) -> Self {
                Self::from_le_bytes(bytes)
            }

            #[inline(always)]
            fn to_memory(self) -> [u8; size_of::<$integer>()] {
                self.to_le_bytes()
            }

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

            /// Zero when divided by zero.
            #[inline(always)]
            fn divide(self, right: Self) -> Self {
                if right == 0 { 0 } else { self.wrapping_div(right) }
            }

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

integers!(u8, u16, u32, u64, i8, i16, i32, i64);

macro_rules! floats {
    ($($float:ident with canonical NaN $canonical:literal),+) => {$(
        impl Number<{ size_of::<$float>() }> for $float {
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

            #[inline(always)]
            fn divide(self, right: Self) -> Self {
                self / right
            }

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
    )+};
}

floats!(f32 with canonical NaN 0x7fc0_0000, f64 with canonical NaN 0x7ff8_0000_0000_0000);
