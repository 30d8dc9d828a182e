//! The paths of a message and the choice between them.

use super::error::DirectAccessError;

/// Path that a message took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Path {
    /// The message lay in the segment and was not copied.
    InPlace,
    /// From private memory to private memory.
    Direct,
    /// Through the staging area.
    Staged,
    /// In pieces to another node.
    Carried,
}

/// Choice of the path for messages from private memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// Direct for messages longer than twice the staging area if there is a direct path, otherwise
    /// staged.
    #[default]
    Automatic,
    /// Direct; a send fails if there is no direct path.
    Direct,
    /// Staged.
    Staged,
}

/// State of the direct path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectPath {
    /// Result of the probe from this end: whether it can access the other's memory.
    pub here: Result<(), DirectAccessError>,
    /// True if the other end has reported that it can access this one's memory.
    pub there: bool,
}

impl DirectPath {
    /// Returns true if at least one end can copy directly.
    pub fn exists(&self) -> bool {
        self.there || self.here.is_ok()
    }
}

/// A received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Length of the message: number of bytes written to the start of the buffer.
    pub bytes: usize,
    /// Path that the message took.
    pub path: Path,
}
