//! Memory of an append buffer in a segment.

use super::records::slot_words;
use crate::fence;
use crate::positions::{Positions, word_behind};
use crate::slot_ring::{MAX_SENDERS, POSITION, SenderId, SlotMemory, SlotRing, SlotWords};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use shm::arena::Arena;
use shm::connecting::Connecting;
use shm::event::{EventRequest, Notify};
use shm::liveness::ProcessWatch;
use shm::mapped::MappedSlice;
use shm::object::{CreateError, Label, Object, ObjectHeader};
use shm::process_table::{Entry, ProcessTable};
use shm::segment::{Offset, Segment, SegmentReader};
use shm::wakeup::Wakeup;
use std::mem::offset_of;
use std::sync::Arc;

/// Maximum number of records of a buffer.
const MAX_RECORDS: u64 = 1 << 24;

/// Maximum size of a record in bytes.
const MAX_BYTES: u64 = 1 << 30;

shm::shared_lines! {
    /// Properties of the buffer, written on creation.
    struct Description {
        /// Label, with the number of records.
        label: Label,
        record_bytes: AtomicU64,
        owner: AtomicU64,
        /// Generation of the ring, which stays 0.
        generation_word: AtomicU32,
    }

    /// Position of the senders.
    struct SenderPosition {
        tail: AtomicU64,
        /// Last value of the head that senders saw.
        seen: AtomicU64,
    }

    /// Position of the receiver.
    struct ReceiverPosition {
        head: AtomicU64,
    }

    /// Wake-up word of the receiver. Every sender loads it, so its line holds no other data.
    struct ReceiverWakeup {
        word: AtomicU32,
    }

    /// Wake-up word of senders that wait for free space, and their event request.
    struct SendersWakeup {
        word: AtomicU32,
        request: AtomicU32,
        /// Position of the receiver from which on the request is due.
        due: AtomicU64,
    }

    /// All lines before the slots.
    pub(super) struct AppendHeader {
        description: Description,
        senders: SenderPosition,
        receiver: ReceiverPosition,
        receiver_wakeup: ReceiverWakeup,
        senders_wakeup: SendersWakeup,
        processes: ProcessTable,
    }
}

impl ObjectHeader for AppendHeader {
    const KIND: u32 = u32::from_be_bytes(*b"appd");
    const NAME: &'static str = "append buffer";
    const IS_QUEUE: bool = true;

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

/// Reads the positions from outside the job; `None` if the label is that of another object.
pub(crate) fn observe(segment: &SegmentReader, at: Offset, label: u64) -> Option<Positions> {
    let capacity = label & u64::from(u32::MAX);
    if label >> 32 != u64::from(AppendHeader::KIND) || !(1..=MAX_RECORDS).contains(&capacity) {
        return None;
    }
    let tail = word_behind(segment, at, offset_of!(AppendHeader, senders.tail))?;
    let received = word_behind(segment, at, offset_of!(AppendHeader, receiver.head))?;
    Some(Positions { capacity, sent: Some(tail & POSITION), received })
}

/// Mapped buffer, as seen by any process.
#[derive(Debug)]
pub(super) struct AppendMemory {
    object: Object<AppendHeader>,
    words: MappedSlice<AtomicU64>,
    slot_words: usize,
    record_bytes: u64,
}

/// Returns the number of slots for this many records: a power of two of at least two, as the ring
/// requires. The ring holds no more than the requested number all the same.
fn slots(records: u64) -> u64 {
    records.next_power_of_two().max(2)
}

/// Returns the number of words of all slots.
fn words(records: u64, record_bytes: u64) -> Result<u64, CreateError> {
    let size = |requested, unit, limits| CreateError::Size {
        object: AppendHeader::NAME,
        requested,
        unit,
        limits,
    };
    if records == 0 || records > MAX_RECORDS {
        return Err(size(records, "records", "1 to 16777216"));
    }
    if record_bytes > MAX_BYTES {
        return Err(size(record_bytes, "bytes a record", "at most 1073741824"));
    }
    Ok(slots(records) * slot_words(record_bytes))
}

impl AppendMemory {
    /// Creates a buffer, owned by this process.
    pub(super) fn create(
        arena: &Arena,
        records: u64,
        record_bytes: u64,
    ) -> Result<Self, CreateError> {
        let words = words(records, record_bytes)?;
        let prepare = |object: &Object<AppendHeader>| {
            // Relaxed: the label publishes it.
            object.description.record_bytes.store(record_bytes, Ordering::Relaxed);
            Ok(())
        };
        Self::map(Object::create(arena, 8 * words, records as u32, prepare)?.0)
    }

    /// Connects this process as a sender to the buffer at `offset`.
    pub(super) fn connect(
        segment: &Arc<Segment>,
        offset: Offset,
    ) -> Result<(Self, Entry), CreateError> {
        // A number identifies the slots of an ended process, so these are recovered before the
        // number belongs to another process.
        let recover = |memory: &Self| _ = memory.ring(SenderId::NONE).recover();
        Connecting::to(segment, offset)?.attach_numbered(MAX_SENDERS - 1, Self::map, recover)
    }

    /// Finds the buffer at `offset`. Its owner does not free it meanwhile.
    pub(super) fn find(segment: &Arc<Segment>, offset: Offset) -> Result<Self, CreateError> {
        Self::map(Object::find(segment, offset)?)
    }

    fn map(object: Object<AppendHeader>) -> Result<Self, CreateError> {
        // Relaxed: the label published it. The memory may have been overwritten since, so both
        // numbers are checked before any range is computed from them.
        let record_bytes = object.description.record_bytes.load(Ordering::Relaxed);
        let words = words(object.parameter().into(), record_bytes)
            .map_err(|_| Object::<AppendHeader>::not_found(object.offset()))?;
        let words = object.trailing(0, words as usize)?;
        fence::register();
        Ok(AppendMemory {
            object,
            words,
            slot_words: slot_words(record_bytes) as usize,
            record_bytes,
        })
    }

    /// Returns the object in the segment.
    pub(super) fn object(&self) -> &Object<AppendHeader> {
        &self.object
    }

    /// Returns the maximum size of a record in bytes.
    pub(super) fn record_bytes(&self) -> u64 {
        self.record_bytes
    }

    /// Returns the number of words of a slot.
    pub(super) fn slot_words(&self) -> usize {
        self.slot_words
    }

    /// Returns the number of a sender: its entry in the process table. Senders beyond the range of
    /// numbers have none, so their slots are not recovered.
    pub(super) fn sender(entry: &Entry) -> SenderId {
        // Number 0 stands for no process, so entry 0 has number 1.
        let number = entry.index() + 1;
        if number < MAX_SENDERS { SenderId::from_bits(number as u64) } else { SenderId::NONE }
    }

    /// Returns the ring, as seen by a sender of this number.
    pub(super) fn ring(&self, own: SenderId) -> SlotRing<'_, RecordSlots<'_>> {
        let AppendHeader { description, senders, receiver, processes, .. } = &*self.object;
        SlotRing {
            memory: RecordSlots {
                words: &self.words,
                slot_words: self.slot_words,
                capacity: self.object.parameter().into(),
                processes,
            },
            tail: &senders.tail,
            seen: &senders.seen,
            head: &receiver.head,
            generation_word: &description.generation_word,
            own,
        }
    }

    /// Returns the receiver's wake-up word. A record is published by an exchange.
    pub(super) fn receiver_wakeup(&self) -> Wakeup<'_> {
        Wakeup::by_exchange(&self.object.receiver_wakeup.word)
    }

    /// Returns the wake-up word of senders that wait for space, which a store publishes.
    pub(super) fn senders_wakeup(&self) -> Wakeup<'_> {
        Wakeup::by_store(&self.object.senders_wakeup.word)
    }

    /// Returns the event request of a node service that waits for free space.
    pub(super) fn space_request(&self) -> EventRequest<'_> {
        EventRequest(&self.object.senders_wakeup.request)
    }

    /// Requests a notification of the node service when the receiver has taken as many records as
    /// half of the buffer holds. The caller passes a heavy fence and tries once more.
    pub(super) fn request_space(&self) {
        let AppendHeader { receiver, senders_wakeup, .. } = &*self.object;
        let half = u64::from(self.object.parameter() / 2);
        let due = receiver.head.load(Ordering::Relaxed).wrapping_add(half);
        // Relaxed: the request publishes it.
        senders_wakeup.due.store(due, Ordering::Relaxed);
        self.space_request().request(Notify::HalfFull);
    }

    /// Returns true if the receiver has taken enough records since the request.
    pub(super) fn is_space_due(&self) -> bool {
        let AppendHeader { receiver, senders_wakeup, .. } = &*self.object;
        // Relaxed: the receiver has seen the request, and its position is its own.
        let due = senders_wakeup.due.load(Ordering::Relaxed);
        receiver.head.load(Ordering::Relaxed).wrapping_sub(due).cast_signed() >= 0
    }

    /// Returns the table of processes that send.
    pub(super) fn processes(&self) -> &ProcessTable {
        &self.object.processes
    }

    /// Withdraws the buffer and wakes waiting senders. The memory is freed once no living process
    /// is connected.
    pub(super) fn retire(&self, arena: &Arena) {
        self.close();
        self.object.retire(arena);
    }

    /// Closes the buffer and wakes waiting senders.
    pub(super) fn close(&self) {
        // The closed table precedes the wake-up: a sender that wakes finds the buffer closed.
        self.processes().close();
        self.senders_wakeup().notify();
    }
}

/// Slots of a buffer and the processes that send to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordSlots<'a> {
    words: &'a [AtomicU64],
    slot_words: usize,
    capacity: u64,
    processes: &'a ProcessTable,
}

impl<'a> SlotMemory<'a> for RecordSlots<'a> {
    fn count(self) -> u64 {
        slots(self.capacity)
    }

    fn capacity(self) -> u64 {
        self.capacity
    }

    fn slot(self, index: usize) -> SlotWords<'a> {
        // The index is below the count, and the mapping has the size of all slots. Tail and head may
        // be overwritten, but the ring masks positions before it uses them.
        let words = &self.words[index * self.slot_words..][..self.slot_words];
        SlotWords { state: &words[0], header: &words[1], data: &words[2..] }
    }

    fn is_dead(self, sender: SenderId) -> bool {
        let Some(index) = (sender.number() as usize).checked_sub(1) else { return false };
        ProcessWatch::default().has_ended(self.processes.process(index))
    }
}
