//! How a hall lies in its segment: settings, a line for each class, who sends, the rings' places, a
//! bit for each queue and class, and a line for each queue.

use std::sync::Arc;

use shm::mapped::{Mapped, MappedSlice};
use shm::process::ProcessError;
use shm::segment::{Offset, Segment};

use super::memory::Memory;
use crate::bell::{Bell, Request};
use crate::cache_line::CacheLineQueue;
use crate::error::CreateError;
use crate::liveness::ProcessId;
use crate::poll_set::{Bits, QUEUES_PER_LINE};
use crate::process_table::{AttachError, Entry, MAX_PROCESSES, ProcessTable};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// How many queues a hall has at most: as many as a line's tag can name.
pub const MOST_QUEUES: usize = 1 << 16;

/// How many rings a class of a hall has at most.
pub const MOST_RINGS: usize = 1 << 15;

/// Says that a hall lies here.
const MAGIC: u64 = 0x7477_6861_6c6c;

const RESIDENT: u64 = 1 << 63;
const STOPPED: u64 = 1 << 62;
const RING_SHIFT: u32 = 32;

/// What a message is about: the classes share no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Asks for something.
    Request = 0,
    /// Answers a request. Its receiver always takes it.
    Reply = 1,
}

/// How large a hall is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// How many queues, from 1 to [`MOST_QUEUES`].
    pub queues: usize,
    /// How many of them have a ring at the same time, of each class; at most [`MOST_RINGS`].
    pub rings: usize,
    /// How many messages a ring holds: a power of two.
    pub ring_capacity: usize,
    /// How many messages each miss ring holds: a power of two.
    pub miss_capacity: usize,
    /// How many messages a queue's overflow list holds before its senders are stopped; at least 1.
    pub quota: usize,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { queues: 512, rings: 16, ring_capacity: 64, miss_capacity: 256, quota: 1024 }
    }
}

impl Shape {
    fn check(self) -> Result<(), HallError> {
        let Shape { queues, rings, quota, .. } = self;
        if !(1..=MOST_QUEUES).contains(&queues) || rings > MOST_RINGS || quota == 0 {
            return Err(HallError::Shape { shape: self });
        }
        Ok(())
    }

    /// How many bytes of the segment a hall of this shape takes as long as no queue is resident.
    ///
    /// # Errors
    /// [`HallError::Shape`], [`HallError::Ring`] for a capacity that no ring has.
    pub fn bytes(self) -> Result<u64, HallError> {
        self.check()?;
        Ok(Sections::of(self.queues, self.rings).bytes()
            + 2 * CacheLineQueue::bytes_for(self.miss_capacity)?)
    }

    /// How many bytes an arena needs for a hall of this shape with all its rings.
    ///
    /// # Errors
    /// Those of [`Shape::bytes`].
    pub fn most_bytes(self) -> Result<u64, HallError> {
        let rings = 2 * self.rings as u64;
        // Every piece starts at a multiple of two lines, which may cost the line before it.
        Ok(self.bytes()?
            + rings * CacheLineQueue::bytes_for(self.ring_capacity)?
            + 64 * (rings + 3))
    }
}

/// Why there is no such hall or queue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HallError {
    /// A shape that no hall has.
    #[error(
        "a hall cannot have the shape {shape:?}: take 1 to {MOST_QUEUES} queues, at most {MOST_RINGS} rings, a quota above 0"
    )]
    Shape {
        /// What was asked for.
        shape: Shape,
    },
    /// Something else lies there.
    #[error("no hall lies at {offset}: attach to the offset that its maker gave")]
    NoHall {
        /// Where it was looked for.
        offset: Offset,
    },
    /// The hall has fewer queues.
    #[error("the hall at {offset} has {queues} queues, so none of index {index}")]
    NoQueue {
        /// The hall.
        offset: Offset,
        /// How many queues it has.
        queues: usize,
        /// What was asked for.
        index: usize,
    },
    /// The hall was closed.
    #[error("the hall at {offset} is closed: ask its maker for another")]
    Closed {
        /// The hall.
        offset: Offset,
    },
    /// Too many processes send, or one of them has too many entrances.
    #[error(
        "the hall at {offset} has {MAX_PROCESSES} entrances, and no more are possible: share one in a process"
    )]
    TooManyEntrances {
        /// The hall.
        offset: Offset,
    },
    /// This process cannot be named.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A ring cannot be made or found.
    #[error(transparent)]
    Ring(#[from] CreateError),
}

shm::shared_lines! {
    /// What the maker says, and where it sleeps.
    pub(super) struct Settings {
        magic: AtomicU64,
        queues: AtomicU64,
        rings: AtomicU64,
        /// The name of the maker's process.
        owner: AtomicU64,
        arrival: AtomicU32,
        /// The receiver asks for its eventfd here.
        request: AtomicU32,
    }

    /// What senders of one class look at.
    pub(super) struct ClassLine {
        /// Every position of the miss ring before this one is sorted.
        pub(super) sorted: AtomicU64,
        /// Where the miss ring lies.
        miss: AtomicU64,
        /// Senders wait for room here.
        room: AtomicU32,
    }

    pub(super) struct Head {
        settings: Settings,
        request: ClassLine,
        reply: ClassLine,
        processes: ProcessTable,
    }

    /// What the hall says about a queue: a word for each class, written by the receiver alone.
    pub(super) struct Descriptor {
        request: AtomicU64,
        reply: AtomicU64,
    }
}

/// What a descriptor's word says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct State {
    /// The number of its ring, and the ring's generation.
    pub(super) ring: Option<(usize, u32)>,
    /// Its overflow list is full.
    pub(super) stopped: bool,
}

impl State {
    fn pack(self) -> u64 {
        let stopped = if self.stopped { STOPPED } else { 0 };
        let ring = self.ring.map_or(0, |(ring, generation)| {
            RESIDENT | (ring as u64) << RING_SHIFT | u64::from(generation)
        });
        stopped | ring
    }

    fn unpack(word: u64) -> State {
        let ring =
            (word & RESIDENT != 0).then_some(((word >> RING_SHIFT) as usize & 0xffff, word as u32));
        State { ring, stopped: word & STOPPED != 0 }
    }
}

/// The parts of a hall, mapped.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    head: Mapped<Head>,
    /// Offset plus one of each ring: those of requests, then those of replies.
    pub(super) places: MappedSlice<AtomicU64>,
    /// Of requests, then of replies; each a line of summary if there is more than one line of bits,
    /// and the bits.
    bits: MappedSlice<AtomicU64>,
    pub(super) queues: MappedSlice<Descriptor>,
    offset: Offset,
}

/// How many lines each part of a hall takes behind its head.
#[derive(Clone, Copy)]
struct Sections {
    places: usize,
    /// Of one class.
    summary: usize,
    /// Of one class.
    bits: usize,
    queues: usize,
}

impl Sections {
    fn of(queues: usize, rings: usize) -> Sections {
        let bits = queues.div_ceil(QUEUES_PER_LINE);
        Sections { places: (2 * rings).div_ceil(8), summary: usize::from(bits > 1), bits, queues }
    }

    fn bytes(self) -> u64 {
        let lines = self.places + 2 * (self.summary + self.bits) + self.queues;
        (size_of::<Head>() + 64 * lines) as u64
    }
}

impl Plan {
    /// Makes a hall without rings, and its miss rings.
    pub(super) fn create(
        memory: &Memory,
        shape: Shape,
    ) -> Result<(Plan, [CacheLineQueue; 2]), HallError> {
        let Shape { queues, rings, .. } = shape;
        let owner = ProcessId::own()?;
        shape.most_bytes()?;
        let offset = memory.lines(Sections::of(queues, rings).bytes())?;
        let plan = Self::map(memory.segment(), offset, queues, rings)?;
        plan.head.settings.owner.store(owner.0, Ordering::Relaxed);
        let misses = [memory.ring(shape.miss_capacity)?, memory.ring(shape.miss_capacity)?];
        for (class, miss) in [Class::Request, Class::Reply].into_iter().zip(&misses) {
            plan.class(class).miss.store(miss.offset().0, Ordering::Relaxed);
        }
        plan.head.settings.queues.store(queues as u64, Ordering::Relaxed);
        plan.head.settings.rings.store(rings as u64, Ordering::Relaxed);
        // Release: pairs with the Acquire in `attach`.
        plan.head.settings.magic.store(MAGIC, Ordering::Release);
        memory.publish(&plan);
        Ok((plan, misses))
    }

    /// Finds a hall.
    pub(super) fn attach(segment: &Arc<Segment>, offset: Offset) -> Result<Plan, HallError> {
        let head = Mapped::<Head>::new(segment, offset).map_err(CreateError::from)?;
        // Acquire: pairs with the Release in `create`.
        let found = head.settings.magic.load(Ordering::Acquire);
        let queues =
            usize::try_from(head.settings.queues.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        let rings =
            usize::try_from(head.settings.rings.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        if found != MAGIC || !(1..=MOST_QUEUES).contains(&queues) || rings > MOST_RINGS {
            return Err(HallError::NoHall { offset });
        }
        Ok(Self::map(segment, offset, queues, rings)?)
    }

    /// The hall's miss rings, of requests and of replies.
    pub(super) fn misses(
        &self,
        segment: &Arc<Segment>,
    ) -> Result<[CacheLineQueue; 2], CreateError> {
        // Relaxed: the magic number published them.
        let miss = |class| {
            CacheLineQueue::attach(segment, Offset(self.class(class).miss.load(Ordering::Relaxed)))
        };
        Ok([miss(Class::Request)?, miss(Class::Reply)?])
    }

    fn map(
        segment: &Arc<Segment>,
        offset: Offset,
        queues: usize,
        rings: usize,
    ) -> Result<Plan, CreateError> {
        let Sections { places, summary, bits, .. } = Sections::of(queues, rings);
        let after =
            |lines: usize| Offset(offset.0.saturating_add((size_of::<Head>() + 64 * lines) as u64));
        Ok(Plan {
            head: Mapped::new(segment, offset)?,
            places: MappedSlice::new(segment, after(0), 2 * rings)?,
            bits: MappedSlice::new(segment, after(places), 2 * 8 * (summary + bits))?,
            queues: MappedSlice::new(segment, after(places + 2 * (summary + bits)), queues)?,
            offset,
        })
    }

    /// Makes sure that nobody finds a hall here any more.
    pub(super) fn erase(&self) {
        // Relaxed: the arena's next user orders its own stores.
        self.head.settings.magic.store(0, Ordering::Relaxed);
    }

    /// Who may still touch the hall.
    pub(super) fn processes(&self) -> &ProcessTable {
        &self.head.processes
    }

    /// Enters this process as one that sends.
    pub(super) fn enter(&self) -> Result<Entry, HallError> {
        let offset = self.offset;
        self.processes().attach().map_err(|reason| match reason {
            AttachError::Closed => HallError::Closed { offset },
            AttachError::TooMany => HallError::TooManyEntrances { offset },
            AttachError::Unidentified(error) => error.into(),
        })
    }

    /// Who receives.
    pub(super) fn owner(&self) -> ProcessId {
        // Relaxed: the magic number published it.
        ProcessId(self.head.settings.owner.load(Ordering::Relaxed))
    }

    /// What the receiver wants its eventfd for.
    pub(super) fn request(&self) -> Request<'_> {
        Request(&self.head.settings.request)
    }

    /// A bit for each queue of a class: it may hold something.
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
            Class::Request => &self.head.request,
            Class::Reply => &self.head.reply,
        }
    }

    /// Where the receiver sleeps.
    pub(super) fn arrival(&self) -> Bell<'_> {
        Bell(&self.head.settings.arrival)
    }

    /// Where senders of a class wait for room.
    pub(super) fn room(&self, class: Class) -> Bell<'_> {
        Bell(&self.class(class).room)
    }

    /// Where the place of a ring is written.
    pub(super) fn place(&self, class: Class, ring: usize) -> Option<&AtomicU64> {
        let half = self.places.len() / 2;
        self.places.get(class as usize * half + ring).filter(|_| ring < half)
    }

    fn word(&self, queue: usize, class: Class) -> Option<&AtomicU64> {
        let descriptor = self.queues.get(queue)?;
        Some(match class {
            Class::Request => &descriptor.request,
            Class::Reply => &descriptor.reply,
        })
    }

    /// What the descriptor of a queue says.
    pub(super) fn state(&self, queue: usize, class: Class) -> State {
        // Acquire: pairs with the Release in `set_state`; the ring's place was written before.
        self.word(queue, class)
            .map_or(State::default(), |word| State::unpack(word.load(Ordering::Acquire)))
    }

    pub(super) fn set_state(&self, queue: usize, class: Class, state: State) {
        if let Some(word) = self.word(queue, class) {
            // Release: pairs with the Acquire in `state`.
            word.store(state.pack(), Ordering::Release);
        }
    }
}
