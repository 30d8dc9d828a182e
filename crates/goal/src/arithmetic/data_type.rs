//! The data types that local operations compute on, and the Rust types that stand for them.

use std::fmt;
use std::str::FromStr;

use super::unknown_name::UnknownName;

/// The type of the elements that a local operation computes on. The discriminants are part of the
/// schedule's layout.
///
/// ```
/// use goal::arithmetic::DataType;
///
/// assert_eq!(DataType::F32.bytes(), 4);
/// assert_eq!("i16".parse(), Ok(DataType::I16));
/// assert_eq!(DataType::from_u8(11), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DataType {
    /// Unsigned integer of 8 bits.
    U8 = 0,
    /// Unsigned integer of 16 bits.
    U16 = 1,
    /// Unsigned integer of 32 bits.
    U32 = 2,
    /// Unsigned integer of 64 bits.
    U64 = 3,
    /// Signed integer of 8 bits, two's complement.
    I8 = 4,
    /// Signed integer of 16 bits, two's complement.
    I16 = 5,
    /// Signed integer of 32 bits, two's complement.
    I32 = 6,
    /// Signed integer of 64 bits, two's complement.
    I64 = 7,
    /// Floating-point number, IEEE 754 binary32.
    F32 = 8,
    /// Floating-point number, IEEE 754 binary64.
    F64 = 9,
    /// One bit, with the logical operations only. Eight of them are packed in each byte, the first one
    /// in its lowest bit.
    Bit = 10,
}

impl DataType {
    /// All data types; each stands at the index that is its discriminant.
    pub const ALL: [Self; 11] = [
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F32,
        Self::F64,
        Self::Bit,
    ];

    /// The data type with this discriminant, if there is one.
    #[inline]
    pub const fn from_u8(discriminant: u8) -> Option<Self> {
        if (discriminant as usize) < Self::ALL.len() {
            Some(Self::ALL[discriminant as usize])
        } else {
            None
        }
    }

    /// The name: that of the Rust type, `u8` … `f64`, or `bit`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Bit => "bit",
        }
    }

    /// The size of one element in bytes: 1, 2, 4 or 8. Bits come in whole bytes, so theirs is 1.
    #[inline]
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bit => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Returns `true` if the elements are floating-point numbers.
    #[inline]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for DataType {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::ALL.into_iter().find(|data_type| data_type.name() == name).ok_or_else(|| {
            UnknownName {
                kind: "data type",
                name: name.to_owned(),
                known: Self::ALL.map(Self::name).to_vec(),
            }
        })
    }
}

mod sealed {
    /// Keeps [`Element`](super::Element) to the types for which a [`DataType`](super::DataType)
    /// exists.
    pub trait Sealed {}
}

/// A Rust type for the elements of a [`DataType`].
///
/// Implemented by `u8` … `u64`, `i8` … `i64`, `f32` and `f64`, and sealed: engines support no
/// others.
///
/// ```
/// use goal::arithmetic::{DataType, Element};
///
/// fn data_type_of<T: Element>(_: &[T]) -> DataType {
///     T::DATA_TYPE
/// }
/// assert_eq!(data_type_of(&[0.5_f32]), DataType::F32);
/// ```
pub trait Element: bytemuck::Pod + Send + Sync + sealed::Sealed {
    /// The data type of which this is the Rust type.
    const DATA_TYPE: DataType;
}

macro_rules! elements {
    ($($rust:ty => $data_type:ident),+ $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DATA_TYPE: DataType = DataType::$data_type;
        }
        const _: () = assert!(size_of::<$rust>() == DataType::$data_type.bytes());
    )+};
}

elements! {
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    f32 => F32, f64 => F64,
}
