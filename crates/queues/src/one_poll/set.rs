//! The poll set: bits of many queues in the segment.

use std::sync::Arc;

use shm::arena::Arena;
use shm::event::{Event, EventRequest};
use shm::mapped::{Mapped, MappedSlice};
use shm::segment::{Offset, Segment};
use shm::wakeup::Wakeup;

use super::bits::{Bit, Bits, MAX_QUEUES, QUEUES_PER_LINE};
use crate::error::CreateError;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

const MAGIC: u64 = 0x7477_706f;

shm::shared_lines! {
    /// Description of the set, and the receivers' wake-up word.
    pub(super) struct SetSettings {
        /// [`MAGIC`] and the number of queues.
        layout: AtomicU64,
        /// Wake-up word of receivers.
        arrival: AtomicU32,
        pub(super) request: AtomicU32,
    }
}

/// The bits of a set of queues in a segment.
#[derive(Debug, Clone)]
pub struct PollSet {
    pub(super) settings: Mapped<SetSettings>,
    words: MappedSlice<AtomicU64>,
    summary: MappedSlice<AtomicU64>,
    segment: Arc<Segment>,
    capacity: usize,
    offset: Offset,
}

/// Handle with which the senders of one queue of a set announce their messages.
#[derive(Debug, Clone)]
pub(crate) struct SetMember {
    word: Mapped<AtomicU64>,
    summary: Option<Mapped<AtomicU64>>,
    settings: Mapped<SetSettings>,
    index: u32,
    set: Offset,
}

fn lines_for(capacity: usize) -> (usize, usize) {
    let lines = capacity.div_ceil(QUEUES_PER_LINE);
    (lines, if lines > 1 { 1 } else { 0 })
}

impl PollSet {
    /// Returns the number of bytes that a set of this many queues occupies.
    ///
    /// # Errors
    /// [`CreateError::Capacity`] for 0 or more than [`MAX_QUEUES`].
    pub fn bytes_for(capacity: usize) -> Result<u64, CreateError> {
        if !(1..=MAX_QUEUES).contains(&capacity) {
            return Err(CreateError::Capacity { capacity });
        }
        let (lines, summary) = lines_for(capacity);
        Ok(64 * (1 + summary + lines) as u64)
    }

    /// Creates a set of this many queues in the arena.
    ///
    /// # Errors
    /// Those of [`PollSet::bytes_for`] and [`Arena::allocate`].
    pub fn create(arena: &Arena, capacity: usize) -> Result<PollSet, CreateError> {
        let offset = arena.allocate_zeroed(Self::bytes_for(capacity)?, 128)?;
        let set = Self::map(arena.segment(), offset, capacity)?;
        // Release: pairs with the Acquire in `connect`. It is the last store, so a process that
        // reads the magic number also sees zeroed bits.
        set.settings.layout.store(MAGIC << 32 | capacity as u64, Ordering::Release);
        Ok(set)
    }

    /// Connects to the set at `offset`.
    ///
    /// # Errors
    /// [`CreateError::NoQueue`] if there is none, [`CreateError::Segment`] for an offset outside
    /// the segment.
    pub fn connect(segment: &Arc<Segment>, offset: Offset) -> Result<PollSet, CreateError> {
        // Acquire: pairs with the Release in `create`.
        let label = Mapped::<SetSettings>::new(segment, offset)?.layout.load(Ordering::Acquire);
        // The capacity comes from shared memory: `bytes_for` limits it, and the mapping fails if
        // the set would end outside the segment.
        let capacity = (label & 0xffff_ffff) as usize;
        if label >> 32 != MAGIC || Self::bytes_for(capacity).is_err() {
            return Err(CreateError::NoQueue { offset, kind: "poll set" });
        }
        Self::map(segment, offset, capacity)
    }

    fn map(
        segment: &Arc<Segment>,
        offset: Offset,
        capacity: usize,
    ) -> Result<PollSet, CreateError> {
        let (lines, summary) = lines_for(capacity);
        let after = |count: usize| Offset(offset.0.saturating_add(64 * count as u64));
        Ok(PollSet {
            settings: Mapped::new(segment, offset)?,
            summary: MappedSlice::new(segment, after(1), 8 * summary)?,
            words: MappedSlice::new(segment, after(1 + summary), 8 * lines)?,
            segment: Arc::clone(segment),
            capacity,
            offset,
        })
    }

    /// Returns the offset of the set in the segment, to which other processes connect.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.offset
    }

    /// Returns the number of queues.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the wake-up word of receivers.
    pub(super) fn arrival(&self) -> Wakeup<'_> {
        Wakeup::by_exchange(&self.settings.arrival)
    }

    pub(super) fn bits(&self) -> Bits<'_> {
        Bits { words: &self.words, summary: &self.summary }
    }

    /// Returns the handle for the senders of one queue.
    pub(crate) fn member(&self, index: usize) -> Result<SetMember, CreateError> {
        if index >= self.capacity {
            return Err(CreateError::NoMember {
                offset: self.offset,
                capacity: self.capacity,
                index,
            });
        }
        let (_, summary) = lines_for(self.capacity);
        let word_at = |line: usize, index: usize| {
            let bytes = 64 * line + 8 * (index / 64);
            Mapped::new(&self.segment, Offset(self.offset.0.saturating_add(bytes as u64)))
        };
        let line = index / QUEUES_PER_LINE;
        Ok(SetMember {
            word: word_at(1 + summary, index)?,
            summary: (summary != 0).then(|| word_at(1, line)).transpose()?,
            settings: self.settings.clone(),
            index: index as u32,
            set: self.offset,
        })
    }
}

impl SetMember {
    /// Returns the offset of its set.
    pub(crate) fn set(&self) -> Offset {
        self.set
    }

    /// Returns its index in the set.
    pub(crate) fn index(&self) -> usize {
        self.index as usize
    }

    /// Announces a message that was just published by an exchange. The exchange orders it before
    /// the load of the bit, so no fence is needed here.
    #[inline(always)]
    pub(crate) fn announce(&self, event: Option<&Event>) {
        Bit { word: &self.word, mask: 1 << (self.index % 64) }.set();
        if let Some(summary) = &self.summary {
            let line = self.index as usize / QUEUES_PER_LINE;
            Bit { word: summary, mask: 1 << (line % 64) }.set();
        }
        // After the bits: a receiver that this wakes, or that was about to sleep, finds them set.
        Wakeup::by_exchange(&self.settings.arrival).notify();
        if let Some(event) = event {
            // Only single queues can be half full, not a set.
            EventRequest(&self.settings.request).serve(|| false, || event.notify());
        }
    }
}
