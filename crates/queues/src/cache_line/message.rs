//! Message of one cache line, as a value.

use crate::id::SourceName;

/// Data bytes of a message.
pub const LINE_DATA: usize = 48;

/// Data words of a message.
pub(crate) const WORDS: usize = LINE_DATA / 8;

/// Header of a cache-line message. In the header word of a slot: length in bits 0 to 5, handler in 6
/// to 13, source in 14 to 27, tag in 28 to 43.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheLineHeader {
    /// Name of the sender.
    pub source: SourceName,
    /// Number of the handler to run.
    pub handler: u8,
    /// Sixteen bits for use by the application.
    pub tag: u16,
}

impl CacheLineHeader {
    /// Encodes the header of a message of `length` bytes (at most 63).
    #[inline(always)]
    pub(crate) const fn pack(self, length: usize) -> u64 {
        length as u64 & 63
            | (self.handler as u64) << 6
            | (self.source.number() as u64) << 14
            | (self.tag as u64) << 28
    }

    /// Decodes a header word.
    #[inline]
    pub(crate) const fn unpack(word: u64) -> CacheLineHeader {
        let source = SourceName::from_bits(word >> 14);
        CacheLineHeader { source, handler: (word >> 6) as u8, tag: (word >> 28) as u16 }
    }

    /// Returns the length in a header word, which may be any number below 64.
    #[inline]
    pub(crate) const fn length(word: u64) -> usize {
        word as usize & 63
    }
}

/// Message of one cache line: a header and up to [`LINE_DATA`] bytes.
#[derive(Clone, Copy)]
pub struct CacheLineMessage {
    /// Header word as in a slot, without the lap.
    header: u64,
    data: [u8; LINE_DATA],
}

impl CacheLineMessage {
    /// Creates a message; `None` if `bytes` exceeds [`LINE_DATA`].
    #[inline]
    #[must_use]
    pub fn new(header: CacheLineHeader, bytes: &[u8]) -> Option<CacheLineMessage> {
        let mut data = [0; LINE_DATA];
        data.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(CacheLineMessage { header: header.pack(bytes.len()), data })
    }

    /// Returns the sender, handler and tag.
    #[inline]
    #[must_use]
    pub fn header(&self) -> CacheLineHeader {
        CacheLineHeader::unpack(self.header)
    }

    /// Returns the data.
    #[inline]
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data[..self.length()]
    }

    #[inline]
    pub(super) fn length(&self) -> usize {
        CacheLineHeader::length(self.header).min(LINE_DATA)
    }

    #[inline]
    pub(super) fn header_word(&self) -> u64 {
        self.header
    }

    /// Creates a message from the words of a slot; accepts any header.
    #[inline(always)]
    pub(super) fn copied(header: u64, data: [u8; LINE_DATA]) -> CacheLineMessage {
        CacheLineMessage { header, data }
    }

    #[inline(always)]
    pub(super) fn word(&self, index: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.data[8 * index..8 * index + 8]);
        u64::from_le_bytes(bytes)
    }
}

impl Default for CacheLineMessage {
    /// Returns a message without data.
    fn default() -> Self {
        CacheLineMessage { header: 0, data: [0; LINE_DATA] }
    }
}

impl PartialEq for CacheLineMessage {
    fn eq(&self, other: &Self) -> bool {
        self.header() == other.header() && self.data() == other.data()
    }
}

impl Eq for CacheLineMessage {}

impl core::fmt::Debug for CacheLineMessage {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("CacheLineMessage")
            .field("header", &self.header())
            .field("data", &self.data())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_keeps_its_fields() {
        for number in [0, 0x2aaa, 0x3fff] {
            for (handler, tag, length) in [(0, 0, 0), (0xff, 0xffff, 48), (3, 9, 1)] {
                let source = SourceName::new(number).expect("14 bits");
                let header = CacheLineHeader { source, handler, tag };
                let word = header.pack(length);
                let fields = (CacheLineHeader::unpack(word), CacheLineHeader::length(word));
                assert_eq!(fields, (header, length));
            }
        }
    }
}
