//! Reference results of reductions.

use crate::evaluator::Apply;
use collectives::Reduction;
use goal::arithmetic::{Arithmetic, DataType, bf16, f16};

pub(crate) const SUM: Reduction =
    Reduction { operation: Arithmetic::Add, data_type: DataType::I64 };
pub(crate) const SHORT_SUM: Reduction =
    Reduction { operation: Arithmetic::Add, data_type: DataType::I16 };

pub(crate) const ASSOCIATIVE: [Arithmetic; 7] = [
    Arithmetic::Add,
    Arithmetic::Multiply,
    Arithmetic::Minimum,
    Arithmetic::Maximum,
    Arithmetic::And,
    Arithmetic::Or,
    Arithmetic::Xor,
];

/// The plain meaning of operations.
pub(crate) fn apply(
    operation: Arithmetic,
    data_type: DataType,
    left: &[u8],
    right: &[u8],
) -> Vec<u8> {
    let mut result = vec![0; left.len()];
    goal::arithmetic::apply(operation, data_type, left, right, &mut result).unwrap();
    result
}

/// An operation in place of all others that is associative and not commutative: elements of eight
/// bytes are functions x ↦ a·x + b modulo 2³², and left ∘ right is the left one followed by the
/// right one.
pub(crate) fn compose(_: Arithmetic, data_type: DataType, left: &[u8], right: &[u8]) -> Vec<u8> {
    assert_eq!(data_type.bytes(), 8);
    let pair = |bytes: &[u8]| {
        let part =
            |range: std::ops::Range<usize>| u32::from_le_bytes(bytes[range].try_into().unwrap());
        (part(0..4), part(4..8))
    };
    let both = left.chunks(8).zip(right.chunks(8));
    both.flat_map(|(left, right)| {
        let ((a, b), (c, d)) = (pair(left), pair(right));
        let factor = a.wrapping_mul(c).to_le_bytes();
        [factor, b.wrapping_mul(c).wrapping_add(d).to_le_bytes()].concat()
    })
    .collect()
}

/// Functions for [`compose`] that are different everywhere, one for each element.
pub(crate) fn functions(rank: u32, elements: u64) -> Vec<u8> {
    let one = |element: u64| {
        let factor = rank.wrapping_mul(2654435761).wrapping_add(element as u32 * 40503) | 1;
        let offset = (rank + 1).wrapping_mul(2246822519) ^ element as u32;
        [factor.to_le_bytes(), offset.to_le_bytes()].concat()
    };
    (0..elements).flat_map(one).collect()
}

/// Contribution 0 ∘ contribution 1 ∘ …, from the left.
pub(crate) fn fold(apply: Apply, reduction: Reduction, inputs: &[Vec<u8>]) -> Vec<u8> {
    let Reduction { operation, data_type } = reduction;
    inputs[1..].iter().fold(inputs[0].clone(), |sum, next| apply(operation, data_type, &sum, next))
}

/// Little-endian bytes of small integers in the given type, with which floating-point arithmetic is
/// exact: their sum stays below 2^8 for up to 33 ranks, and their product is a power of two.
pub(crate) fn exact(data_type: DataType, rank: u32, elements: u64) -> Vec<u8> {
    let number = |element: u64| match (u64::from(rank) * 7 + element * 5) % 11 {
        0 | 4 => 2,
        // Products of negative complex numbers have zeros of a sign that depends on the order.
        7 if data_type >= DataType::I8
            && ![DataType::U128, DataType::ComplexF32, DataType::ComplexF64]
                .contains(&data_type) =>
        {
            -1
        }
        _ => 1,
    };
    let pair = |first: &[u8], second: &[u8]| [first, second].concat();
    let bytes = |number: i64| match data_type {
        DataType::F16 => f16::from_f64(number as f64).to_le_bytes().to_vec(),
        DataType::Bf16 => bf16::from_f64(number as f64).to_le_bytes().to_vec(),
        DataType::ComplexF32 => pair(&(number as f32).to_le_bytes(), &0f32.to_le_bytes()),
        DataType::ComplexF64 => pair(&(number as f64).to_le_bytes(), &0f64.to_le_bytes()),
        DataType::I32At => pair(&(number as i32).to_le_bytes(), &rank.to_le_bytes()),
        DataType::I64At => pair(&number.to_le_bytes(), &u64::from(rank).to_le_bytes()),
        DataType::F32At => pair(&(number as f32).to_le_bytes(), &rank.to_le_bytes()),
        DataType::F64At => pair(&(number as f64).to_le_bytes(), &u64::from(rank).to_le_bytes()),
        DataType::U128 | DataType::I128 => i128::from(number).to_le_bytes().to_vec(),
        DataType::F32 => (number as f32).to_le_bytes().to_vec(),
        DataType::F64 => (number as f64).to_le_bytes().to_vec(),
        _ => number.to_le_bytes()[..data_type.bytes()].to_vec(),
    };
    (0..elements).flat_map(|element| bytes(number(element))).collect()
}

/// Every rank's numbers.
pub(crate) fn all_exact(data_type: DataType, ranks: u32, elements: u64) -> Vec<Vec<u8>> {
    (0..ranks).map(|rank| exact(data_type, rank, elements)).collect()
}

/// Every rank's functions.
pub(crate) fn all_functions(ranks: u32, elements: u64) -> Vec<Vec<u8>> {
    (0..ranks).map(|rank| functions(rank, elements)).collect()
}
