//! The poll set: bits of many queues in the segment.

use super::bits::{Bit, Bits, MAX_QUEUES, QUEUES_PER_LINE};
use crate::error::CreateError;
use crate::sync::{AtomicU32, AtomicU64};
use shm::arena::Arena;
use shm::event::{Event, EventRequest};
use shm::mapped::{Mapped, MappedSlice};
use shm::object::{Label, Object, ObjectHeader};
use shm::segment::{Offset, Segment};
use shm::wakeup::Wakeup;
use std::sync::Arc;

shm::shared_lines! {
    /// Label of the set, with the number of queues, and the receivers' wake-up word.
    pub(super) struct SetSettings {
        label: Label,
        /// Wake-up word of receivers.
        arrival: AtomicU32,
        pub(super) request: AtomicU32,
    }
}

impl ObjectHeader for SetSettings {
    const KIND: u32 = u32::from_be_bytes(*b"poll");
    const NAME: &'static str = "poll set";

    fn label(&self) -> &Label {
        &self.label
    }
}

/// The bits of a set of queues in a segment.
#[derive(Debug, Clone)]
pub struct PollSet {
    pub(super) settings: Object<SetSettings>,
    words: MappedSlice<AtomicU64>,
    summary: MappedSlice<AtomicU64>,
}

/// Handle with which the senders of one queue of a set announce their messages.
#[derive(Debug, Clone)]
pub(crate) struct SetMember {
    word: Mapped<AtomicU64>,
    summary: Option<Mapped<AtomicU64>>,
    settings: Object<SetSettings>,
    index: u32,
}

fn lines_for(capacity: usize) -> (usize, usize) {
    let lines = capacity.div_ceil(QUEUES_PER_LINE);
    (lines, if lines > 1 { 1 } else { 0 })
}

impl PollSet {
    /// Returns the number of bytes that a set of this many queues occupies.
    ///
    /// # Errors
    /// [`CreateError::Size`] for 0 or more than [`MAX_QUEUES`].
    pub fn bytes_for(capacity: usize) -> Result<u64, CreateError> {
        if !(1..=MAX_QUEUES).contains(&capacity) {
            return Err(CreateError::Size {
                object: SetSettings::NAME,
                requested: capacity as u64,
                unit: "queues",
                limits: "1 to 262144",
            });
        }
        let (lines, summary) = lines_for(capacity);
        Ok(64 * (1 + summary + lines) as u64)
    }

    /// Creates a set of this many queues in the arena.
    ///
    /// # Errors
    /// Those of [`PollSet::bytes_for`] and [`Arena::allocate`].
    pub fn create(arena: &Arena, capacity: usize) -> Result<PollSet, CreateError> {
        let bits = Self::bytes_for(capacity)? - size_of::<SetSettings>() as u64;
        let (settings, ()) = Object::create(arena, bits, capacity as u32, |_| Ok(()))?;
        Self::map(settings)
    }

    /// Connects to the set at `offset`.
    ///
    /// # Errors
    /// [`CreateError::NotFound`] if there is none, [`CreateError::Segment`] for an offset outside
    /// the segment.
    pub fn connect(segment: &Arc<Segment>, offset: Offset) -> Result<PollSet, CreateError> {
        Self::map(Object::find(segment, offset)?)
    }

    fn map(settings: Object<SetSettings>) -> Result<PollSet, CreateError> {
        // The capacity comes from shared memory: `bytes_for` limits it, and the mapping fails if
        // the set would end outside the segment.
        let capacity = settings.parameter() as usize;
        Self::bytes_for(capacity)
            .map_err(|_| Object::<SetSettings>::not_found(settings.offset()))?;
        let (lines, summary) = lines_for(capacity);
        let words = settings.trailing(64 * summary as u64, 8 * lines)?;
        Ok(PollSet { summary: settings.trailing(0, 8 * summary)?, words, settings })
    }

    /// Returns the offset of the set in the segment, to which other processes connect.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.settings.offset()
    }

    /// Returns the number of queues.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.settings.parameter() as usize
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
        if index >= self.capacity() {
            return Err(CreateError::NoIndex {
                object: SetSettings::NAME,
                offset: self.offset(),
                count: self.capacity(),
                index,
            });
        }
        let (_, summary) = lines_for(self.capacity());
        // A member maps its own words of the set, so that an announcement checks no index.
        let word_at = |line: usize, index: usize| {
            let bytes = 64 * line + 8 * (index / 64);
            Mapped::new(self.settings.segment(), self.settings.behind_header(bytes as u64))
        };
        let line = index / QUEUES_PER_LINE;
        Ok(SetMember {
            word: word_at(summary, index)?,
            summary: (summary != 0).then(|| word_at(0, line)).transpose()?,
            settings: self.settings.clone(),
            index: index as u32,
        })
    }
}

impl SetMember {
    /// Returns the offset of its set.
    pub(crate) fn set(&self) -> Offset {
        self.settings.offset()
    }

    /// Returns its index in the set.
    pub(crate) fn index(&self) -> usize {
        self.index as usize
    }

    /// Announces a message that was just published by an exchange. The exchange orders it before
    /// the load of the bit, so no fence is needed here.
    #[inline(always)]
    pub(crate) fn announce(&self, event: Option<&Event>) {
        // The bit of the queue before that of its line: a receiver that finds the line's bit set
        // looks into the line, and clears the bit only if it finds the line empty after a fence.
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
