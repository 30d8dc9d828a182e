//! Layout of the receive queues in the segment: settings, a line for each class, the process table,
//! the offsets of the rings, a bit for each queue and class, and a line for each queue.

use std::sync::Arc;

use shm::event::EventRequest;
use shm::mapped::{Mapped, MappedSlice};
use shm::segment::{Offset, Segment};
use shm::wakeup::Wakeup;

use super::config::{Class, MAX_QUEUES, MAX_RINGS, QueuesConfig, QueuesError};
use crate::cache_line::CacheLineQueue;
use crate::error::CreateError;
use crate::one_poll::bits::{Bits, QUEUES_PER_LINE};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use shm::liveness::ProcessId;
use shm::process_table::{AttachError, Entry, ProcessTable};

/// Label of receive queues.
const MAGIC: u64 = 0x7477_6861_6c6c;

const RESIDENT: u64 = 1 << 63;
const STOPPED: u64 = 1 << 62;
const RING_SHIFT: u32 = 32;

shm::shared_lines! {
    /// Description of the queues, and the receiver's wake-up word.
    pub(super) struct QueuesSettings {
        magic: AtomicU64,
        queues: AtomicU64,
        rings: AtomicU64,
        /// Identity of the receiving process.
        owner: AtomicU64,
        arrival: AtomicU32,
        /// The receiver's request for a notification of its event.
        request: AtomicU32,
    }

    /// State of a class, loaded by its senders.
    pub(super) struct ClassLine {
        /// Position of the non-resident queue before which everything is sorted.
        pub(super) sorted: AtomicU64,
        /// Offset of the non-resident queue.
        non_resident: AtomicU64,
        /// Wake-up word of senders that wait for space.
        space: AtomicU32,
    }

    pub(super) struct QueuesHeader {
        settings: QueuesSettings,
        request: ClassLine,
        reply: ClassLine,
        processes: ProcessTable,
    }

    /// State of a queue: a word for each class, written by the receiver alone.
    pub(super) struct QueueDescriptor {
        request: AtomicU64,
        reply: AtomicU64,
    }
}

/// Decoded word of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct QueueState {
    /// Index of the queue's ring, and the ring's generation.
    pub(super) ring: Option<(usize, u32)>,
    /// The overflow list is at its quota.
    pub(super) stopped: bool,
}

impl QueueState {
    fn pack(self) -> u64 {
        let stopped = if self.stopped { STOPPED } else { 0 };
        let ring = self.ring.map_or(0, |(ring, generation)| {
            RESIDENT | (ring as u64) << RING_SHIFT | u64::from(generation)
        });
        stopped | ring
    }

    fn unpack(word: u64) -> QueueState {
        let ring =
            (word & RESIDENT != 0).then_some(((word >> RING_SHIFT) as usize & 0xffff, word as u32));
        QueueState { ring, stopped: word & STOPPED != 0 }
    }
}

/// The mapped receive queues, without their rings.
#[derive(Debug, Clone)]
pub(super) struct QueuesLayout {
    header: Mapped<QueuesHeader>,
    /// Offset plus one of each ring, 0 for none: those of requests, then those of replies.
    pub(super) ring_offsets: MappedSlice<AtomicU64>,
    /// Bits of requests, then of replies: each a summary line if there is more than one line of
    /// bits, and the lines of bits.
    bits: MappedSlice<AtomicU64>,
    pub(super) queues: MappedSlice<QueueDescriptor>,
    offset: Offset,
}

/// Number of lines of each section behind the header.
#[derive(Clone, Copy)]
struct Sections {
    ring_offsets: usize,
    /// Per class.
    summary: usize,
    /// Per class.
    bits: usize,
    queues: usize,
}

impl Sections {
    fn of(queues: usize, rings: usize) -> Sections {
        let bits = queues.div_ceil(QUEUES_PER_LINE);
        let summary = usize::from(bits > 1);
        Sections { ring_offsets: (2 * rings).div_ceil(8), summary, bits, queues }
    }

    fn bytes(self) -> u64 {
        let lines = self.ring_offsets + 2 * (self.summary + self.bits) + self.queues;
        (size_of::<QueuesHeader>() + 64 * lines) as u64
    }
}

impl QueuesConfig {
    /// Returns the number of bytes in the segment while no queue is resident.
    ///
    /// # Errors
    /// [`QueuesError::Config`], [`QueuesError::Ring`] for an invalid capacity.
    pub fn bytes(self) -> Result<u64, QueuesError> {
        self.check()?;
        Ok(QueuesLayout::bytes(self) + 2 * CacheLineQueue::bytes_for(self.non_resident_capacity)?)
    }

    /// Returns the number of bytes that an arena needs for these queues with all their rings.
    ///
    /// # Errors
    /// Those of [`QueuesConfig::bytes`].
    pub fn max_bytes(self) -> Result<u64, QueuesError> {
        let rings = 2 * self.rings as u64;
        // Every allocation starts at a multiple of two lines, which may cost the line before it.
        Ok(self.bytes()?
            + rings * CacheLineQueue::bytes_for(self.ring_capacity)?
            + 64 * (rings + 3))
    }
}

impl QueuesLayout {
    /// Returns the number of bytes of the layout, without rings and non-resident queues.
    pub(super) fn bytes(config: QueuesConfig) -> u64 {
        Sections::of(config.queues, config.rings).bytes()
    }

    /// Maps zeroed memory that is to become receive queues, owned by this process.
    pub(super) fn prepare(
        segment: &Arc<Segment>,
        offset: Offset,
        config: QueuesConfig,
    ) -> Result<QueuesLayout, QueuesError> {
        let owner = ProcessId::own()?;
        let layout = Self::map(segment, offset, config.queues, config.rings)?;
        // Relaxed: the magic number publishes it.
        layout.header.settings.owner.store(owner.0, Ordering::Relaxed);
        Ok(layout)
    }

    /// Publishes the prepared queues, with the non-resident queues of requests and of replies.
    pub(super) fn publish(&self, config: QueuesConfig, non_resident: &[CacheLineQueue; 2]) {
        for (class, queue) in [Class::Request, Class::Reply].into_iter().zip(non_resident) {
            self.class(class).non_resident.store(queue.offset().0, Ordering::Relaxed);
        }
        let settings = &self.header.settings;
        settings.queues.store(config.queues as u64, Ordering::Relaxed);
        settings.rings.store(config.rings as u64, Ordering::Relaxed);
        // Release: pairs with the Acquire in `open`; the stores above are visible with it.
        settings.magic.store(MAGIC, Ordering::Release);
    }

    /// Maps the receive queues at `offset`.
    pub(super) fn open(
        segment: &Arc<Segment>,
        offset: Offset,
    ) -> Result<QueuesLayout, QueuesError> {
        let header = Mapped::<QueuesHeader>::new(segment, offset).map_err(CreateError::from)?;
        // Acquire: pairs with the Release in `publish`.
        let magic = header.settings.magic.load(Ordering::Acquire);
        // Relaxed: the magic number published them. The memory may have been overwritten since, so
        // both are checked before any range is computed from them.
        let number =
            |word: &AtomicU64| usize::try_from(word.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        let queues = number(&header.settings.queues);
        let rings = number(&header.settings.rings);
        if magic != MAGIC || !(1..=MAX_QUEUES).contains(&queues) || rings > MAX_RINGS {
            return Err(QueuesError::NotFound { offset });
        }
        Ok(Self::map(segment, offset, queues, rings)?)
    }

    /// Opens the non-resident queues of requests and of replies.
    pub(super) fn open_non_resident(
        &self,
        segment: &Arc<Segment>,
    ) -> Result<[CacheLineQueue; 2], CreateError> {
        // Relaxed: the magic number published them.
        let open = |class| {
            let offset = self.class(class).non_resident.load(Ordering::Relaxed);
            CacheLineQueue::connect(segment, Offset(offset))
        };
        Ok([open(Class::Request)?, open(Class::Reply)?])
    }

    fn map(
        segment: &Arc<Segment>,
        offset: Offset,
        queues: usize,
        rings: usize,
    ) -> Result<QueuesLayout, CreateError> {
        let Sections { ring_offsets, summary, bits, .. } = Sections::of(queues, rings);
        let after = |lines: usize| {
            Offset(offset.0.saturating_add((size_of::<QueuesHeader>() + 64 * lines) as u64))
        };
        Ok(QueuesLayout {
            header: Mapped::new(segment, offset)?,
            ring_offsets: MappedSlice::new(segment, after(0), 2 * rings)?,
            bits: MappedSlice::new(segment, after(ring_offsets), 2 * 8 * (summary + bits))?,
            queues: MappedSlice::new(segment, after(ring_offsets + 2 * (summary + bits)), queues)?,
            offset,
        })
    }

    /// Erases the label, so that later connects fail.
    pub(super) fn erase(&self) {
        // Relaxed: the arena's next user orders its own stores.
        self.header.settings.magic.store(0, Ordering::Relaxed);
    }

    /// Returns the table of processes that send.
    pub(super) fn processes(&self) -> &ProcessTable {
        &self.header.processes
    }

    /// Attaches this process as a sender.
    pub(super) fn attach(&self) -> Result<Entry, QueuesError> {
        let offset = self.offset;
        self.processes().attach().map_err(|reason| match reason {
            AttachError::Closed => QueuesError::Closed { offset },
            AttachError::TooMany => QueuesError::TooManyProcesses { offset },
            AttachError::Unidentified(error) => error.into(),
        })
    }

    /// Returns the receiving process.
    pub(super) fn owner(&self) -> ProcessId {
        // Relaxed: the magic number published it.
        ProcessId(self.header.settings.owner.load(Ordering::Relaxed))
    }

    /// Returns the receiver's request for a notification of its event.
    pub(super) fn request(&self) -> EventRequest<'_> {
        EventRequest(&self.header.settings.request)
    }

    /// Returns the bits of a class: one per queue, set if the queue may hold a message.
    pub(super) fn bits(&self, class: Class) -> Bits<'_> {
        let half = self.bits.len() / 2;
        let of_class = &self.bits[class as usize * half..][..half];
        let (summary, words) = of_class.split_at(if half > 8 { 8 } else { 0 });
        Bits { words, summary }
    }

    pub(super) fn offset(&self) -> Offset {
        self.offset
    }

    pub(super) fn class(&self, class: Class) -> &ClassLine {
        match class {
            Class::Request => &self.header.request,
            Class::Reply => &self.header.reply,
        }
    }

    /// Returns the receiver's wake-up word.
    pub(super) fn arrival(&self) -> Wakeup<'_> {
        Wakeup::by_exchange(&self.header.settings.arrival)
    }

    /// Returns the wake-up word of senders of a class that wait for space. The receiver publishes
    /// it with stores, so it pays for no fence.
    pub(super) fn space(&self, class: Class) -> Wakeup<'_> {
        Wakeup::by_store(&self.class(class).space)
    }

    /// Returns the word with the offset of a ring.
    pub(super) fn ring_offset(&self, class: Class, ring: usize) -> Option<&AtomicU64> {
        let half = self.ring_offsets.len() / 2;
        self.ring_offsets.get(class as usize * half + ring).filter(|_| ring < half)
    }

    fn word(&self, queue: usize, class: Class) -> Option<&AtomicU64> {
        let descriptor = self.queues.get(queue)?;
        Some(match class {
            Class::Request => &descriptor.request,
            Class::Reply => &descriptor.reply,
        })
    }

    /// Returns the state of a queue.
    pub(super) fn state(&self, queue: usize, class: Class) -> QueueState {
        // Acquire: pairs with the Release in `set_state`; the ring's offset was stored before.
        self.word(queue, class)
            .map_or(QueueState::default(), |word| QueueState::unpack(word.load(Ordering::Acquire)))
    }

    pub(super) fn set_state(&self, queue: usize, class: Class, state: QueueState) {
        if let Some(word) = self.word(queue, class) {
            // Release: pairs with the Acquire in `state`.
            word.store(state.pack(), Ordering::Release);
        }
    }
}
