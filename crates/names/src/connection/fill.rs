//! Fill level of a connection's ring, for an observer that is neither of its ends.

use crate::wire::RING_LINES;
use queues::basic::ring_receiver::unread_lines;
use queues::basic::{geometry, map};
use shm::segment::{Offset, Segment};
use std::sync::Arc;

/// Returns the part of a connection's ring that holds unread messages, in percent. While the
/// receiver is busy, up to a quarter of the ring that it has read counts as unread.
pub(crate) fn fill_percent(ring: &Arc<Segment>) -> u32 {
    let Ok(geometry) = geometry(RING_LINES.into()) else { return 0 };
    let Ok(memory) = map(ring, Offset(0), geometry) else { return 0 };
    (unread_lines(&memory, geometry) * 100).div_ceil(geometry.lines()) as u32
}
