//! The loops behind the local operations: each operation is written once, each arrangement of the
//! blocks is one loop.
//!
//! A kernel is the product of a type of [`numbers`](super::numbers), one of its operations and an
//! arrangement of [`Blocks`]. All three are chosen before the loop starts, so that the compiler sees
//! a loop without branches and vectorises it. Loops over IEEE numbers of 16 bits remain scalar: each conversion is a call.

use super::data_type::{DataType, F32At, F64At, I32At, I64At};
use super::error::ArithmeticError;
use super::numbers::{BFloat, Float, Half, Integer, Number, Ordered, Stored};
use super::operation::Arithmetic;
use num_complex::Complex;

/// Computes an operation over blocks that are known to be equally long and to hold whole elements.
pub(super) fn run<B: Blocks>(
    operation: Arithmetic,
    data_type: DataType,
    blocks: B,
) -> Result<(), ArithmeticError> {
    if !operation.applies_to(data_type) {
        return Err(ArithmeticError::NotApplicable { operation, data_type });
    }
    match data_type {
        DataType::U8 | DataType::Bit => return integers::<u8, 1>(operation, blocks),
        DataType::U16 => return integers::<u16, 2>(operation, blocks),
        DataType::U32 => return integers::<u32, 4>(operation, blocks),
        DataType::U64 => return integers::<u64, 8>(operation, blocks),
        DataType::U128 => return integers::<u128, 16>(operation, blocks),
        DataType::I8 => return integers::<i8, 1>(operation, blocks),
        DataType::I16 => return integers::<i16, 2>(operation, blocks),
        DataType::I32 => return integers::<i32, 4>(operation, blocks),
        DataType::I64 => return integers::<i64, 8>(operation, blocks),
        DataType::I128 => return integers::<i128, 16>(operation, blocks),
        DataType::F16 => floats::<Half, 2>(operation, blocks),
        DataType::Bf16 => floats::<BFloat, 2>(operation, blocks),
        DataType::F32 => floats::<f32, 4>(operation, blocks),
        DataType::F64 => floats::<f64, 8>(operation, blocks),
        DataType::ComplexF32 => numbers::<Complex<f32>, 8>(operation, blocks),
        DataType::ComplexF64 => numbers::<Complex<f64>, 16>(operation, blocks),
        DataType::I32At => ordered::<I32At, 8>(operation, blocks),
        DataType::I64At => ordered::<I64At, 16>(operation, blocks),
        DataType::F32At => ordered::<F32At, 8>(operation, blocks),
        DataType::F64At => ordered::<F64At, 16>(operation, blocks),
    }
    Ok(())
}

// In the following functions the operation is one that applies to the type.

fn integers<T: Integer<N>, const N: usize>(
    operation: Arithmetic,
    blocks: impl Blocks,
) -> Result<(), ArithmeticError> {
    match operation {
        Arithmetic::Divide => {
            // Looked for beforehand, because the divisors may lie in the block that is about to be
            // overwritten.
            let first_zero = first_zero(blocks.right().as_chunks::<N>().0);
            blocks.combine(T::divide);
            if let Some(element) = first_zero {
                return Err(ArithmeticError::DivisionByZero { element });
            }
        }
        Arithmetic::Minimum | Arithmetic::Maximum => ordered::<T, N>(operation, blocks),
        Arithmetic::And => blocks.combine(T::and),
        Arithmetic::Or => blocks.combine(T::or),
        Arithmetic::Xor => blocks.combine(T::xor),
        _ => numbers::<T, N>(operation, blocks),
    }
    Ok(())
}

fn floats<T: Float<N>, const N: usize>(operation: Arithmetic, blocks: impl Blocks) {
    match operation {
        Arithmetic::Divide => blocks.combine(T::divide),
        Arithmetic::Minimum | Arithmetic::Maximum => ordered::<T, N>(operation, blocks),
        _ => numbers::<T, N>(operation, blocks),
    }
}

fn numbers<T: Number<N>, const N: usize>(operation: Arithmetic, blocks: impl Blocks) {
    match operation {
        Arithmetic::Subtract => blocks.combine(T::subtract),
        Arithmetic::Multiply => blocks.combine(T::multiply),
        _ => blocks.combine(T::add),
    }
}

fn ordered<T: Ordered<N>, const N: usize>(operation: Arithmetic, blocks: impl Blocks) {
    match operation {
        Arithmetic::Maximum => blocks.combine(T::maximum),
        _ => blocks.combine(T::minimum),
    }
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
    fn combine<T: Stored<N>, const N: usize>(self, rule: impl Fn(T, T) -> T);
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

    fn combine<T: Stored<N>, const N: usize>(self, rule: impl Fn(T, T) -> T) {
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

    fn combine<T: Stored<N>, const N: usize>(self, rule: impl Fn(T, T) -> T) {
        let InPlaceLeft { accumulator, right } = self;
        let bytes = accumulator.len();
        widest(bytes, || in_place(accumulator.as_chunks_mut().0, right.as_chunks().0, rule));
    }
}

impl Blocks for InPlaceRight<'_> {
    fn right(&self) -> &[u8] {
        self.accumulator
    }

    fn combine<T: Stored<N>, const N: usize>(self, rule: impl Fn(T, T) -> T) {
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
fn three_address<T: Stored<N>, const N: usize>(
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
fn in_place<T: Stored<N>, const N: usize>(
    accumulator: &mut [[u8; N]],
    operand: &[[u8; N]],
    rule: impl Fn(T, T) -> T,
) {
    for (accumulator, operand) in accumulator.iter_mut().zip(operand) {
        *accumulator = rule(T::from_memory(*accumulator), T::from_memory(*operand)).to_memory();
    }
}
