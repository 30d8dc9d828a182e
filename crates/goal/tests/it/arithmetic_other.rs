//! Floating-point numbers of 16 bits, complex numbers, and values with an index.

use crate::arithmetic_floats::OPERATIONS;
use goal::arithmetic::{
    Arithmetic, Complex, DataType, Element, F32At, F64At, I32At, I64At, apply, bf16, f16,
};
use proptest::prelude::*;

/// The operation on values.
fn computed<T: Element>(operation: Arithmetic, left: &[T], right: &[T]) -> Vec<T> {
    let mut result = vec![T::zeroed(); left.len()];
    let bytes = bytemuck::cast_slice_mut(&mut result);
    apply(operation, T::DATA_TYPE, bytemuck::cast_slice(left), bytemuck::cast_slice(right), bytes)
        .expect("the operation is defined");
    result
}

/// The operation in double precision, which has more than twice the bits of a short format and two, so
/// that rounding its result is rounding once.
fn in_double_precision(operation: Arithmetic, left: f64, right: f64) -> f64 {
    let has_nan = left.is_nan() || right.is_nan();
    let is_in_order = left.total_cmp(&right).is_lt();
    match operation {
        Arithmetic::Add => left + right,
        Arithmetic::Subtract => left - right,
        Arithmetic::Multiply => left * right,
        Arithmetic::Divide => left / right,
        _ if has_nan => f64::NAN,
        _ if is_in_order == (operation == Arithmetic::Minimum) => left,
        _ => right,
    }
}

/// Zeros, subnormal numbers, limits, infinities and NaNs, of both signs.
const SPECIAL: [u16; 16] = [
    0, 1, 0x3ff, 0x400, 0x7f, 0x80, 0x3c00, 0x3f80, 0x7bff, 0x7c00, 0x7c01, 0x7e00, 0x7f7f, 0x7f80,
    0x7f81, 0x7fff,
];

/// A format of 16 bits: how many of them are the fraction.
#[derive(Clone, Copy)]
struct Short {
    fraction: u32,
    canonical: u16,
}

const F16: Short = Short { fraction: 10, canonical: 0x7e00 };
const BF16: Short = Short { fraction: 7, canonical: 0x7fc0 };

impl Short {
    /// The value of a bit pattern. Infinity counts as the power of two behind the largest number.
    fn value(self, bits: u16) -> f64 {
        let magnitude = bits & 0x7fff;
        let (exponent, fraction) =
            (i32::from(magnitude >> self.fraction), magnitude & ((1 << self.fraction) - 1));
        let bias = (1 << (14 - self.fraction)) - 1;
        let whole = if exponent == 0 { 0 } else { 1 << self.fraction };
        let value =
            f64::from(whole + fraction) * 2_f64.powi(exponent.max(1) - bias - self.fraction as i32);
        if bits & 0x8000 == 0 { value } else { -value }
    }

    fn infinity(self) -> u16 {
        (0x7fff >> self.fraction) << self.fraction
    }

    fn is_nan(self, bits: u16) -> bool {
        bits & 0x7fff > self.infinity()
    }

    /// The value in double precision, with infinities and NaNs.
    fn wide(self, bits: u16) -> f64 {
        match bits & 0x7fff {
            _ if self.is_nan(bits) => f64::NAN,
            magnitude if magnitude == self.infinity() => f64::INFINITY.copysign(self.value(bits)),
            _ => self.value(bits),
        }
    }

    /// The nearest number, by a search among all of them; of two as near the one with an even fraction.
    fn nearest(self, value: f64) -> u16 {
        if value.is_nan() {
            return self.canonical;
        }
        let magnitude = value.abs();
        let (mut below, mut above) = (0, self.infinity());
        while above - below > 1 {
            let middle = below + (above - below) / 2;
            if self.value(middle) <= magnitude { below = middle } else { above = middle }
        }
        let to_below = magnitude - self.value(below);
        let to_above = self.value(above) - magnitude;
        let is_above = to_above < to_below || to_above == to_below && below % 2 == 1;
        (if is_above { above } else { below }) | if value.is_sign_negative() { 0x8000 } else { 0 }
    }

    fn check<T: Element>(self, operation: Arithmetic, pairs: &[(u16, u16)]) {
        let (left, right): (Vec<u16>, Vec<u16>) = pairs.iter().copied().unzip();
        let results =
            computed::<T>(operation, bytemuck::cast_slice(&left), bytemuck::cast_slice(&right));
        let results: &[u16] = bytemuck::cast_slice(&results);
        for (result, (left, right)) in results.iter().zip(pairs) {
            let value = in_double_precision(operation, self.wide(*left), self.wide(*right));
            let expected = self.nearest(value);
            assert_eq!(*result, expected, "{}: {left:#x} {operation} {right:#x}", T::DATA_TYPE);
        }
    }
}

fn check_short(operation: Arithmetic, pairs: &[(u16, u16)]) {
    F16.check::<f16>(operation, pairs);
    BF16.check::<bf16>(operation, pairs);
}

#[test]
fn special_floats_of_16_bits_are_rounded_once() {
    let special = || SPECIAL.into_iter().flat_map(|bits| [bits, bits | 0x8000]);
    let pairs: Vec<_> =
        special().flat_map(|left| special().map(move |right| (left, right))).collect();
    for operation in OPERATIONS {
        check_short(operation, &pairs);
    }
}

/// The first value in an order, with the lowest of its indices.
fn first<T: Copy>(found: &[(T, u32)], is_before: impl Fn(T, T) -> bool) -> (T, u32) {
    let better = |one: (T, u32), other: (T, u32)| {
        is_before(one.0, other.0) || (!is_before(other.0, one.0) && one.1 < other.1)
    };
    found
        .iter()
        .copied()
        .reduce(|one, other| if better(other, one) { other } else { one })
        .expect("one")
}

/// Order of minima: a NaN first, then by value, −0 before +0.
fn is_less(left: f64, right: f64) -> bool {
    match (left.is_nan(), right.is_nan()) {
        (_, true) => false,
        (true, false) => true,
        _ => left.total_cmp(&right).is_lt(),
    }
}

/// Order of maxima: a NaN first, too.
fn is_greater(left: f64, right: f64) -> bool {
    match (left.is_nan(), right.is_nan()) {
        (_, true) => false,
        (true, false) => true,
        _ => left.total_cmp(&right).is_gt(),
    }
}

/// Combines values in pairs, as a tree does.
fn tree<T: Element>(operation: Arithmetic, mut values: Vec<T>) -> T {
    while values.len() > 1 {
        let pairs = values.chunks(2).map(|pair| match pair {
            [left, right] => computed(operation, &[*left], &[*right])[0],
            rest => rest[0],
        });
        values = pairs.collect();
    }
    values[0]
}

/// Few values, so that many are equal; zeros of both signs and NaNs of two kinds.
fn value() -> impl Strategy<Value = f64> {
    prop::sample::select(vec![-1.5, -0.0, 0.0, 2.0, f64::INFINITY, f64::NAN, -f64::NAN])
}

/// Compares with the formulas, part by part.
macro_rules! check_complex {
    ($float:ident, $canonical:literal, $parts:ident) => {{
        let canonical = |part: $float| if part.is_nan() { $canonical } else { part.to_bits() };
        let left: Vec<_> = $parts.iter().map(|[a, b, ..]| Complex::new(*a, *b)).collect();
        let right: Vec<_> = $parts.iter().map(|[.., c, d]| Complex::new(*c, *d)).collect();
        type Rule = fn([$float; 4]) -> [$float; 2];
        for (operation, rule) in [
            (Arithmetic::Add, (|[a, b, c, d]| [a + c, b + d]) as Rule),
            (Arithmetic::Subtract, |[a, b, c, d]| [a - c, b - d]),
            (Arithmetic::Multiply, |[a, b, c, d]| [a * c - b * d, a * d + b * c]),
        ] {
            for (result, parts) in computed(operation, &left, &right).iter().zip(&$parts) {
                let expected = rule(*parts).map(canonical);
                prop_assert_eq!([result.re.to_bits(), result.im.to_bits()], expected);
            }
        }
    }};
}

proptest! {
    #[test]
    fn floats_of_16_bits_are_rounded_once(
        operation in prop::sample::select(OPERATIONS.to_vec()),
        pairs in prop::collection::vec(any::<(u16, u16)>(), 1..200),
    ) {
        check_short(operation, &pairs);
    }

    #[test]
    fn complex_numbers_follow_the_formulas(
        short in prop::collection::vec(prop::array::uniform4(prop::num::f32::ANY), 1..40),
        long in prop::collection::vec(prop::array::uniform4(prop::num::f64::ANY), 1..40),
    ) {
        check_complex!(f32, 0x7fc0_0000, short);
        check_complex!(f64, 0x7ff8_0000_0000_0000, long);
    }

    #[test]
    fn extremes_have_the_lowest_of_their_indices(
        found in prop::collection::vec((value(), any::<u32>()), 2..12),
    ) {
        let minimum = (Arithmetic::Minimum, is_less as fn(f64, f64) -> bool);
        for (operation, is_before) in [minimum, (Arithmetic::Maximum, is_greater)] {
            check_located(operation, is_before, &found);
        }
    }
}

fn check_located(operation: Arithmetic, is_before: fn(f64, f64) -> bool, found: &[(f64, u32)]) {
    // Indices of 64 bits that differ in their upper halves only.
    let wide = |index: u32| u64::from(index) << 32 | 7;
    let (value, index) = first(found, is_before);
    let canonical = if value.is_nan() { 0x7ff8 << 48 } else { value.to_bits() };
    let all = found.iter().map(|(value, index)| F64At { value: *value, index: wide(*index) });
    let result = tree(operation, all.collect());
    assert_eq!((result.value.to_bits(), result.index), (canonical, wide(index)));
    let canonical = if value.is_nan() { 0x7fc0_0000 } else { (value as f32).to_bits() };
    let all = found.iter().map(|(value, index)| F32At { value: *value as f32, index: *index });
    let result = tree(operation, all.collect());
    assert_eq!((result.value.to_bits(), result.index), (canonical, index));
    let whole = |value: f64| if value.is_finite() { value as i32 } else { 7 };
    let found: Vec<_> =
        found.iter().map(|(value, index)| (f64::from(whole(*value)), *index)).collect();
    let (value, index) = first(&found, is_before);
    let all = found.iter().map(|(value, index)| I32At { value: *value as i32, index: *index });
    let expected = I32At { value: value as i32, index };
    assert_eq!(tree(operation, all.collect()), expected);
    let all =
        found.iter().map(|(value, index)| I64At { value: *value as i64, index: wide(*index) });
    let expected = I64At { value: value as i64, index: wide(index) };
    assert_eq!(tree(operation, all.collect()), expected);
}

/// The reference of the other integers has 128 bits itself.
#[test]
fn integers_of_128_bits_wrap() {
    let (most, least) = (i128::MAX, i128::MIN);
    for (operation, left, right, result) in [
        (Arithmetic::Add, most, 1, least),
        (Arithmetic::Subtract, least, 1, most),
        (Arithmetic::Multiply, most, 2, -2),
        (Arithmetic::Divide, least, -1, least),
        (Arithmetic::Minimum, least, most, least),
        (Arithmetic::Maximum, least, most, most),
        (Arithmetic::And, -1, 1 << 100, 1 << 100),
        (Arithmetic::Xor, -1, most, least),
    ] {
        assert_eq!(computed(operation, &[left; 3], &[right; 3]), [result; 3], "{operation}");
    }
    assert_eq!(computed(Arithmetic::Add, &[u128::MAX], &[2]), [1]);
    assert_eq!(computed(Arithmetic::Maximum, &[u128::MAX], &[2]), [u128::MAX]);
}

#[test]
fn types_have_the_operations_of_their_kind() {
    let names = |data_type| Arithmetic::names_for(data_type);
    assert_eq!(names(DataType::Bf16), "add, sub, mul, div, min, max");
    assert_eq!(names(DataType::ComplexF64), "add, sub, mul");
    assert_eq!(names(DataType::I32At), "min, max");
    assert_eq!(names(DataType::I128), "add, sub, mul, div, min, max, and, or, xor");
}
