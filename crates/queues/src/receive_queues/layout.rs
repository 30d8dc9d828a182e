//! Layout of the receive queues in the segment: settings, a line for each class, the process table,
//! the offsets of the rings, a bit for each queue and class, and a line for each queue.

use super::config::{Class, MAX_QUEUES, MAX_RINGS, QueuesConfig};
use crate::cache_line::CacheLineQueue;
use crate::one_poll::bits::{Bits, QUEUES_PER_LINE};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use shm::arena::Arena;
use shm::connecting::Connecting;
use shm::event::EventRequest;
use shm::mapped::MappedSlice;
use shm::object::{CreateError, Label, Object, ObjectHeader};
use shm::process_table::{Entry, ProcessTable};
use shm::segment::{Offset, Segment};
use shm::wakeup::Wakeup;
use std::sync::Arc;

const RESIDENT: u64 = 1 << 63;
const STOPPED: u64 = 1 << 62;
const RING_SHIFT: u32 = 32;

shm::shared_lines! {
    /// Description of the queues, and the receiver's wake-up word.
    pub(super) struct QueuesSettings {
        /// Label, with the number of queues.
        label: Label,
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

impl ObjectHeader for QueuesHeader {
    const KIND: u32 = u32::from_be_bytes(*b"rcvq");
    const NAME: &'static str = "set of receive queues";

    fn label(&self) -> &Label {
        &self.settings.label
    }

    fn owner(&self) -> Option<&AtomicU64> {
        Some(&self.settings.owner)
    }

    fn processes(&self) -> Option<&ProcessTable> {
        Some(&self.processes)
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
        // Ring, generation and the stop share one word, so a sender reads a consistent state by one
        // load. The generation makes a send into a ring that has another owner by now fail.
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
    header: Object<QueuesHeader>,
    /// Offset plus one of each ring, 0 for none: those of requests, then those of replies.
    pub(super) ring_offsets: MappedSlice<AtomicU64>,
    /// Bits of requests, then of replies: each a summary line if there is more than one line of
    /// bits, and the lines of bits.
    bits: MappedSlice<AtomicU64>,
    pub(super) queues: MappedSlice<QueueDescriptor>,
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

    /// Returns the number of bytes behind the header.
    fn bytes(self) -> u64 {
        let lines = self.ring_offsets + 2 * (self.summary + self.bits) + self.queues;
        64 * lines as u64
    }
}

impl QueuesConfig {
    /// Returns the number of bytes in the segment while no queue is resident.
    ///
    /// # Errors
    /// [`CreateError::Size`], also for an invalid capacity.
    pub fn bytes(self) -> Result<u64, CreateError> {
        self.check()?;
        Ok(QueuesLayout::bytes(self) + 2 * CacheLineQueue::bytes_for(self.non_resident_capacity)?)
    }

    /// Returns the number of bytes that an arena needs for these queues with all their rings.
    ///
    /// # Errors
    /// Those of [`QueuesConfig::bytes`].
    pub fn max_bytes(self) -> Result<u64, CreateError> {
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
        size_of::<QueuesHeader>() as u64 + Sections::of(config.queues, config.rings).bytes()
    }

    /// Creates receive queues, owned by this process, with the non-resident queues of requests and
    /// of replies, which `non_resident` creates.
    pub(super) fn create(
        arena: &Arena,
        config: QueuesConfig,
        non_resident: impl FnOnce() -> Result<[CacheLineQueue; 2], CreateError>,
    ) -> Result<(QueuesLayout, [CacheLineQueue; 2]), CreateError> {
        let bytes = Sections::of(config.queues, config.rings).bytes();
        let prepare = |header: &Object<QueuesHeader>| {
            let non_resident = non_resident()?;
            // Relaxed, both: the label publishes them.
            for (line, queue) in [&header.request, &header.reply].into_iter().zip(&non_resident) {
                line.non_resident.store(queue.offset().0, Ordering::Relaxed);
            }
            header.settings.rings.store(config.rings as u64, Ordering::Relaxed);
            Ok(non_resident)
        };
        let (header, non_resident) = Object::create(arena, bytes, config.queues as u32, prepare)?;
        Ok((Self::map(header)?, non_resident))
    }

    /// Connects this process to the receive queues at `offset`. The entry keeps their memory
    /// allocated until the process detaches.
    pub(super) fn connect(
        segment: &Arc<Segment>,
        offset: Offset,
    ) -> Result<(QueuesLayout, Entry), CreateError> {
        Connecting::to(segment, offset)?.attach(Self::map)
    }

    fn map(header: Object<QueuesHeader>) -> Result<QueuesLayout, CreateError> {
        // Relaxed: the label published it. The memory may have been overwritten since, so both
        // numbers are checked before any range is computed from them.
        let rings = header.settings.rings.load(Ordering::Relaxed);
        let queues = header.parameter() as usize;
        if !(1..=MAX_QUEUES).contains(&queues) || rings > MAX_RINGS as u64 {
            return Err(Object::<QueuesHeader>::not_found(header.offset()));
        }
        let rings = rings as usize;
        let Sections { ring_offsets, summary, bits, .. } = Sections::of(queues, rings);
        let lines = |count: usize| 64 * count as u64;
        Ok(QueuesLayout {
            ring_offsets: header.trailing(0, 2 * rings)?,
            bits: header.trailing(lines(ring_offsets), 2 * 8 * (summary + bits))?,
            queues: header.trailing(lines(ring_offsets + 2 * (summary + bits)), queues)?,
            header,
        })
    }

    /// Returns the object in the segment.
    pub(super) fn object(&self) -> &Object<QueuesHeader> {
        &self.header
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

    /// Returns the table of processes that send.
    pub(super) fn processes(&self) -> &ProcessTable {
        &self.header.processes
    }

    /// Returns the receiver's request for a notification of its event.
    pub(super) fn request(&self) -> EventRequest<'_> {
        EventRequest(&self.header.settings.request)
    }

    /// Returns the bits of a class: one per queue, set if the queue may hold a message.
    pub(super) fn bits(&self, class: Class) -> Bits<'_> {
        // The classes have separate lines of bits, so that requests never take a line from replies.
        let half = self.bits.len() / 2;
        let of_class = &self.bits[class as usize * half..][..half];
        let (summary, words) = of_class.split_at(if half > 8 { 8 } else { 0 });
        Bits { words, summary }
    }

    pub(super) fn offset(&self) -> Offset {
        self.header.offset()
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
        // The limit of an index within its class: a corrupt descriptor must not lead to a ring of
        // the other class.
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
