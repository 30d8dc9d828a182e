//! Errors of local operations.

use super::data_type::DataType;
use super::operation::Arithmetic;

/// Error of a local operation that could not be computed, or not for every element.
///
/// Unless it is [`DivisionByZero`](Self::DivisionByZero), nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArithmeticError {
    /// The blocks are not equally long.
    #[error(
        "the blocks of a local operation must be equally long, but left has {left} bytes, \
         right {right} and the destination {destination}"
    )]
    LengthsDiffer {
        /// Bytes in the left operand.
        left: usize,
        /// Bytes in the right operand.
        right: usize,
        /// Bytes in the destination; in place, those of the accumulator.
        destination: usize,
    },
    /// The blocks end in the middle of an element.
    #[error(
        "{bytes} bytes are not a whole number of {data_type} elements; use a multiple of {} bytes",
        .data_type.bytes()
    )]
    NotWholeElements {
        /// Bytes in each block.
        bytes: usize,
        /// The stated data type of the blocks.
        data_type: DataType,
    },
    /// The operation is not defined on the data type; see [`Arithmetic::applies_to`].
    #[error(
        "{operation} is not defined on {data_type}; use one of {}",
        Arithmetic::names_for(*.data_type)
    )]
    NotApplicable {
        /// The requested operation.
        operation: Arithmetic,
        /// The data type it is not defined on.
        data_type: DataType,
    },
    /// An integer was divided by zero. All elements have been written, those divided by zero as 0.
    #[error(
        "the integer at element {element} was divided by zero; \
         make the divisor nonzero or compute on f32 or f64"
    )]
    DivisionByZero {
        /// Index of the first element that was divided by zero, counted in elements from 0.
        element: usize,
    },
}
