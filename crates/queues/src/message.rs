//! The Express message: five bytes of data with a source name and a handler, in one word.

use crate::id::SourceName;

/// Bits that a message occupies in a word.
pub(crate) const MESSAGE_BITS: u64 = (1 << 62) - 1;
const SOURCE_SHIFT: u32 = 48;
const HANDLER_SHIFT: u32 = 40;
const DATA: u64 = (1 << 40) - 1;

/// Express message: source name, number of the handler to run, and five bytes of data (Ang et al.
/// 1996, section 5.1).
///
/// ```
/// use queues::{express::ExpressMessage, id::SourceName};
/// let message = ExpressMessage::new(SourceName::new(7).expect("below 16,384"), 3, *b"hello");
/// assert_eq!((message.source().number(), message.handler()), (7, 3));
/// assert_eq!(&message.data(), b"hello");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct ExpressMessage(u64);

impl ExpressMessage {
    /// Creates a message of five bytes.
    #[inline]
    #[must_use]
    pub const fn new(source: SourceName, handler: u8, data: [u8; 5]) -> ExpressMessage {
        let [a, b, c, d, e] = data;
        let number = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
        ExpressMessage(
            (source.number() as u64) << SOURCE_SHIFT | (handler as u64) << HANDLER_SHIFT | number,
        )
    }

    /// Creates a message of one number; `None` if it has more than 40 bits.
    ///
    /// ```
    /// use queues::{express::ExpressMessage, id::SourceName};
    /// let source = SourceName::default();
    /// assert_eq!(ExpressMessage::of_number(source, 0, 1 << 39).map(ExpressMessage::number), Some(1 << 39));
    /// assert!(ExpressMessage::of_number(source, 0, 1 << 40).is_none());
    /// ```
    #[inline]
    #[must_use]
    pub const fn of_number(source: SourceName, handler: u8, number: u64) -> Option<ExpressMessage> {
        if number > DATA {
            return None;
        }
        Some(ExpressMessage(
            (source.number() as u64) << SOURCE_SHIFT | (handler as u64) << HANDLER_SHIFT | number,
        ))
    }

    /// Returns the sender's name, to which a reply goes.
    #[inline]
    #[must_use]
    pub const fn source(self) -> SourceName {
        SourceName::from_bits(self.0 >> SOURCE_SHIFT)
    }

    /// Returns the number of the handler to run.
    #[inline]
    #[must_use]
    pub const fn handler(self) -> u8 {
        (self.0 >> HANDLER_SHIFT) as u8
    }

    /// Returns the five bytes.
    #[inline]
    #[must_use]
    pub const fn data(self) -> [u8; 5] {
        let [a, b, c, d, e, ..] = self.0.to_le_bytes();
        [a, b, c, d, e]
    }

    /// Returns the five bytes as a little-endian number.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 & DATA
    }

    /// Returns the message as the low 62 bits of a word, for shared memory.
    #[inline]
    pub(crate) const fn to_bits(self) -> u64 {
        self.0
    }

    /// Reads the message in the low 62 bits of a word that any process may have written.
    #[inline]
    pub(crate) const fn from_bits(word: u64) -> ExpressMessage {
        ExpressMessage(word & MESSAGE_BITS)
    }
}

impl core::fmt::Debug for ExpressMessage {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("ExpressMessage")
            .field("source", &self.source().number())
            .field("handler", &self.handler())
            .field("data", &self.data())
            .finish()
    }
}
