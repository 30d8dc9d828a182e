//! Layout of an append buffer in a segment.

use std::sync::Arc;

use shm::arena::Arena;
use shm::mapped::MappedSlice;
use shm::object::{CreateError, Label, Object, ObjectHeader};
use shm::process_table::ProcessTable;
use shm::segment::{Offset, Segment};
use shm::wakeup::Wakeup;

use super::ring::{self, RecordRing};
use crate::fence;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use shm::liveness::ProcessId;

/// Maximum number of records of a buffer.
const MOST_RECORDS: u64 = 1 << 24;

/// Maximum size of a record in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// Words of a cell besides the record: state and length.
const EXTRA_WORDS: u64 = 2;

shm::shared_lines! {
    /// Properties of the buffer, written on creation.
    pub(super) struct Description {
        /// Label, with the number of records.
        label: Label,
        record_bytes: AtomicU64,
        owner: AtomicU64,
    }

    /// Position of the senders: a hint where the next empty cell is.
    pub(super) struct Tail {
        position: AtomicU64,
    }

    /// Wake-up word of the owner. Every sender loads it, so its line holds no other data.
    pub(super) struct OwnerWakeup {
        word: AtomicU32,
    }

    /// Wake-up word of senders that wait for free space.
    pub(super) struct SendersWakeup {
        word: AtomicU32,
    }

    /// All lines before the cells.
    pub(super) struct Head {
        description: Description,
        tail: Tail,
        owner_wakeup: OwnerWakeup,
        senders_wakeup: SendersWakeup,
        processes: ProcessTable,
    }
}

impl ObjectHeader for Head {
    const KIND: u32 = u32::from_be_bytes(*b"appd");
    const NAME: &'static str = "append buffer";

    fn label(&self) -> &Label {
        &self.description.label
    }

    fn owner(&self) -> Option<&AtomicU64> {
        Some(&self.description.owner)
    }

    fn processes(&self) -> Option<&ProcessTable> {
        Some(&self.processes)
    }
}

/// Mapped buffer, as seen by any process.
#[derive(Debug)]
pub(super) struct Layout {
    head: Object<Head>,
    cells: MappedSlice<AtomicU64>,
    stride: usize,
    record_bytes: u64,
}

/// Returns the words per cell: whole cache lines, so that two senders never write to the same one.
fn stride(record_bytes: u64) -> u64 {
    (record_bytes.div_ceil(8) + EXTRA_WORDS).next_multiple_of(8)
}

/// Returns the number of words of all cells.
fn cell_words(records: u64, record_bytes: u64) -> Result<u64, CreateError> {
    let size =
        |requested, unit, limits| CreateError::Size { object: Head::NAME, requested, unit, limits };
    if records == 0 || records > MOST_RECORDS {
        return Err(size(records, "records", "1 to 16777216"));
    }
    if record_bytes > MOST_BYTES {
        return Err(size(record_bytes, "bytes a record", "at most 1073741824"));
    }
    Ok(records * stride(record_bytes))
}

impl Layout {
    /// Creates a buffer, owned by this process.
    pub(super) fn create(
        arena: &Arena,
        records: u64,
        record_bytes: u64,
    ) -> Result<Self, CreateError> {
        let words = cell_words(records, record_bytes)?;
        let prepare = |head: &Object<Head>| {
            // Relaxed: the label publishes it.
            head.description.record_bytes.store(record_bytes, Ordering::Relaxed);
            let cells = head.trailing::<AtomicU64>(0, words as usize)?;
            for (position, cell) in cells.chunks_exact(stride(record_bytes) as usize).enumerate() {
                // Relaxed: as above.
                cell[0].store(ring::empty(position as u64), Ordering::Relaxed);
            }
            Ok(())
        };
        Self::map(Object::create(arena, 8 * words, records as u32, prepare)?.0)
    }

    /// Connects to the buffer at `offset`.
    pub(super) fn connect(segment: &Arc<Segment>, offset: Offset) -> Result<Self, CreateError> {
        Self::map(Object::connect(segment, offset)?)
    }

    fn map(head: Object<Head>) -> Result<Self, CreateError> {
        // Relaxed: the label published it. The memory may have been overwritten since, so both
        // numbers are checked before any range is computed from them.
        let record_bytes = head.description.record_bytes.load(Ordering::Relaxed);
        let words = cell_words(head.parameter().into(), record_bytes)
            .map_err(|_| Object::<Head>::not_found(head.offset()))?;
        let cells = head.trailing(0, words as usize)?;
        let stride = stride(record_bytes) as usize;
        fence::register();
        Ok(Layout { head, cells, stride, record_bytes })
    }

    /// Returns the object in the segment.
    pub(super) fn object(&self) -> &Object<Head> {
        &self.head
    }

    pub(super) fn offset(&self) -> Offset {
        self.head.offset()
    }

    pub(super) fn owner(&self) -> ProcessId {
        self.head.owner()
    }

    pub(super) fn record_bytes(&self) -> u64 {
        self.record_bytes
    }

    pub(super) fn ring(&self) -> RecordRing<'_> {
        RecordRing { cells: &self.cells, stride: self.stride, tail: &self.head.tail.position }
    }

    pub(super) fn owner_wakeup(&self) -> Wakeup<'_> {
        Wakeup::by_store(&self.head.owner_wakeup.word)
    }

    pub(super) fn senders_wakeup(&self) -> Wakeup<'_> {
        Wakeup::by_store(&self.head.senders_wakeup.word)
    }

    pub(super) fn processes(&self) -> &ProcessTable {
        &self.head.processes
    }

    /// Withdraws the buffer and wakes waiting senders; returns true if no living process is
    /// connected.
    pub(super) fn withdraw(&self) -> bool {
        let unused = self.head.close();
        self.senders_wakeup().notify();
        unused
    }
}
