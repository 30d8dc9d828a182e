//! Integer arithmetic against a reference that computes in 128 bits and truncates.

use goal::arithmetic::{Arithmetic, ArithmeticError, DataType, apply};
use proptest::prelude::*;

const INTEGERS: [DataType; 8] = [
    DataType::U8,
    DataType::U16,
    DataType::U32,
    DataType::U64,
    DataType::I8,
    DataType::I16,
    DataType::I32,
    DataType::I64,
];

fn is_signed(data_type: DataType) -> bool {
    data_type.name().starts_with('i')
}

/// Widens the first element of `bytes`.
fn widen(data_type: DataType, bytes: &[u8]) -> i128 {
    let size = data_type.bytes();
    let negative = is_signed(data_type) && bytes[size - 1] >= 0x80;
    let mut wide = [if negative { 0xff } else { 0 }; 16];
    wide[..size].copy_from_slice(&bytes[..size]);
    i128::from_le_bytes(wide)
}

/// What one element becomes, as its bytes; the lowest bytes of the wide result are the wrapped one.
fn reference(operation: Arithmetic, data_type: DataType, left: &[u8], right: &[u8]) -> Vec<u8> {
    let left = widen(data_type, left);
    let right = widen(data_type, right);
    let result = match operation {
        Arithmetic::Add => left + right,
        Arithmetic::Subtract => left - right,
        Arithmetic::Multiply => left.wrapping_mul(right),
        Arithmetic::Divide => left.checked_div(right).unwrap_or(0),
        Arithmetic::Minimum => left.min(right),
        Arithmetic::Maximum => left.max(right),
        Arithmetic::And => left & right,
        Arithmetic::Or => left | right,
        Arithmetic::Xor => left ^ right,
    };
    result.to_le_bytes()[..data_type.bytes()].to_vec()
}

/// Compares one call over whole blocks with the reference, and its outcome with the first zero
/// divisor.
fn check(operation: Arithmetic, data_type: DataType, left: &[u8], right: &[u8]) {
    let size = data_type.bytes();
    let mut destination = vec![0xa5; left.len()];
    let outcome = apply(operation, data_type, left, right, &mut destination);

    let first_zero = right.chunks(size).position(|divisor| widen(data_type, divisor) == 0);
    let expected_outcome = match first_zero {
        Some(element) if operation == Arithmetic::Divide => {
            Err(ArithmeticError::DivisionByZero { element })
        }
        _ => Ok(()),
    };
    assert_eq!(outcome, expected_outcome, "{operation} on {data_type}");

    let operands = left.chunks(size).zip(right.chunks(size));
    for ((left, right), result) in operands.zip(destination.chunks(size)) {
        assert_eq!(
            result,
            reference(operation, data_type, left, right),
            "{left:?} {operation} {right:?} on {data_type}"
        );
    }
}

#[test]
fn every_pair_of_bytes_gives_the_truncated_wide_result() {
    let left: Vec<u8> = (0..=u16::MAX).map(|pair| pair.to_le_bytes()[0]).collect();
    let right: Vec<u8> = (0..=u16::MAX).map(|pair| pair.to_le_bytes()[1]).collect();
    for operation in Arithmetic::ALL {
        check(operation, DataType::U8, &left, &right);
        check(operation, DataType::I8, &left, &right);
    }
}

#[test]
fn limits_of_every_type_wrap() {
    for data_type in INTEGERS {
        let size = data_type.bytes();
        let mut values = vec![vec![0; size], vec![0xff; size]]; // 0; the maximum or -1
        for (lowest, middle, highest) in [
            (1, 0, 0),          // 1
            (2, 0, 0),          // 2
            (0, 0, 0x80),       // signed minimum
            (0xff, 0xff, 0x7f), // signed maximum
            (0xfe, 0xff, 0xff), // one below the unsigned maximum, or -2
        ] {
            let mut value = vec![middle; size];
            value[size - 1] = highest;
            if size > 1 || highest == 0 {
                value[0] = lowest;
            }
            values.push(value);
        }
        for operation in Arithmetic::ALL {
            for left in &values {
                for right in &values {
                    check(operation, data_type, left, right);
                }
            }
        }
    }
}

#[test]
fn signed_minimum_divided_by_minus_one_is_itself() {
    let left = i64::MIN.to_le_bytes();
    let right = (-1_i64).to_le_bytes();
    let mut destination = [0; 8];
    apply(Arithmetic::Divide, DataType::I64, &left, &right, &mut destination)
        .expect("the divisor is not zero");
    assert_eq!(i64::from_le_bytes(destination), i64::MIN);
}

#[test]
fn division_rounds_towards_zero() {
    let mut destination = [0; 2];
    let left = [(-7_i8).to_le_bytes()[0], 7];
    let right = [2, (-2_i8).to_le_bytes()[0]];
    apply(Arithmetic::Divide, DataType::I8, &left, &right, &mut destination)
        .expect("no divisor is zero");
    assert_eq!(destination.map(|byte| i8::from_le_bytes([byte])), [-3, -3]);
}

#[test]
fn division_by_zero_names_the_first_element_and_computes_the_others() {
    let encode = |values: [u32; 5]| values.map(u32::to_le_bytes).concat();
    // A single zero byte within a divisor must not count as a zero divisor.
    let left = encode([90, 80, 70, 60, 0x500]);
    let right = encode([9, 4, 0, 0, 0x100]);
    let mut destination = [0xff; 20];
    assert_eq!(
        apply(Arithmetic::Divide, DataType::U32, &left, &right, &mut destination),
        Err(ArithmeticError::DivisionByZero { element: 2 })
    );
    assert_eq!(destination.as_slice(), encode([10, 20, 0, 0, 5]));
}

proptest! {
    #[test]
    fn any_operation_on_any_integers_gives_the_truncated_wide_result(
        operation in prop::sample::select(Arithmetic::ALL.to_vec()),
        data_type in prop::sample::select(INTEGERS.to_vec()),
        pairs in prop::collection::vec(any::<([u8; 8], [u8; 8])>(), 0..80),
    ) {
        let left: Vec<u8> = pairs.iter().flat_map(|pair| pair.0).collect();
        let right: Vec<u8> = pairs.iter().flat_map(|pair| pair.1).collect();
        check(operation, data_type, &left, &right);
    }
}
