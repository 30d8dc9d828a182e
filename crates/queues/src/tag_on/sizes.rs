//! Sizes of pools and of the buffers for data from other nodes.

use shm::object::CreateError;

/// Largest number of buffers of a pool.
pub const MAX_BUFFERS: u64 = 1 << 20;

/// Name of a pool in errors.
pub(super) const POOL: &str = "pool of buffers";

/// Returns the number of bytes of so many words, in whole lines.
pub(super) fn words_bytes(count: u64) -> u64 {
    (8 * count).next_multiple_of(64)
}

/// Returns the number of bytes behind the header of a pool.
pub(super) fn pool_bytes(count: u64, bytes: u64) -> Result<u64, CreateError> {
    let invalid =
        |requested, unit, limits| CreateError::Size { object: POOL, requested, unit, limits };
    if !(1..=MAX_BUFFERS).contains(&count) {
        return Err(invalid(count, "buffers", "1 to 1048576"));
    }
    let each = bytes.checked_next_multiple_of(64).filter(|&each| each != 0);
    let all = each.and_then(|each| each.checked_mul(count)?.checked_add(words_bytes(count)));
    all.ok_or(invalid(bytes, "bytes a buffer", "at least 1, as many as the arena has"))
}

/// Sizes of the buffers for the data of one rank in the window of another one: the reference
/// counts, the marks of the receivers, and the data.
#[derive(Clone, Copy, Debug)]
pub struct LandingSizes {
    /// Number of buffers.
    pub buffers: u64,
    /// Bytes of a buffer.
    pub bytes: u64,
    /// Number of receivers on the node, which are numbered from 0.
    pub receivers: u64,
}

impl LandingSizes {
    /// Returns the number of bytes of a window that the buffers take.
    ///
    /// # Errors
    /// [`CreateError::Size`].
    pub fn all(self) -> Result<u64, CreateError> {
        let marks = self.receivers.saturating_mul(self.row());
        Ok(pool_bytes(self.buffers, self.bytes)?.saturating_add(marks))
    }

    /// Bytes of the marks of a receiver.
    fn row(self) -> u64 {
        words_bytes(self.buffers + 1)
    }

    /// Start of a mark of a receiver.
    pub(super) fn mark(self, receiver: u64, index: u64) -> u64 {
        words_bytes(self.buffers) + receiver * self.row() + 8 * index
    }

    /// Start of the data.
    pub(super) fn data(self) -> u64 {
        self.mark(self.receivers, 0)
    }
}
