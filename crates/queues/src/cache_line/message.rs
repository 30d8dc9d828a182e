//! Message of one cache line, as a value.

use super::state::CacheLineHeader;

/// Data bytes of a message.
pub const LINE_DATA: usize = 48;

/// Data words of a message.
pub(crate) const WORDS: usize = LINE_DATA / 8;

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
