//! Every local operation on every type, with results computed by the language's own operators.

use super::build::{blank, chain, exact, world};
use crate::conformance::vector::Vector;
use goal::arithmetic::{Arithmetic, Complex, DataType, Element, F64At, bf16, f16};
use goal::graph::{Access, Graph};

pub(super) fn vectors() -> Vec<Vector> {
    let mut vectors = vec![
        integers::u8(),
        integers::u16(),
        integers::u32(),
        integers::u64(),
        integers::i8(),
        integers::i16(),
        integers::i32(),
        integers::i64(),
        integers::u128(),
        integers::i128(),
        floats::f32(),
        floats::f64(),
        by_hand(),
        floats_of_16_bits(f16::from_f32),
        floats_of_16_bits(bf16::from_f32),
        complex(),
        located(),
        zeros_and_nan(),
    ];
    vectors.extend(Arithmetic::ALL.map(in_place));
    vectors
}

/// One rank with both operands and one result for each operation.
fn table(
    data_type: DataType,
    left: Vec<u8>,
    right: Vec<u8>,
    results: Vec<(Arithmetic, Vec<u8>)>,
) -> Vector {
    let mut graph = Graph::new(0, 1);
    let operands = [&left, &right].map(|bytes| graph.buffer(Access::Input, bytes.len() as u64));
    let mut before = vec![left, right];
    let mut after = before.clone();
    for (operation, result) in results {
        let destination = graph.buffer(Access::Output, result.len() as u64);
        graph.local(operation, data_type, operands[0], operands[1], destination);
        before.push(blank(result.len()));
        after.push(result);
    }
    exact(format!("arithmetic: all operations on {data_type}"), vec![graph], move |_| {
        (vec![before.clone()], vec![after.clone()])
    })
}

fn memory<T: Element>(values: &[T], bytes: impl Fn(&T) -> Vec<u8>) -> Vec<u8> {
    values.iter().flat_map(bytes).collect()
}

/// The rules of integers: everything wraps.
mod integers {
    use super::*;

    macro_rules! table_of {
        ($($integer:ident),+) => {$(
            pub(super) fn $integer() -> Vector {
                type T = $integer;
                let left: [T; 8] = [0, 1, T::MAX, T::MIN, 7, 100, T::MIN, 85];
                let right: [T; 8] = [3, 2, 1, 1, 2, 9, T::MAX, 51];
                let rules: [(Arithmetic, fn(T, T) -> T); 9] = [
                    (Arithmetic::Add, T::wrapping_add),
                    (Arithmetic::Subtract, T::wrapping_sub),
                    (Arithmetic::Multiply, T::wrapping_mul),
                    (Arithmetic::Divide, T::wrapping_div),
                    (Arithmetic::Minimum, |left, right| if left < right { left } else { right }),
                    (Arithmetic::Maximum, |left, right| if left > right { left } else { right }),
                    (Arithmetic::And, |left, right| left & right),
                    (Arithmetic::Or, |left, right| left | right),
                    (Arithmetic::Xor, |left, right| left ^ right),
                ];
                let bytes = |values: &[T]| memory(values, |value| value.to_le_bytes().to_vec());
                let results = rules.map(|(operation, rule)| {
                    let values: Vec<T> = left.iter().zip(&right).map(|(left, right)| rule(*left, *right)).collect();
                    (operation, bytes(&values))
                });
                table(T::DATA_TYPE, bytes(&left), bytes(&right), results.to_vec())
            }
        )+};
    }

    table_of!(u8, u16, u32, u64, i8, i16, i32, i64, u128, i128);
}

/// The rules of floating-point numbers: a NaN result is the canonical one.
mod floats {
    use super::*;

    macro_rules! table_of {
        ($($float:ident $canonical:literal),+) => {$(
            pub(super) fn $float() -> Vector {
                type T = $float;
                let odd_nan = T::from_bits($canonical | 5);
                let left: [T; 10] = [1.5, -0.0, 0.0, T::INFINITY, odd_nan, 1.0, T::MAX, T::MIN_POSITIVE, -7.25, 0.1];
                let right: [T; 10] = [2.5, 0.0, -0.0, T::INFINITY, 1.0, odd_nan, T::MAX, 2.0, 0.0, 0.2];
                // Where neither is less, the operands are equal, or zeros: the sign bit decides, by
                // IEEE 754-2019, 9.6.
                let minimum = |left: T, right: T| match left.partial_cmp(&right) {
                    None => T::NAN,
                    Some(std::cmp::Ordering::Less) => left,
                    Some(std::cmp::Ordering::Greater) => right,
                    Some(std::cmp::Ordering::Equal) => if left.is_sign_negative() { left } else { right },
                };
                let maximum = |left: T, right: T| match left.partial_cmp(&right) {
                    None => T::NAN,
                    Some(std::cmp::Ordering::Greater) => left,
                    Some(std::cmp::Ordering::Less) => right,
                    Some(std::cmp::Ordering::Equal) => if left.is_sign_positive() { left } else { right },
                };
                let rules: [(Arithmetic, fn(T, T) -> T); 6] = [
                    (Arithmetic::Add, |left, right| left + right),
                    (Arithmetic::Subtract, |left, right| left - right),
                    (Arithmetic::Multiply, |left, right| left * right),
                    (Arithmetic::Divide, |left, right| left / right),
                    (Arithmetic::Minimum, minimum),
                    (Arithmetic::Maximum, maximum),
                ];
                let bytes = |values: &[T]| memory(values, |value| value.to_le_bytes().to_vec());
                let results = rules.map(|(operation, rule)| {
                    let canonical = |value: T| if value.is_nan() { T::from_bits($canonical) } else { value };
                    let values = left.iter().zip(&right).map(|(left, right)| canonical(rule(*left, *right)));
                    (operation, bytes(&values.collect::<Vec<T>>()))
                });
                table(T::DATA_TYPE, bytes(&left), bytes(&right), results.to_vec())
            }
        )+};
    }

    table_of!(f32 0x7fc0_0000, f64 0x7ff8_0000_0000_0000);
}

/// A few results computed by hand.
fn by_hand() -> Vector {
    let results = [
        (Arithmetic::Add, vec![44, 9]),
        (Arithmetic::Subtract, vec![100, 5]),
        (Arithmetic::Multiply, vec![32, 14]),
        (Arithmetic::Divide, vec![2, 3]),
        (Arithmetic::Minimum, vec![100, 2]),
        (Arithmetic::Maximum, vec![200, 7]),
        (Arithmetic::And, vec![64, 2]),
        (Arithmetic::Or, vec![236, 7]),
        (Arithmetic::Xor, vec![172, 5]),
    ];
    let mut vector = table(DataType::U8, vec![200, 7], vec![100, 2], results.to_vec());
    vector.name = "arithmetic: by hand".into();
    vector
}

/// A table of elements and their results.
fn table_of_elements<T: Element, const N: usize>(
    left: [T; N],
    right: [T; N],
    results: &[(Arithmetic, [T; N])],
) -> Vector {
    let bytes = |values: &[T]| bytemuck::cast_slice(values).to_vec();
    let results = results.iter().map(|(operation, values)| (*operation, bytes(values)));
    table(T::DATA_TYPE, bytes(&left), bytes(&right), results.collect())
}

/// Both types round the results of these numbers alike.
fn floats_of_16_bits<T: Element>(of: fn(f32) -> T) -> Vector {
    let results = [
        (Arithmetic::Add, [4.0, 4096.0, -2.0]),
        (Arithmetic::Subtract, [-1.0, 4096.0, -6.0]),
        (Arithmetic::Multiply, [3.75, 4096.0, -8.0]),
        (Arithmetic::Divide, [0.6, 4096.0, -2.0]),
        (Arithmetic::Minimum, [1.5, 1.0, -4.0]),
        (Arithmetic::Maximum, [2.5, 4096.0, 2.0]),
    ];
    let results = results.map(|(operation, values)| (operation, values.map(of)));
    table_of_elements([1.5, 4096.0, -4.0].map(of), [2.5, 1.0, 2.0].map(of), &results)
}

fn complex() -> Vector {
    let of = |re, im| Complex::<f64>::new(re, im);
    let results = [
        (Arithmetic::Add, [of(4.0, 6.0), of(0.0, 0.0)]),
        (Arithmetic::Subtract, [of(-2.0, -2.0), of(0.0, -2.0)]),
        (Arithmetic::Multiply, [of(-5.0, 10.0), of(1.0, 0.0)]),
    ];
    table_of_elements([of(1.0, 2.0), of(0.0, -1.0)], [of(3.0, 4.0), of(0.0, 1.0)], &results)
}

/// Of equal values the one with the lower index.
fn located() -> Vector {
    let of = |value, index| F64At { value, index };
    let results = [
        (Arithmetic::Minimum, [of(1.0, 7), of(-2.0, 3)]),
        (Arithmetic::Maximum, [of(1.5, 2), of(-2.0, 3)]),
    ];
    table_of_elements([of(1.0, 7), of(-2.0, 4)], [of(1.5, 2), of(-2.0, 3)], &results)
}

/// Minimum and maximum of zeros of both signs and of a NaN, bit by bit.
fn zeros_and_nan() -> Vector {
    let words =
        |words: [u32; 4]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let left = words([0x8000_0000, 0x0000_0000, 0xffc0_0001, 0x3f80_0000]);
    let right = words([0x0000_0000, 0x8000_0000, 0x3f80_0000, 0x7f80_0001]);
    let minimum = words([0x8000_0000, 0x8000_0000, 0x7fc0_0000, 0x7fc0_0000]);
    let maximum = words([0x0000_0000, 0x0000_0000, 0x7fc0_0000, 0x7fc0_0000]);
    let results = vec![(Arithmetic::Minimum, minimum), (Arithmetic::Maximum, maximum)];
    let mut vector = table(DataType::F32, left, right, results);
    vector.name = "arithmetic: zeros of both signs and NaN".into();
    vector
}

/// Operations with the left operand, the right one, then both as the destination.
fn in_place(operation: Arithmetic) -> Vector {
    let rule: fn(i32, i32) -> i32 = match operation {
        Arithmetic::Add => i32::wrapping_add,
        Arithmetic::Subtract => i32::wrapping_sub,
        Arithmetic::Multiply => i32::wrapping_mul,
        Arithmetic::Divide => i32::wrapping_div,
        Arithmetic::Minimum => i32::min,
        Arithmetic::Maximum => i32::max,
        Arithmetic::And => |left, right| left & right,
        Arithmetic::Or => |left, right| left | right,
        Arithmetic::Xor => |left, right| left ^ right,
    };
    let mut program = world(1);
    let [left, right] = [(); 2].map(|()| program[0].buffer(Access::InOut, 12));
    let vertices = [(left, right, left), (left, right, right), (right, right, right)].map(
        |(left, right, destination)| {
            program[0].local(operation, DataType::I32, left, right, destination)
        },
    );
    chain(&mut program[0], &vertices);
    exact(format!("arithmetic: {operation} in place"), program, move |round| {
        // Chosen so that no divisor becomes zero on the way.
        let start = [
            ([1_000_000, -81, 64], [3, 9, -2]),
            ([-500, 77, 120], [7, -7, 5]),
            ([90, 91, 92], [4, 3, 2]),
        ];
        let (left, right) = start[round as usize % start.len()];
        let bytes = |values: [i32; 3]| {
            values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()
        };
        let both = |left: [i32; 3], right: [i32; 3]| {
            [0, 1, 2].map(|index| rule(left[index], right[index]))
        };
        let first = both(left, right);
        let second = both(first, right);
        let third = if operation == Arithmetic::Divide { [1; 3] } else { both(second, second) };
        (vec![vec![bytes(left), bytes(right)]], vec![vec![bytes(first), bytes(third)]])
    })
}
