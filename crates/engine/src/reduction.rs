//! Local operations on bytes of the segment.

use crate::error::Error;
use goal::arithmetic::{self, Arithmetic, ArithmeticError, DataType};
use shm::memory::{Operands, SegmentMemory};
use shm::segment::Offset;

/// Computes destination = left ∘ right in the segment. Returns whether an integer was divided by
/// zero.
pub(crate) fn combine(
    memory: &SegmentMemory,
    (operation, data_type): (Arithmetic, DataType),
    left: Offset,
    right: Offset,
    destination: Offset,
    length: u64,
) -> Result<bool, Error> {
    memory.combine(left, right, destination, length, |operands| match operands {
        Operands::Apart { left, right, destination } => {
            is_division(arithmetic::apply(operation, data_type, left, right, destination))
        }
        Operands::OntoLeft { left, right } => {
            is_division(arithmetic::apply_in_place_left(operation, data_type, left, right))
        }
        Operands::OntoRight { left, right } => {
            is_division(arithmetic::apply_in_place_right(operation, data_type, left, right))
        }
        Operands::AllOne(bytes) => {
            let copy = bytes.to_vec();
            is_division(arithmetic::apply_in_place_left(operation, data_type, bytes, &copy))
        }
    })?
}

/// Returns whether the outcome is a division by zero: after any other error nothing has been
/// computed.
pub(crate) fn is_division(outcome: Result<(), ArithmeticError>) -> Result<bool, Error> {
    match outcome {
        Ok(()) => Ok(false),
        Err(ArithmeticError::DivisionByZero { .. }) => Ok(true),
        Err(error) => Err(Error::of_reduction(error)),
    }
}
