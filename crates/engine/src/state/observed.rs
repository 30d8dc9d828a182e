//! Progress of a communicator, for observers of the job, which only read.

use super::{JOURNAL, ProgressLine, StateLayout};
use crate::signature::{CallKind, Signature};
use shm::segment::{Offset, SegmentReader};
use std::mem::offset_of;

/// Words of a rank's progress line.
const LINE_WORDS: usize = size_of::<ProgressLine>() / 8;

/// Progress of one rank of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObservedProgress {
    /// The rank on the node; `None` if it has not opened the communicator.
    pub(crate) member: Option<u32>,
    /// Number of collectives that it has started.
    pub(crate) started: u64,
}

/// Returns the progress of the ranks of the communicator with the state at `at`; `None` if the
/// state does not lie in the segment. Any process may have written what lies there.
pub(crate) fn observe(
    segment: &SegmentReader,
    at: Offset,
    ranks: u32,
) -> Option<Vec<ObservedProgress>> {
    let lines = Offset(at.0.checked_add(StateLayout::new(ranks).progress)?);
    let words = segment.word_list(lines, LINE_WORDS * ranks as usize)?;
    let progress = words.chunks_exact(LINE_WORDS).map(|line| ObservedProgress {
        member: line[offset_of!(ProgressLine, member) / 8]
            .checked_sub(1)
            .and_then(|member| u32::try_from(member).ok()),
        started: line[offset_of!(ProgressLine, started) / 8],
    });
    Some(progress.collect())
}

/// Returns the call that a rank of the communicator has recorded for a collective; `None` if it has
/// overwritten the record.
pub(crate) fn call_of(
    segment: &SegmentReader,
    (at, ranks): (Offset, u32),
    rank: u32,
    sequence: u64,
) -> Option<Signature> {
    let entry = u64::from(rank) * JOURNAL + sequence % JOURNAL;
    let entry = at.0.checked_add(StateLayout::new(ranks).journal)?.checked_add(16 * entry)?;
    let (recorded, call) = Signature::decode(segment.words(Offset(entry))?);
    (recorded == sequence & ((1 << 40) - 1) && call.kind != CallKind::None).then_some(call)
}
