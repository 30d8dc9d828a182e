//! The message of one line, as a value of its own.

use super::stamp::LineHeader;

/// How many bytes of data a line carries.
pub const LINE_DATA: usize = 48;

/// The same in words.
pub(crate) const WORDS: usize = LINE_DATA / 8;

/// A message of a line, copied out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WideMessage {
    header: LineHeader,
    length: usize,
    data: [u8; LINE_DATA],
}

impl Default for WideMessage {
    /// No bytes.
    fn default() -> Self {
        WideMessage { header: LineHeader::default(), length: 0, data: [0; LINE_DATA] }
    }
}

impl WideMessage {
    /// A message of at most [`LINE_DATA`] bytes; `None` if there are more.
    #[inline]
    #[must_use]
    pub fn new(header: LineHeader, bytes: &[u8]) -> Option<WideMessage> {
        let mut data = [0; LINE_DATA];
        data.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(WideMessage { header, length: bytes.len(), data })
    }

    /// Who sent it, for which handler, with which tag.
    #[inline]
    #[must_use]
    pub fn header(&self) -> LineHeader {
        self.header
    }

    /// The bytes that were sent.
    #[inline]
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data[..self.length.min(LINE_DATA)]
    }

    /// What was read from a line; any length is cut to what there is.
    #[inline]
    pub(super) fn copied(header: LineHeader, length: usize, data: [u8; LINE_DATA]) -> WideMessage {
        WideMessage { header, length: length.min(LINE_DATA), data }
    }

    #[inline]
    pub(super) fn word(&self, index: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.data[8 * index..8 * index + 8]);
        u64::from_le_bytes(bytes)
    }
}
