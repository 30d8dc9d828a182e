//! The operations a local operation can compute.

use std::fmt;
use std::str::FromStr;

use super::data_type::DataType;
use super::unknown_name::UnknownName;

/// Local operation on two elements. The discriminants are part of the schedule's
/// layout.
///
/// [The module](super) defines the results at the limits of the data types.
///
/// ```
/// use goal::arithmetic::{Arithmetic, DataType};
///
/// assert_eq!("max".parse(), Ok(Arithmetic::Maximum));
/// assert_eq!(Arithmetic::from_u8(0), Some(Arithmetic::Add));
/// assert!(!Arithmetic::Xor.applies_to(DataType::F64));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Arithmetic {
    /// Left plus right.
    Add = 0,
    /// Left minus right.
    Subtract = 1,
    /// Left times right.
    Multiply = 2,
    /// Left divided by right; integers are rounded towards zero.
    Divide = 3,
    /// The lesser of left and right.
    Minimum = 4,
    /// The greater of left and right.
    Maximum = 5,
    /// Bitwise and; integers and bits only.
    And = 6,
    /// Bitwise or; integers and bits only.
    Or = 7,
    /// Bitwise exclusive or; integers and bits only.
    Xor = 8,
}

impl Arithmetic {
    /// All operations; each stands at the index that is its discriminant.
    pub const ALL: [Self; 9] = [
        Self::Add,
        Self::Subtract,
        Self::Multiply,
        Self::Divide,
        Self::Minimum,
        Self::Maximum,
        Self::And,
        Self::Or,
        Self::Xor,
    ];

    /// The operation with this discriminant, if there is one.
    #[inline]
    pub const fn from_u8(discriminant: u8) -> Option<Self> {
        if (discriminant as usize) < Self::ALL.len() {
            Some(Self::ALL[discriminant as usize])
        } else {
            None
        }
    }

    /// The name: `add`, `sub`, `mul`, `div`, `min`, `max`, `and`, `or` or `xor`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Subtract => "sub",
            Self::Multiply => "mul",
            Self::Divide => "div",
            Self::Minimum => "min",
            Self::Maximum => "max",
            Self::And => "and",
            Self::Or => "or",
            Self::Xor => "xor",
        }
    }

    /// Returns `true` if the operation is defined on the data type: all are on integers, the bitwise
    /// ones alone on bits, sums, differences and products on complex numbers, minimum and maximum on
    /// values with an index, all but the bitwise ones on floating-point numbers.
    #[inline]
    pub const fn applies_to(self, data_type: DataType) -> bool {
        match data_type {
            DataType::Bit => self.is_bitwise(),
            DataType::ComplexF32 | DataType::ComplexF64 => {
                matches!(self, Self::Add | Self::Subtract | Self::Multiply)
            }
            _ if data_type.is_located() => matches!(self, Self::Minimum | Self::Maximum),
            _ if data_type.is_float() => !self.is_bitwise(),
            _ => true,
        }
    }

    /// The names of the operations that are defined on a data type, with commas.
    pub fn names_for(data_type: DataType) -> String {
        let defined = Self::ALL.into_iter().filter(|operation| operation.applies_to(data_type));
        defined.map(Self::name).collect::<Vec<_>>().join(", ")
    }

    /// Returns `true` for and, or and xor.
    #[inline]
    pub const fn is_bitwise(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Xor)
    }
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Arithmetic {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::ALL.into_iter().find(|operation| operation.name() == name).ok_or_else(|| {
            UnknownName {
                kind: "local operation",
                name: name.to_owned(),
                known: Self::ALL.map(Self::name).to_vec(),
            }
        })
    }
}
