//! Types of array elements, and reduction operations on them.

use crate::errors::ArrayError;
use pyo3::prelude::*;
use std::fmt;
use tradewind::{DataType, OpOnBytes};

/// Type of the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Number(DataType),
    /// A byte that is 0 or 1.
    Bool,
    /// Two numbers of this type.
    Complex(DataType),
    /// Any other: it is moved, never combined.
    Other,
}

/// Type and size in bytes of the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elements {
    pub(crate) kind: Kind,
    pub(crate) size: usize,
}

fn number(is_float: bool, is_signed: bool, size: usize) -> Kind {
    let types = match (is_float, is_signed) {
        (true, _) => &[DataType::F32, DataType::F64][..],
        (false, true) => &[DataType::I8, DataType::I16, DataType::I32, DataType::I64],
        (false, false) => &[DataType::U8, DataType::U16, DataType::U32, DataType::U64],
    };
    types.iter().find(|kind| kind.bytes() == size).map_or(Kind::Other, |kind| Kind::Number(*kind))
}

impl Elements {
    /// Returns whether a format has references to objects, outside the names of fields (`:name:`).
    pub(crate) fn has_objects(format: &[u8]) -> bool {
        format.split(|letter| *letter == b':').step_by(2).any(|part| part.contains(&b'O'))
    }

    /// The elements of a format of the module `struct`, as the buffer protocol names it.
    pub(crate) fn of_format(format: &[u8], size: usize) -> Self {
        let (order, format) = match format {
            [order @ (b'@' | b'=' | b'<' | b'>' | b'!'), rest @ ..] => (Some(*order), rest),
            _ => (None, format),
        };
        // All machines that this runs on are little-endian.
        let is_swapped = matches!(order, Some(b'>' | b'!')) && size > 1;
        let kind = match format {
            _ if is_swapped => Kind::Other,
            b"?" => Kind::Bool,
            b"b" | b"h" | b"i" | b"l" | b"q" | b"n" => number(false, true, size),
            b"B" | b"H" | b"I" | b"L" | b"Q" | b"N" => number(false, false, size),
            b"f" | b"d" => number(true, true, size),
            b"Zf" | b"Zd" => complex(size),
            _ => Kind::Other,
        };
        Elements { kind, size }
    }

    /// The elements of a type of DLPack, of so many lanes of whole bytes.
    pub(crate) fn of_dlpack(code: u8, bits: u8, lanes: u16) -> Option<Self> {
        let size = usize::from(bits / 8);
        if !bits.is_multiple_of(8) || size == 0 {
            return None;
        }
        let kind = match code {
            _ if lanes != 1 => Kind::Other,
            0 => number(false, true, size),
            1 => number(false, false, size),
            2 => number(true, true, size),
            5 => complex(size),
            6 => Kind::Bool,
            _ => Kind::Other,
        };
        Some(Elements { kind, size: size * usize::from(lanes) })
    }

    /// The elements with a name as in numpy, such as `float64`.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let (kind, bits) = name.split_at(name.find(|letter: char| letter.is_ascii_digit())?);
        let size = bits.parse::<usize>().ok().filter(|bits| bits.is_multiple_of(8))? / 8;
        let kind = match kind {
            "int" => number(false, true, size),
            "uint" => number(false, false, size),
            "float" => number(true, true, size),
            "complex" => complex(size),
            "bool" => Kind::Bool,
            "bytes" => Kind::Other,
            _ => return None,
        };
        Some(Elements { kind, size })
    }
}

fn complex(size: usize) -> Kind {
    match number(true, true, size / 2) {
        Kind::Number(part) => Kind::Complex(part),
        _ => Kind::Other,
    }
}

impl fmt::Display for Elements {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Number(number) => {
                let kind = match number {
                    DataType::F32 | DataType::F64 => "float",
                    DataType::I8 | DataType::I16 | DataType::I32 | DataType::I64 => "int",
                    _ => "uint",
                };
                write!(formatter, "{kind}{}", 8 * self.size)
            }
            Kind::Bool => formatter.write_str("bool"),
            Kind::Complex(_) => write!(formatter, "complex{}", 8 * self.size),
            Kind::Other => write!(formatter, "elements of {} bytes", self.size),
        }
    }
}

/// Operation of a reduction.
///
/// On arrays of bool AND, OR, XOR, MIN and MAX are the logical operations. Complex numbers have SUM.
/// AND, OR and XOR are bitwise on integers.
#[pyclass(eq, eq_int, frozen, hash, module = "tradewind", rename_all = "UPPERCASE", from_py_object)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Sum,
    Product,
    Min,
    Max,
    And,
    Or,
    Xor,
}

impl Op {
    /// The operation on elements of this type.
    pub(crate) fn on(self, elements: Elements) -> PyResult<OpOnBytes> {
        let refused = |why: &str| {
            let name = format!("{self:?}").to_uppercase();
            let text = format!("{name} does not apply to {elements}: {why}");
            Err(ArrayError::new_err(text))
        };
        let data_type = match (elements.kind, self) {
            (Kind::Number(number), _) => number,
            (Kind::Bool, Op::Sum | Op::Product) => {
                return refused("use OR or AND, or an array of integers");
            }
            (Kind::Bool, _) => DataType::U8,
            (Kind::Complex(part), Op::Sum) => part,
            (Kind::Complex(_), _) => {
                return refused("SUM is the only operation on complex numbers");
            }
            (Kind::Other, _) => {
                return refused("use integers of 8 to 64 bits, float32, float64, bool or complex");
            }
        };
        let is_float = matches!(data_type, DataType::F32 | DataType::F64);
        if is_float && matches!(self, Op::And | Op::Or | Op::Xor) {
            return refused("use an array of integers or of bool");
        }
        Ok(tradewind::Op::from(self).on_bytes(data_type))
    }
}

impl From<Op> for tradewind::Op {
    fn from(op: Op) -> Self {
        match op {
            Op::Sum => tradewind::Op::Sum,
            Op::Product => tradewind::Op::Product,
            Op::Min => tradewind::Op::Minimum,
            Op::Max => tradewind::Op::Maximum,
            Op::And => tradewind::Op::And,
            Op::Or => tradewind::Op::Or,
            Op::Xor => tradewind::Op::Xor,
        }
    }
}
