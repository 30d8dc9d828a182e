//! The message of one line, as a value of its own.

use super::state::CacheLineHeader;

/// How many bytes of data a line carries.
pub const LINE_DATA: usize = 48;

/// The same in words.
pub(crate) const WORDS: usize = LINE_DATA / 8;

/// A message of a line: a header and up to [`LINE_DATA`] bytes.
#[derive(Clone, Copy)]
pub struct CacheLineMessage {
    /// As in a line, the lap left to whoever writes it there.
    header: u64,
    data: [u8; LINE_DATA],
}

impl CacheLineMessage {
    /// A message of at most [`LINE_DATA`] bytes; `None` if there are more.
    #[inline]
    #[must_use]
    pub fn new(header: CacheLineHeader, bytes: &[u8]) -> Option<CacheLineMessage> {
        let mut data = [0; LINE_DATA];
        data.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(CacheLineMessage { header: header.pack(bytes.len()), data })
    }

    /// Who sent it, for which handler, with which tag.
    #[inline]
    #[must_use]
    pub fn header(&self) -> CacheLineHeader {
        CacheLineHeader::unpack(self.header)
    }

    /// The bytes that were sent.
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

    /// What was read from a line; any header will do.
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
    /// No bytes.
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
