//! Layout of an append buffer in a segment.

use std::sync::Arc;

use shm::mapped::{Mapped, MappedSlice};
use shm::segment::{Offset, Segment};
use shm::wakeup::Wakeup;

use super::error::OpenError;
use super::ring::{self, RecordRing};
use crate::fence;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use shm::liveness::ProcessId;
use shm::process_table::{AttachError, Entry, MAX_PROCESSES, ProcessTable};

/// Maximum number of records of a buffer.
const MOST_RECORDS: u64 = 1 << 24;

/// Maximum size of a record in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// Words of a cell besides the record: state and length.
const EXTRA_WORDS: u64 = 2;

shm::shared_lines! {
    /// Properties of the buffer, written on creation.
    pub(super) struct Label {
        /// [`MAGIC`]; stored last.
        magic: AtomicU64,
        records: AtomicU64,
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
        label: Label,
        tail: Tail,
        owner_wakeup: OwnerWakeup,
        senders_wakeup: SendersWakeup,
        processes: ProcessTable,
    }
}

/// "append" in ASCII and a version.
const MAGIC: u64 = 0x6170_7065_6e64_0001;

/// Mapped buffer, as seen by any process.
#[derive(Debug)]
pub(super) struct Layout {
    head: Mapped<Head>,
    cells: MappedSlice<AtomicU64>,
    offset: Offset,
    owner: ProcessId,
    stride: usize,
    record_bytes: u64,
}

/// Returns the words per cell: whole cache lines, so that two senders never write to the same one.
fn stride(record_bytes: u64) -> u64 {
    (record_bytes.div_ceil(8) + EXTRA_WORDS).next_multiple_of(8)
}

/// Returns the size of a buffer in bytes.
pub(super) fn footprint(records: u64, record_bytes: u64) -> Result<u64, OpenError> {
    if records == 0 || records > MOST_RECORDS || record_bytes > MOST_BYTES {
        return Err(OpenError::Size { records, record_bytes, most: MOST_RECORDS });
    }
    Ok(size_of::<Head>() as u64 + records * stride(record_bytes) * 8)
}

impl Layout {
    /// Creates a buffer at `offset`, in zeroed memory, owned by this process.
    pub(super) fn create(
        segment: &Arc<Segment>,
        offset: Offset,
        records: u64,
        record_bytes: u64,
    ) -> Result<Self, OpenError> {
        let head = Mapped::<Head>::new(segment, offset)?;
        // Relaxed: the magic number publishes them.
        head.label.records.store(records, Ordering::Relaxed);
        head.label.record_bytes.store(record_bytes, Ordering::Relaxed);
        head.label.owner.store(ProcessId::own()?.0, Ordering::Relaxed);
        let cells = Layout::cells(segment, offset, records, record_bytes)?;
        for (position, cell) in cells.chunks_exact(stride(record_bytes) as usize).enumerate() {
            // Relaxed: as above.
            cell[0].store(ring::empty(position as u64), Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `open`.
        head.label.magic.store(MAGIC, Ordering::Release);
        Layout::open(segment, offset)
    }

    /// Maps the buffer at `offset`.
    pub(super) fn open(segment: &Arc<Segment>, offset: Offset) -> Result<Self, OpenError> {
        let head = Mapped::<Head>::new(segment, offset)?;
        // Acquire: pairs with the Release in `create`.
        if head.label.magic.load(Ordering::Acquire) != MAGIC {
            return Err(OpenError::NoBuffer { offset });
        }
        // Relaxed: the magic number published them. They may be corrupt, so they are checked
        // below.
        let records = head.label.records.load(Ordering::Relaxed);
        let record_bytes = head.label.record_bytes.load(Ordering::Relaxed);
        let owner = ProcessId(head.label.owner.load(Ordering::Relaxed));
        let cells = Layout::cells(segment, offset, records, record_bytes)?;
        let stride = stride(record_bytes) as usize;
        fence::register();
        Ok(Layout { head, cells, offset, owner, stride, record_bytes })
    }

    fn cells(
        segment: &Arc<Segment>,
        offset: Offset,
        records: u64,
        record_bytes: u64,
    ) -> Result<MappedSlice<AtomicU64>, OpenError> {
        footprint(records, record_bytes).map_err(|_| OpenError::NoBuffer { offset })?;
        let first = offset.plus(size_of::<Head>() as u64).ok_or(OpenError::NoBuffer { offset })?;
        Ok(MappedSlice::new(segment, first, (records * stride(record_bytes)) as usize)?)
    }

    pub(super) fn offset(&self) -> Offset {
        self.offset
    }

    pub(super) fn owner(&self) -> ProcessId {
        self.owner
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

    /// Attaches this process to the buffer.
    pub(super) fn enter(&self) -> Result<Entry, OpenError> {
        let offset = self.offset;
        self.processes().attach().map_err(|reason| match reason {
            AttachError::Closed => OpenError::Withdrawn { offset, owner: self.owner.pid() },
            AttachError::TooMany => OpenError::TooManyHandles { offset, most: MAX_PROCESSES },
            AttachError::Unidentified(error) => error.into(),
        })
    }

    /// Withdraws the buffer and wakes waiting senders.
    pub(super) fn withdraw(&self) {
        self.processes().close();
        self.senders_wakeup().notify();
    }

    /// Erases the magic number, so that no process connects to freed memory.
    pub(super) fn erase(&self) {
        // Relaxed: the arena's next user orders its own stores.
        self.head.label.magic.store(0, Ordering::Relaxed);
    }
}
