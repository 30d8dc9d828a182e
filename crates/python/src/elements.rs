//! Types of array elements, and reduction operations on them.

use crate::errors::ArrayError;
use pyo3::prelude::*;
use std::fmt;
use tradewind::{DataType, OpOnBytes};

/// Type of the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An integer, a floating-point or a complex number.
    Number(DataType),
    /// A byte that is 0 or 1.
    Bool,
    /// Any other: it is moved, never combined.
    Other,
}

/// Type and size in bytes of the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elements {
    pub(crate) kind: Kind,
    pub(crate) size: usize,
}

/// Types of numbers, by the kind that their names have.
const NUMBERS: [(&str, &[DataType]); 4] = [
    ("int", &[DataType::I8, DataType::I16, DataType::I32, DataType::I64]),
    ("uint", &[DataType::U8, DataType::U16, DataType::U32, DataType::U64]),
    ("float", &[DataType::F16, DataType::F32, DataType::F64]),
    ("complex", &[DataType::ComplexF32, DataType::ComplexF64]),
];

/// The number of a kind with this size.
fn number(kind: &str, size: usize) -> Kind {
    let types = NUMBERS.iter().find(|(name, _)| *name == kind).map_or(&[][..], |(_, types)| types);
    let found = types.iter().find(|one| one.bytes() == size);
    found.map_or(Kind::Other, |found| Kind::Number(*found))
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
            b"b" | b"h" | b"i" | b"l" | b"q" | b"n" => number("int", size),
            b"B" | b"H" | b"I" | b"L" | b"Q" | b"N" => number("uint", size),
            b"e" | b"f" | b"d" => number("float", size),
            b"Zf" | b"Zd" => number("complex", size),
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
            0 => number("int", size),
            1 => number("uint", size),
            2 => number("float", size),
            4 if size == 2 => Kind::Number(DataType::Bf16),
            5 => number("complex", size),
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
            "bool" => Kind::Bool,
            "bytes" => Kind::Other,
            "bfloat" if size == 2 => Kind::Number(DataType::Bf16),
            kind if NUMBERS.iter().any(|(name, _)| *name == kind) => number(kind, size),
            _ => return None,
        };
        Some(Elements { kind, size })
    }
}

impl fmt::Display for Elements {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Number(number) => {
                let kind = NUMBERS.iter().find(|(_, types)| types.contains(&number));
                let kind = kind.map_or("bfloat", |(name, _)| name);
                write!(formatter, "{kind}{}", 8 * self.size)
            }
            Kind::Bool => formatter.write_str("bool"),
            Kind::Other => write!(formatter, "elements of {} bytes", self.size),
        }
    }
}

/// Operation of a reduction.
///
/// On arrays of bool AND, OR, XOR, MIN and MAX are the logical operations. Complex numbers have SUM
/// and PRODUCT. AND, OR and XOR are bitwise on integers.
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
        let is_bitwise = matches!(self, Op::And | Op::Or | Op::Xor);
        let data_type = match (elements.kind, self) {
            (Kind::Number(DataType::ComplexF32 | DataType::ComplexF64), Op::Min | Op::Max) => {
                return refused("complex numbers have SUM and PRODUCT");
            }
            (Kind::Number(number), _) if is_bitwise && number.is_float() => {
                return refused("use an array of integers or of bool");
            }
            (Kind::Number(number), _) => number,
            (Kind::Bool, Op::Sum | Op::Product) => {
                return refused("use OR or AND, or an array of integers");
            }
            (Kind::Bool, _) => DataType::U8,
            (Kind::Other, _) => {
                return refused(
                    "use integers of 8 to 64 bits, float16 to float64, bfloat16, bool or complex",
                );
            }
        };
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
