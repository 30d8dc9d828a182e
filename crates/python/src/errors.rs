//! Exceptions. Their classes are Python's, because some have two bases.

use pyo3::import_exception;
use pyo3::prelude::*;
use tradewind::Error;

import_exception!(tradewind.errors, ArgumentError);
import_exception!(tradewind.errors, ArrayError);
import_exception!(tradewind.errors, MismatchError);
import_exception!(tradewind.errors, NodeUnreachableError);
import_exception!(tradewind.errors, OutOfMemoryError);
import_exception!(tradewind.errors, RankFailedError);
import_exception!(tradewind.errors, TruncatedError);
import_exception!(tradewind.errors, WaitTimeoutError);

/// The base class of the others.
mod base {
    pyo3::import_exception!(tradewind.errors, Error);
}

/// An error of this module, of the base class.
pub(crate) fn error(text: impl Into<String>) -> PyErr {
    base::Error::new_err(text.into())
}

/// The exception of an error.
#[cold]
pub(crate) fn exception(error: &Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::RankFailed { rank, .. } | Error::Panicked { rank, .. } => {
            RankFailedError::new_err((text, *rank))
        }
        Error::NodeUnreachable { node, .. } => NodeUnreachableError::new_err((text, *node)),
        Error::Timeout { .. } => WaitTimeoutError::new_err(text),
        Error::Mismatch { .. } | Error::BlockLength { .. } | Error::MissingEdge { .. } => {
            MismatchError::new_err(text)
        }
        Error::Truncated { .. } => TruncatedError::new_err(text),
        Error::NoMemory(_) => OutOfMemoryError::new_err(text),
        Error::Argument { .. }
        | Error::Buffer(_)
        | Error::BufferLength { .. }
        | Error::BufferCount { .. }
        | Error::Collective(_) => ArgumentError::new_err(text),
        _ => base::Error::new_err(text),
    }
}
