//! Size and mapping of a Basic ring.

use super::ring::Geometry;
use crate::error::CreateError;
use shm::mapped::MappedSlice;
use shm::segment::{Offset, Segment, SegmentError};
use shm::sync::AtomicU64;
use shm::wait::SpinPolicy;
use std::sync::Arc;
use std::time::Duration;

/// Size of the longest message that fits one cache line, in bytes.
pub const LINE_BYTES: usize = 56;

/// Polls before an end sleeps: a few microseconds, less than falling asleep and waking up. An end
/// that watches its peer checks that it is alive ten times a second.
pub(super) const POLICY: SpinPolicy =
    SpinPolicy { eager: 0, spins: 100, yields: 0, slice: Duration::from_millis(100) };

/// Mapped words of a ring.
pub(super) type MappedRing = MappedSlice<AtomicU64>;

/// Returns the size of a ring of `lines` lines in bytes: 64 per line plus 256.
///
/// ```
/// assert_eq!(queues::basic::bytes_for(64)?, 64 * 64 + 256);
/// # Ok::<(), queues::error::CreateError>(())
/// ```
///
/// # Errors
///
/// [`CreateError::Size`] unless `lines` is a power of two from 4 to 65,536.
pub fn bytes_for(lines: u64) -> Result<u64, CreateError> {
    Ok(geometry(lines)?.words() as u64 * 8)
}

/// Returns the layout of a ring of `lines` lines.
pub fn geometry(lines: u64) -> Result<Geometry, CreateError> {
    Geometry::new(lines).ok_or(CreateError::Size {
        object: "Basic ring",
        requested: lines,
        unit: "lines",
        limits: "a power of two from 4 to 65536",
    })
}

/// Maps the words of a ring at `at`.
pub fn map(
    segment: &Arc<Segment>,
    at: Offset,
    geometry: Geometry,
) -> Result<MappedRing, SegmentError> {
    MappedSlice::new(segment, at, geometry.words())
}
