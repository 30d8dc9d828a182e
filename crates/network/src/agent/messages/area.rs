//! The memory of a rank's messages, which the rank allocates in the region that it shares with its
//! agent.
//!
//! | from byte | contents | written by |
//! |---|---|---|
//! | 0 | bytes put into the send ring, bytes taken from the receive ring, whether the rank waits for space | the rank |
//! | 64 | bytes taken from the send ring, bytes put into the receive ring, the agent's waits for space | the agent |
//! | 128 | send ring | the rank |
//! | 128 + size | receive ring | the agent |
//!
//! The counts never decrease, so their difference is what a ring contains. A record may pass over
//! the end of its ring. The agent trusts no count of the rank, and copies what it uses.

use crate::agent::shared_region::refused;
use crate::error::Error;
use shm::mapped::Mapped;
use shm::segment::{Offset, Segment, SegmentError};
use shm::sync::{AtomicU32, AtomicU64};
use shm::word_copy;
use std::sync::Arc;

/// Limits of the size of a ring, a power of two.
pub(crate) const LEAST_RING: u64 = 256 << 10;
pub(crate) const MOST_RING: u64 = 4 << 20;

shm::shared_lines! {
    /// Words that the rank writes.
    pub(crate) struct PortLine {
        /// Bytes put into the send ring.
        pub(crate) sent: AtomicU64,
        /// Bytes taken from the receive ring.
        pub(crate) taken: AtomicU64,
        /// 1 while the rank waits for space in its send ring.
        pub(crate) needs_space: AtomicU32,
    }
    /// Words that the agent writes.
    pub(crate) struct RouterLine {
        /// Bytes taken from the send ring.
        pub(crate) drained: AtomicU64,
        /// Bytes put into the receive ring.
        pub(crate) delivered: AtomicU64,
        /// Number of the agent's wait for space in the receive ring; 0 while it does not wait.
        pub(crate) needs_space: AtomicU64,
    }
    /// Counts of both rings.
    pub(crate) struct AreaHeader {
        pub(crate) port: PortLine,
        pub(crate) router: RouterLine,
    }
}

const HEADER_BYTES: u64 = size_of::<AreaHeader>() as u64;

/// Returns the number of bytes of an area with rings of this size.
pub(crate) fn area_bytes(ring: u64) -> u64 {
    HEADER_BYTES + 2 * ring
}

/// Returns true if rings may have this size.
pub(crate) fn is_ring_size(bytes: u64) -> bool {
    bytes.is_power_of_two() && (LEAST_RING..=MOST_RING).contains(&bytes)
}

/// One side's view of an area.
#[derive(Debug)]
pub(crate) struct Area {
    pub(crate) header: Mapped<AreaHeader>,
    pub(crate) send_ring: Ring,
    pub(crate) receive_ring: Ring,
}

impl Area {
    /// Opens the area at an offset.
    ///
    /// # Errors
    /// If it does not lie in the segment, or is not aligned.
    pub(crate) fn open(segment: &Arc<Segment>, at: Offset, ring: u64) -> Result<Area, Error> {
        let open = || {
            let header = Mapped::new(segment, at)?;
            let ring_at = |number: u64| Offset(at.0.saturating_add(HEADER_BYTES + number * ring));
            let send_ring = Ring::open(segment, ring_at(0), ring)?;
            let receive_ring = Ring::open(segment, ring_at(1), ring)?;
            Ok(Area { header, send_ring, receive_ring })
        };
        open().map_err(refused)
    }
}

/// Bytes of a ring. A position counts all bytes so far.
#[derive(Debug)]
pub(crate) struct Ring {
    segment: Arc<Segment>,
    at: Offset,
    bytes: u64,
}

impl Ring {
    fn open(segment: &Arc<Segment>, at: Offset, bytes: u64) -> Result<Ring, SegmentError> {
        // All later copies lie inside this range.
        segment.slice_at::<AtomicU64>(at, (bytes / 8) as usize)?;
        Ok(Ring { segment: Arc::clone(segment), at, bytes })
    }

    /// Returns the size.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Splits a range of `length` bytes, at most the size, at the end of the ring: the offset of
    /// its start, and the number of bytes before the end.
    #[inline]
    fn place(&self, position: u64, length: usize) -> (Offset, usize) {
        let start = position & (self.bytes - 1);
        (Offset(self.at.0 + start), length.min((self.bytes - start) as usize))
    }

    /// Writes bytes at a position that is a multiple of 8.
    #[inline]
    pub(crate) fn write(&self, position: u64, bytes: &[u8]) {
        let (at, first) = self.place(position, bytes.len());
        let (before, behind) = bytes.split_at(first);
        // `open` has checked the range, so neither copy fails.
        let _ = word_copy::store(&self.segment, at, before);
        if !behind.is_empty() {
            let _ = word_copy::store(&self.segment, self.at, behind);
        }
    }

    /// Reads bytes at a position.
    #[inline]
    pub(crate) fn read(&self, position: u64, bytes: &mut [u8]) {
        let (at, first) = self.place(position, bytes.len());
        let (before, behind) = bytes.split_at_mut(first);
        // As in `write`.
        let _ = word_copy::load(&self.segment, at, before);
        if !behind.is_empty() {
            let _ = word_copy::load(&self.segment, self.at, behind);
        }
    }
}
