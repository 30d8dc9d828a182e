//! Floating-point arithmetic on special values, bit by bit, against rules written out by hand.

use goal::arithmetic::{Arithmetic, DataType, apply, apply_in_place_left, apply_in_place_right};
use proptest::prelude::*;

/// The operations on floating-point numbers.
pub(crate) const OPERATIONS: [Arithmetic; 6] = [
    Arithmetic::Add,
    Arithmetic::Subtract,
    Arithmetic::Multiply,
    Arithmetic::Divide,
    Arithmetic::Minimum,
    Arithmetic::Maximum,
];

/// For one type: the operation through the crate, and the same by case distinction over IEEE
/// 754-2019 with the machine's arithmetic left for finite operands only. Both give bits.
macro_rules! float {
    ($module:ident, $float:ident, $bits:ident, $data_type:ident, $canonical:literal) => {
        mod $module {
            use super::*;

            pub(super) const CANONICAL: $bits = $canonical;
            const INFINITY: $float = $float::INFINITY;

            /// NaNs of every kind, both infinities, both zeros, subnormals, limits and ordinary
            /// numbers.
            pub(super) fn special_values() -> Vec<$bits> {
                let sign = 1 << ($bits::BITS - 1);
                let infinity = INFINITY.to_bits();
                let quiet = CANONICAL ^ infinity;
                let positive = [
                    CANONICAL,
                    CANONICAL | 0x1234,     // quiet, with a payload
                    infinity | 1,           // signalling
                    infinity | (quiet - 1), // signalling, with all of its payload
                    sign - 1,               // quiet, with all of its payload
                    infinity,
                    0,
                    1,                                  // the least subnormal
                    $float::MIN_POSITIVE.to_bits() - 1, // the greatest subnormal
                    $float::MIN_POSITIVE.to_bits(),
                    $float::MAX.to_bits(),
                    $float::EPSILON.to_bits(),
                    (1.0 as $float).to_bits(),
                    (1.0 as $float).to_bits() + 1,
                    (3.0 as $float).to_bits(),
                    (0.1 as $float).to_bits(),
                ];
                positive.into_iter().flat_map(|bits| [bits, bits | sign]).collect()
            }

            pub(super) fn reference(operation: Arithmetic, left: $bits, right: $bits) -> $bits {
                let left = $float::from_bits(left);
                let right = $float::from_bits(right);
                let result = match operation {
                    _ if left.is_nan() || right.is_nan() => None,
                    Arithmetic::Add => sum(left, right),
                    Arithmetic::Subtract => sum(left, -right),
                    Arithmetic::Multiply => product(left, right),
                    Arithmetic::Divide => quotient(left, right),
                    Arithmetic::Minimum => Some(minimum(left, right)),
                    Arithmetic::Maximum => Some(-minimum(-left, -right)),
                    _ => unreachable!("not defined on floating-point numbers"),
                };
                result.map_or(CANONICAL, $float::to_bits)
            }

            fn sum(left: $float, right: $float) -> Option<$float> {
                match (left.is_infinite(), right.is_infinite()) {
                    (true, true) => (left == right).then_some(left),
                    (true, false) => Some(left),
                    (false, true) => Some(right),
                    (false, false) => Some(left + right),
                }
            }

            fn product(left: $float, right: $float) -> Option<$float> {
                let signum = left.signum() * right.signum();
                if left.is_infinite() || right.is_infinite() {
                    (left != 0.0 && right != 0.0).then_some(signum * INFINITY)
                } else if left == 0.0 || right == 0.0 {
                    Some((0.0 as $float).copysign(signum))
                } else {
                    Some(left * right)
                }
            }

            fn quotient(left: $float, right: $float) -> Option<$float> {
                let signum = left.signum() * right.signum();
                if left.is_infinite() {
                    right.is_finite().then_some(signum * INFINITY)
                } else if right == 0.0 {
                    (left != 0.0).then_some(signum * INFINITY)
                } else if right.is_infinite() || left == 0.0 {
                    Some((0.0 as $float).copysign(signum))
                } else {
                    Some(left / right)
                }
            }

            fn minimum(left: $float, right: $float) -> $float {
                if left == 0.0 && right == 0.0 {
                    if left.is_sign_negative() { left } else { right }
                } else if left <= right {
                    left
                } else {
                    right
                }
            }

            /// Computes by all three forms, over blocks that start at an odd address, and compares
            /// each with the reference.
            pub(super) fn check(operation: Arithmetic, pairs: &[($bits, $bits)]) {
                let block = |values: Vec<$bits>| -> Vec<u8> {
                    let bytes = values.into_iter().flat_map($bits::to_le_bytes);
                    std::iter::once(0).chain(bytes).collect()
                };
                let left = block(pairs.iter().map(|pair| pair.0).collect());
                let right = block(pairs.iter().map(|pair| pair.1).collect());
                let (mut three, mut in_left, mut in_right) =
                    (vec![0; left.len()], left.clone(), right.clone());
                let data_type = DataType::$data_type;
                apply(operation, data_type, &left[1..], &right[1..], &mut three[1..])
                    .expect("defined on all numbers");
                apply_in_place_left(operation, data_type, &mut in_left[1..], &right[1..])
                    .expect("defined on all numbers");
                apply_in_place_right(operation, data_type, &left[1..], &mut in_right[1..])
                    .expect("defined on all numbers");

                let expected =
                    block(pairs.iter().map(|pair| reference(operation, pair.0, pair.1)).collect());
                for (form, result) in
                    [("three-address", three), ("left", in_left), ("right", in_right)]
                {
                    for (index, pair) in pairs.iter().enumerate() {
                        let element =
                            1 + index * size_of::<$bits>()..1 + (index + 1) * size_of::<$bits>();
                        assert_eq!(
                            result[element.clone()],
                            expected[element],
                            "{form}: {:#x} {operation} {:#x}",
                            pair.0,
                            pair.1
                        );
                    }
                }
            }
        }
    };
}

float!(single, f32, u32, F32, 0x7fc0_0000);
float!(double, f64, u64, F64, 0x7ff8_0000_0000_0000);

/// All pairs, and so both orders of every two values.
fn pairs<T: Copy>(values: &[T]) -> Vec<(T, T)> {
    values.iter().flat_map(|left| values.iter().map(|right| (*left, *right))).collect()
}

#[test]
fn every_pair_of_special_values_follows_the_standard() {
    for operation in OPERATIONS {
        single::check(operation, &pairs(&single::special_values()));
        double::check(operation, &pairs(&double::special_values()));
    }
}

/// The same one pair at a time: the remainder loop of a vectorised kernel is other machine code.
#[test]
fn every_pair_of_special_values_follows_the_standard_alone() {
    for operation in OPERATIONS {
        for pair in pairs(&single::special_values()) {
            single::check(operation, &[pair]);
        }
        for pair in pairs(&double::special_values()) {
            double::check(operation, &[pair]);
        }
    }
}

/// Literal bits, so that the reference is held to something too.
#[test]
fn known_bits() {
    const NAN: u32 = 0x7fc0_0000;
    const INFINITY: u32 = 0x7f80_0000;
    const NEGATIVE_INFINITY: u32 = 0xff80_0000;
    const NEGATIVE_ZERO: u32 = 0x8000_0000;
    const ONE: u32 = 0x3f80_0000;
    const NEGATIVE_ONE: u32 = 0xbf80_0000;
    use Arithmetic::{Add, Divide, Maximum, Minimum, Multiply, Subtract};
    for (operation, left, right, expected) in [
        (Add, INFINITY, NEGATIVE_INFINITY, NAN),
        (Add, NEGATIVE_ZERO, NEGATIVE_ZERO, NEGATIVE_ZERO),
        (Add, NEGATIVE_ZERO, 0, 0),
        (Add, 0xffc0_1234, ONE, NAN),
        (Add, ONE, 0x7f80_0001, NAN),
        (Add, 1, 1, 2),
        (Subtract, INFINITY, INFINITY, NAN),
        (Subtract, ONE, ONE, 0),
        (Subtract, 0x0080_0000, 0x007f_ffff, 1),
        (Multiply, INFINITY, 0, NAN),
        (Multiply, 0, NEGATIVE_ONE, NEGATIVE_ZERO),
        (Multiply, 0x7f7f_ffff, 0x4000_0000, INFINITY),
        (Divide, 0, 0, NAN),
        (Divide, INFINITY, NEGATIVE_INFINITY, NAN),
        (Divide, ONE, 0, INFINITY),
        (Divide, ONE, NEGATIVE_ZERO, NEGATIVE_INFINITY),
        (Minimum, 0, NEGATIVE_ZERO, NEGATIVE_ZERO),
        (Minimum, NEGATIVE_ZERO, 0, NEGATIVE_ZERO),
        (Minimum, ONE, 0xffff_ffff, NAN),
        (Minimum, 0x7f80_0001, NEGATIVE_INFINITY, NAN),
        (Minimum, NEGATIVE_ONE, 1, NEGATIVE_ONE),
        (Maximum, 0, NEGATIVE_ZERO, 0),
        (Maximum, NEGATIVE_ZERO, 0, 0),
        (Maximum, INFINITY, 0xffc0_0000, NAN),
        (Maximum, NEGATIVE_ONE, NEGATIVE_INFINITY, NEGATIVE_ONE),
    ] {
        let mut destination = [0; 4];
        let left_bytes = left.to_le_bytes();
        let right_bytes = right.to_le_bytes();
        apply(operation, DataType::F32, &left_bytes, &right_bytes, &mut destination)
            .expect("defined on all numbers");
        let result = u32::from_le_bytes(destination);
        assert_eq!(result, expected, "{left:#x} {operation} {right:#x} gave {result:#x}");
        assert_eq!(single::reference(operation, left, right), expected, "the reference is wrong");
    }
    assert_eq!(double::CANONICAL, 0x7ff8_0000_0000_0000);
    assert_eq!(double::reference(Minimum, 1 << 63, 0), 1 << 63);
}

proptest! {
    #[test]
    fn any_f32_bits_follow_the_standard(
        operation in prop::sample::select(OPERATIONS.to_vec()),
        pairs in prop::collection::vec(any::<(u32, u32)>(), 0..40),
    ) {
        single::check(operation, &pairs);
    }

    #[test]
    fn any_f64_bits_follow_the_standard(
        operation in prop::sample::select(OPERATIONS.to_vec()),
        pairs in prop::collection::vec(any::<(u64, u64)>(), 0..40),
    ) {
        double::check(operation, &pairs);
    }
}
