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
/// assert_eq!(DataType::ComplexF32.bytes(), 8);
/// assert_eq!(DataType::from_u8(21), None);
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
    /// Unsigned integer of 128 bits.
    U128 = 11,
    /// Signed integer of 128 bits, two's complement.
    I128 = 12,
    /// Floating-point number, IEEE 754 binary16. Each operation is rounded to it.
    F16 = 13,
    /// Floating-point number with the exponent of an `f32` and 8 bits of precision, bfloat16. Each
    /// operation is rounded to it.
    Bf16 = 14,
    /// Complex number: the real and the imaginary part as `f32`. Sums, differences and products
    /// only.
    ComplexF32 = 15,
    /// Complex number: the real and the imaginary part as `f64`. Sums, differences and products
    /// only.
    ComplexF64 = 16,
    /// [`I32At`]. Values with an index have minimum and maximum only.
    I32At = 17,
    /// [`I64At`].
    I64At = 18,
    /// [`F32At`].
    F32At = 19,
    /// [`F64At`].
    F64At = 20,
}

/// Defines values with their indices.
macro_rules! located {
    ($($(#[$note:meta])* $name:ident: $value:ty, $index:ty;)+) => {$(
        $(#[$note])*
        #[derive(Debug, Clone, Copy, PartialEq, Default, bytemuck::Pod, bytemuck::Zeroable)]
        #[repr(C)]
        pub struct $name {
            /// The value, which is compared.
            pub value: $value,
            /// The number of a rank, or of a place in an array.
            pub index: $index,
        }
    )+};
}

located! {
    /// An `i32` and its index, for the minimum or maximum and where it is, as `MPI_MINLOC` and
    /// `MPI_MAXLOC` find it. Of equal values the one with the lowest index is the result.
    I32At: i32, u32;
    /// An `i64` and its index; see [`I32At`].
    I64At: i64, u64;
    /// An `f32` and its index; see [`I32At`]. −0 is less than +0, and a NaN is both the minimum and the
    /// maximum.
    F32At: f32, u32;
    /// An `f64` and its index; see [`F32At`].
    F64At: f64, u64;
}

impl DataType {
    /// All data types; each stands at the index that is its discriminant.
    pub const ALL: [Self; 21] = [
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
        Self::U128,
        Self::I128,
        Self::F16,
        Self::Bf16,
        Self::ComplexF32,
        Self::ComplexF64,
        Self::I32At,
        Self::I64At,
        Self::F32At,
        Self::F64At,
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

    /// The name: that of the Rust type in lower case, such as `u8` or `f64at`, or `bit`.
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
            Self::U128 => "u128",
            Self::I128 => "i128",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::ComplexF32 => "complexf32",
            Self::ComplexF64 => "complexf64",
            Self::I32At => "i32at",
            Self::I64At => "i64at",
            Self::F32At => "f32at",
            Self::F64At => "f64at",
        }
    }

    /// The size of one element in bytes: 1, 2, 4, 8 or 16. Bits come in whole bytes, so theirs is 1.
    #[inline]
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bit => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
            Self::ComplexF32 | Self::I32At | Self::F32At => 8,
            Self::U128 | Self::I128 => 16,
            Self::ComplexF64 | Self::I64At | Self::F64At => 16,
        }
    }

    /// Returns `true` if the elements are floating-point numbers, complex ones included: sums and
    /// products are rounded.
    #[inline]
    pub const fn is_float(self) -> bool {
        matches!(
            self,
            Self::F16 | Self::Bf16 | Self::F32 | Self::F64 | Self::ComplexF32 | Self::ComplexF64
        )
    }

    /// Returns `true` for bits, integers of up to 64 bits, `f32` and `f64`. Every engine has these.
    #[inline]
    pub const fn is_basic(self) -> bool {
        self as u8 <= Self::Bit as u8
    }

    /// Returns `true` for the values with an index.
    #[inline]
    pub const fn is_located(self) -> bool {
        matches!(self, Self::I32At | Self::I64At | Self::F32At | Self::F64At)
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
/// Implemented by the integers, `f32` and `f64`, [`half::f16`] and [`half::bf16`],
/// [`num_complex::Complex`] of `f32` and `f64`, and [`I32At`] … [`F64At`], and sealed: engines
/// support no others.
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
    f32 => F32, f64 => F64, u128 => U128, i128 => I128,
    half::f16 => F16, half::bf16 => Bf16,
    num_complex::Complex<f32> => ComplexF32, num_complex::Complex<f64> => ComplexF64,
    I32At => I32At, I64At => I64At, F32At => F32At, F64At => F64At,
}
