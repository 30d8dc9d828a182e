//! Local operations, defined once for every engine.
//!
//! An engine hands over bytes and names an [`Arithmetic`] and a [`DataType`]; it never computes on
//! its own. Whatever engine ran a schedule, and whichever rank combined two values, the resulting
//! bytes are therefore the same:
//!
//! * **Memory** holds the elements little-endian and back to back. Blocks need no alignment.
//! * **Integers wrap**, in division too: the smallest signed value divided by −1 is itself.
//! * **Integer division by zero** puts 0 into the element concerned. All other elements are
//!   computed as usual, and only then is [`ArithmeticError::DivisionByZero`] returned, so that an
//!   engine can finish its run before it fails it.
//! * **Floating-point numbers** follow IEEE 754-2019 and round to nearest, ties to even. Division
//!   by zero is no error: it returns an infinity or a NaN. Subnormal numbers are kept.
//! * **Minimum and maximum** of floating-point numbers are the operations `minimum` and `maximum`
//!   of IEEE 754-2019, section 9.6: a NaN on either side yields a NaN, and −0 is less than +0.
//! * **A NaN result is always the canonical one**: quiet, positive, without payload (`0x7fc00000`
//!   for `f32`, `0x7ff8000000000000` for `f64`, `0x7e00` for `f16`, `0x7fc0` for `bf16`). Parts
//!   of complex numbers and values with an index follow the rule. Without it the payload would
//!   depend on the machine and on operand order.
//! * **And, or and xor** are defined on integers and bits, and are the only operations on bits.
//! * **Numbers of 16 bits** are rounded after each operation: a sum of many ones in `bf16` stays at 256.
//! * **Complex numbers** have sums, differences and products: (a + bi)(c + di) is computed as
//!   (ac − bd) + (ad + bc)i, each step rounded.
//! * **Values with an index** ([`F64At`] and others) have minimum and maximum: the extreme value and
//!   its index. Of equal values the one with the lowest index is the result.

mod data_type;
mod error;
mod kernels;
mod numbers;
mod operation;
mod unknown_name;

pub use data_type::{DataType, Element, F32At, F64At, I32At, I64At};
pub use error::ArithmeticError;
pub use half::{bf16, f16};
pub use num_complex::Complex;
pub use operation::Arithmetic;
pub use unknown_name::UnknownName;

use kernels::{InPlaceLeft, InPlaceRight, ThreeAddress};

/// Computes `destination[i] = left[i] OPERATION right[i]` for every element `i`.
///
/// # Errors
/// Any [`ArithmeticError`]. After [`ArithmeticError::DivisionByZero`] all of `destination` has been
/// written, after the others nothing has.
///
/// # Examples
/// ```
/// use goal::arithmetic::{Arithmetic, ArithmeticError, DataType, apply};
///
/// let (left, right) = ([200, 7], [100, 2]);
/// let mut destination = [0; 2];
/// apply(Arithmetic::Add, DataType::U8, &left, &right, &mut destination)?;
/// assert_eq!(destination, [44, 9]); // 300 wraps to 44
///
/// let outcome = apply(Arithmetic::Divide, DataType::U8, &left, &[0, 2], &mut destination);
/// assert_eq!(outcome, Err(ArithmeticError::DivisionByZero { element: 0 }));
/// assert_eq!(destination, [0, 3]); // the other element was computed all the same
/// # Ok::<(), ArithmeticError>(())
/// ```
pub fn apply(
    operation: Arithmetic,
    data_type: DataType,
    left: &[u8],
    right: &[u8],
    destination: &mut [u8],
) -> Result<(), ArithmeticError> {
    check_lengths(data_type, left.len(), right.len(), destination.len())?;
    let blocks = ThreeAddress { left, right, destination };
    kernels::run(operation, data_type, blocks)
}

/// Computes `accumulator[i] = accumulator[i] OPERATION right[i]`: [`apply`] with the left operand
/// as destination.
///
/// # Errors
/// As [`apply`].
///
/// # Examples
/// ```
/// use goal::arithmetic::{Arithmetic, DataType, apply_in_place_left};
///
/// let mut accumulator = 5_i64.to_le_bytes();
/// apply_in_place_left(Arithmetic::Subtract, DataType::I64, &mut accumulator, &7_i64.to_le_bytes())?;
/// assert_eq!(i64::from_le_bytes(accumulator), -2);
/// # Ok::<(), goal::arithmetic::ArithmeticError>(())
/// ```
pub fn apply_in_place_left(
    operation: Arithmetic,
    data_type: DataType,
    accumulator: &mut [u8],
    right: &[u8],
) -> Result<(), ArithmeticError> {
    check_lengths(data_type, accumulator.len(), right.len(), accumulator.len())?;
    kernels::run(operation, data_type, InPlaceLeft { accumulator, right })
}

/// Computes `accumulator[i] = left[i] OPERATION accumulator[i]`: [`apply`] with the right operand
/// as destination.
///
/// # Errors
/// As [`apply`].
///
/// # Examples
/// ```
/// use goal::arithmetic::{Arithmetic, DataType, apply_in_place_right};
///
/// let mut accumulator = 2_f64.to_le_bytes();
/// apply_in_place_right(Arithmetic::Divide, DataType::F64, &1_f64.to_le_bytes(), &mut accumulator)?;
/// assert_eq!(f64::from_le_bytes(accumulator), 0.5);
/// # Ok::<(), goal::arithmetic::ArithmeticError>(())
/// ```
pub fn apply_in_place_right(
    operation: Arithmetic,
    data_type: DataType,
    left: &[u8],
    accumulator: &mut [u8],
) -> Result<(), ArithmeticError> {
    check_lengths(data_type, left.len(), accumulator.len(), accumulator.len())?;
    kernels::run(operation, data_type, InPlaceRight { left, accumulator })
}

/// Refuses blocks of different lengths or with a broken last element.
fn check_lengths(
    data_type: DataType,
    left: usize,
    right: usize,
    destination: usize,
) -> Result<(), ArithmeticError> {
    if left != right || left != destination {
        return Err(ArithmeticError::LengthsDiffer { left, right, destination });
    }
    if !left.is_multiple_of(data_type.bytes()) {
        return Err(ArithmeticError::NotWholeElements { bytes: left, data_type });
    }
    Ok(())
}
