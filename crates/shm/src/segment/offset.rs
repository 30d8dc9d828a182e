//! Positions in a segment.

use std::fmt;

/// Position in a segment, in bytes from its start: a pointer valid in every process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Offset(pub u64);

impl Offset {
    /// Returns the offset `bytes` further on; `None` on overflow.
    ///
    /// ```
    /// use shm::segment::Offset;
    /// assert_eq!(Offset(64).plus(8), Some(Offset(72)));
    /// ```
    #[must_use]
    pub fn plus(self, bytes: u64) -> Option<Offset> {
        self.0.checked_add(bytes).map(Offset)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "offset {:#x}", self.0)
    }
}
