//! Encoding of values in messages, and the macro that declares a kind of message.
//!
//! Numbers are little-endian; a text is its length in one byte and UTF-8; a struct is its fields in
//! order; an enum is its code in one byte and the fields of the variant. There is no padding and no
//! length of the whole: a broker delivers whole messages, and [`decode`] rejects one with bytes
//! left over. Decoding never panics: messages come from processes that may send any bytes.

use queues::id::{QueueName, SourceName};
use shm::process::StartTime;

/// Longest encoded text in bytes. A longer one is truncated at a character: two names of programs
/// and a reason fit into a message.
const MAX_TEXT: usize = u8::MAX as usize - 64;

/// Rest of a received message.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }
}

/// A value in a message.
pub(super) trait Field: Sized {
    /// Appends the value to a message.
    fn write(&self, message: &mut Vec<u8>);

    /// Reads the value; `None` at the end of the message or for an invalid value.
    fn read(message: &mut Reader<'_>) -> Option<Self>;
}

/// Encodes a message.
pub(super) fn encode(message: &impl Field) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    message.write(&mut bytes);
    bytes
}

/// Encodes a message with a number before it.
pub(super) fn encode_numbered(number: u32, message: &impl Field) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    number.write(&mut bytes);
    message.write(&mut bytes);
    bytes
}

/// Decodes a message, if all its bytes belong to it and are valid.
pub(super) fn decode<M: Field>(bytes: &[u8]) -> Option<M> {
    let mut reader = Reader(bytes);
    let message = M::read(&mut reader)?;
    reader.0.is_empty().then_some(message)
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Field for $number {
            fn write(&self, message: &mut Vec<u8>) {
                message.extend_from_slice(&self.to_le_bytes());
            }

            fn read(message: &mut Reader<'_>) -> Option<Self> {
                let bytes = message.take(size_of::<$number>())?;
                Some(<$number>::from_le_bytes(bytes.try_into().ok()?))
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, u128);

impl<A: Field, B: Field> Field for (A, B) {
    fn write(&self, message: &mut Vec<u8>) {
        self.0.write(message);
        self.1.write(message);
    }

    fn read(message: &mut Reader<'_>) -> Option<(A, B)> {
        Some((A::read(message)?, B::read(message)?))
    }
}

/// Values that are encoded as another one, with the two conversions.
macro_rules! encoded_as {
    ($($value:ty as $number:ty: $number_of:expr, $value_of:expr;)*) => {$(
        impl $crate::codec::Field for $value {
            fn write(&self, message: &mut Vec<u8>) {
                let number: $number = $number_of(self);
                $crate::codec::Field::write(&number, message);
            }

            fn read(message: &mut $crate::codec::Reader<'_>) -> Option<Self> {
                $value_of(<$number as $crate::codec::Field>::read(message)?)
            }
        }
    )*};
}
pub(super) use encoded_as;

encoded_as! {
    bool as u8: |value: &bool| u8::from(*value), |code| match code {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    };
    QueueName as u16: |name: &QueueName| name.number(), QueueName::new;
    SourceName as u16: |name: &SourceName| name.number(), SourceName::new;
    StartTime as u64: |time: &StartTime| time.0, |time| Some(StartTime(time));
}

impl Field for String {
    fn write(&self, message: &mut Vec<u8>) {
        let text = &self.as_bytes()[..self.floor_char_boundary(MAX_TEXT)];
        (text.len() as u8).write(message);
        message.extend_from_slice(text);
    }

    fn read(message: &mut Reader<'_>) -> Option<String> {
        let bytes = u8::read(message)?;
        let text = message.take(bytes.into())?;
        std::str::from_utf8(text).ok().map(str::to_owned)
    }
}

/// Encodes structs as their fields, in this order.
macro_rules! fields {
    ($($message:ident { $($field:ident),* $(,)? })*) => {$(
        impl $crate::codec::Field for $message {
            fn write(&self, message: &mut Vec<u8>) {
                $($crate::codec::Field::write(&self.$field, message);)*
            }

            fn read(message: &mut $crate::codec::Reader<'_>) -> Option<Self> {
                // Fields are evaluated in the order in which they are written here.
                Some($message { $($field: $crate::codec::Field::read(message)?),* })
            }
        }
    )*};
}
pub(super) use fields;

/// Declares an enum with a code for each variant, and its encoding: the code and the fields.
///
/// A variant is written with its code before it: `3 => Named { name: QueueName }`. A code is never
/// given to another meaning, since processes of two versions may meet on a node.
macro_rules! messages {
    (
        $(#[$of_enum:meta])*
        $visibility:vis enum $message:ident {
            $(
                $(#[$of_variant:meta])*
                $code:literal => $variant:ident
                    $({ $($(#[$of_field:meta])* $field:ident: $kind:ty),* $(,)? })?
                    $(($($value:ident: $value_kind:ty),* $(,)?))?
            ),* $(,)?
        }
    ) => {
        $(#[$of_enum])*
        $visibility enum $message {
            $(
                $(#[$of_variant])*
                $variant $({ $($(#[$of_field])* $field: $kind),* })? $(($($value_kind),*))?
            ),*
        }

        impl $crate::codec::Field for $message {
            fn write(&self, message: &mut Vec<u8>) {
                match self {
                    $($message::$variant $({ $($field),* })? $(($($value),*))? => {
                        message.push($code);
                        $($($crate::codec::Field::write($field, message);)*)?
                        $($($crate::codec::Field::write($value, message);)*)?
                    })*
                }
            }

            fn read(message: &mut $crate::codec::Reader<'_>) -> Option<Self> {
                match <u8 as $crate::codec::Field>::read(message)? {
                    $($code => Some($message::$variant
                        $({ $($field: $crate::codec::Field::read(message)?),* })?
                        $(($(<$value_kind as $crate::codec::Field>::read(message)?),*))?
                    ),)*
                    _ => None,
                }
            }
        }
    };
}
pub(super) use messages;
