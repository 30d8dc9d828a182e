//! Arena: one process's allocator over its own range of a segment.
//!
//! Each rank has its own arena and keeps the allocator's state in private memory. Ranks therefore
//! never wait for each other to allocate, and a rank killed during an allocation leaves no
//! half-made change in shared memory.

use crate::free_list::{FreeList, GRANULE};
use crate::mapped::MappedSlice;
use crate::segment::{Offset, Segment, SegmentError};
use crate::sync::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Granularity of reservation in bytes: each reservation is a system call.
const COMMIT_STEP: u64 = 256 << 10;

/// Error of an arena operation. Sizes are in bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// No free range is large enough.
    #[error(
        "no {needed} free bytes (aligned to {alignment}) in an arena of {capacity}, of which {used} are \
         used and the largest free range has {largest_free}: free memory, or set TRADEWIND_ARENA_MIB to more"
    )]
    Full {
        /// Requested size.
        needed: u64,
        /// Requested alignment.
        alignment: u64,
        /// Size of the arena.
        capacity: u64,
        /// Allocated bytes.
        used: u64,
        /// Size of the largest free range.
        largest_free: u64,
    },
    /// The alignment is not a power of two.
    #[error("an alignment of {alignment} bytes is not a power of two")]
    Alignment {
        /// Requested alignment.
        alignment: u64,
    },
    /// Freed twice, or not the start of an allocation.
    #[error("{offset} is not the start of an allocation (was it freed before?)")]
    NotAllocated {
        /// Offset passed to `free`.
        offset: Offset,
    },
    /// Freed in an arena that did not allocate it.
    #[error(
        "{offset} lies outside this arena ({start:#x} to {end:#x}): free it where it was allocated"
    )]
    Foreign {
        /// Offset passed to `free`.
        offset: Offset,
        /// First byte of the arena.
        start: u64,
        /// End of the arena.
        end: u64,
    },
    /// The range lies outside the segment, or the segment could not supply the memory.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

/// Allocator over one range of a segment. All methods may be called from any thread.
///
/// # Examples
///
/// ```
/// use shm::arena::Arena;
/// use shm::segment::{Backing, Segment};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), shm::arena::ArenaError> {
/// let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
/// let arena = Arena::new(segment, 4096..1 << 20)?;
/// let buffer = arena.allocate(1000, 64)?;
/// assert_eq!(arena.used(), 1024, "whole cache lines");
/// arena.free(buffer)?;
/// assert!(arena.free(buffer).is_err(), "freed twice");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Arena {
    segment: Arc<Segment>,
    range: Range<u64>,
    state: Mutex<AllocatorState>,
    /// See [`Arena::listing_queues_in`].
    queues: Option<MappedSlice<AtomicU64>>,
    /// See [`Arena::free_later`].
    retired: Mutex<Vec<Box<dyn Retired>>>,
}

/// An object that has no owner any more, and that other processes may still use.
pub trait Retired: Send + fmt::Debug {
    /// Frees the object's memory in its arena if no process uses it any more; returns true then.
    fn try_free(&self, arena: &Arena) -> bool;
}

#[derive(Debug)]
struct AllocatorState {
    free: FreeList,
    /// Live allocations: start → length.
    allocated: BTreeMap<u64, u64>,
    /// Sum of the lengths in `allocated`.
    used: u64,
    /// Everything in the range before this offset is committed.
    committed_to: u64,
    /// No byte at or after this offset was ever allocated, so all of them are still zero.
    fresh_from: u64,
    /// Listed queues: start → index of the word.
    listed: BTreeMap<u64, usize>,
}

impl Arena {
    /// Creates an arena over `range` (bytes of the segment; narrowed to whole 64-byte lines). No
    /// other arena may overlap it.
    ///
    /// # Errors
    ///
    /// [`ArenaError::Segment`] if the range does not lie in the segment.
    pub fn new(segment: Arc<Segment>, range: Range<u64>) -> Result<Arena, ArenaError> {
        segment.bytes_ptr(Offset(range.start), range.end.saturating_sub(range.start))?;
        let start = range.start.next_multiple_of(GRANULE);
        let range = start..(range.end / GRANULE * GRANULE).max(start);
        let state = AllocatorState {
            free: FreeList::new(range.clone()),
            allocated: BTreeMap::new(),
            used: 0,
            committed_to: range.start,
            fresh_from: range.start,
            listed: BTreeMap::new(),
        };
        let retired = Mutex::default();
        Ok(Arena { segment, range, state: Mutex::new(state), queues: None, retired })
    }

    /// Lists the queues that are created in this arena in these words of the segment, for an
    /// observer of the job. Queues for which no word is left are not listed.
    #[must_use]
    pub fn listing_queues_in(self, words: MappedSlice<AtomicU64>) -> Arena {
        Arena { queues: Some(words), ..self }
    }

    /// Lists the queue at this offset until its memory is freed.
    pub(crate) fn list(&self, queue: Offset) {
        let Some(words) = &self.queues else { return };
        let mut state = self.state();
        // Relaxed, here and in `free`: the lock orders the changes of this process, and the
        // observer checks what lies at the offset.
        if let Some(free) = words.iter().position(|word| word.load(Ordering::Relaxed) == 0) {
            words[free].store(queue.0, Ordering::Relaxed);
            state.listed.insert(queue.0, free);
        }
    }

    /// Allocates `bytes` bytes (rounded up to whole 64-byte lines, at least one) at an offset that
    /// is a multiple of `alignment` (a power of two; at least 64). The memory is committed, so
    /// touching it cannot fail. Memory that was never allocated before is zero; reused memory holds
    /// its former contents.
    ///
    /// Addresses have the same alignment up to the size of a page, since mappings start at a page.
    ///
    /// # Errors
    ///
    /// [`ArenaError::Full`], [`ArenaError::Alignment`], or [`ArenaError::Segment`] with
    /// [`SegmentError::NoSpace`] when the file system is full; the arena is then unchanged.
    pub fn allocate(&self, bytes: u64, alignment: u64) -> Result<Offset, ArenaError> {
        self.reserve(bytes, alignment).map(|(offset, _)| offset)
    }

    /// Allocates as [`Arena::allocate`] does, with all bytes zero.
    ///
    /// ```
    /// # use shm::{arena::{Arena, ArenaError}, segment::{Backing, Segment}, sync::{AtomicU64, Ordering}};
    /// # fn main() -> Result<(), ArenaError> {
    /// let segment = std::sync::Arc::new(Segment::create(1 << 20, Backing::Memory)?);
    /// let arena = Arena::new(segment.clone(), 0..1 << 20)?;
    /// let word = arena.allocate(8, 64)?;
    /// segment.at::<AtomicU64>(word)?.store(7, Ordering::Relaxed);
    /// arena.free(word)?;
    /// let word = arena.allocate_zeroed(8, 64)?;
    /// assert_eq!(segment.at::<AtomicU64>(word)?.load(Ordering::Relaxed), 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Arena::allocate`].
    pub fn allocate_zeroed(&self, bytes: u64, alignment: u64) -> Result<Offset, ArenaError> {
        let (offset, used_before) = self.reserve(bytes, alignment)?;
        // Atomic stores: a late reader of the former contents must not turn this into a data race.
        // Relaxed: the store that publishes the offset orders them.
        let words = self.segment.slice_at::<AtomicU64>(offset, (used_before / 8) as usize)?;
        for word in words {
            word.store(0, Ordering::Relaxed);
        }
        Ok(offset)
    }

    /// Frees memory that [`Arena::allocate`] returned.
    ///
    /// # Errors
    ///
    /// [`ArenaError::NotAllocated`] for a second free, [`ArenaError::Foreign`] for an offset
    /// outside the arena.
    pub fn free(&self, offset: Offset) -> Result<(), ArenaError> {
        if !self.range.contains(&offset.0) {
            return Err(ArenaError::Foreign {
                offset,
                start: self.range.start,
                end: self.range.end,
            });
        }
        let mut state = self.state();
        let length =
            state.allocated.remove(&offset.0).ok_or(ArenaError::NotAllocated { offset })?;
        state.used -= length;
        state.free.insert_merged(offset.0, length);
        if let (Some(word), Some(words)) = (state.listed.remove(&offset.0), &self.queues) {
            // Under the lock: the next object in this memory is listed after this store.
            words[word].store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Keeps an object until a later [`Arena::free_retired`] finds it unused.
    pub fn free_later(&self, object: Box<dyn Retired>) {
        self.retired().push(object);
    }

    /// Frees the objects of [`Arena::free_later`] that no process uses any more.
    pub fn free_retired(&self) {
        // Without the lock meanwhile: an object may retire its memory once more.
        let mut retired = std::mem::take(&mut *self.retired());
        retired.retain(|object| !object.try_free(self));
        self.retired().append(&mut retired);
    }

    fn retired(&self) -> MutexGuard<'_, Vec<Box<dyn Retired>>> {
        // Every change under the lock is complete.
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of allocated bytes, in whole lines.
    pub fn used(&self) -> u64 {
        self.state().used
    }

    /// Returns the size of the arena in bytes.
    pub fn capacity(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Returns the segment that contains the arena.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Returns the error of an allocation that finds no range, as of now.
    pub fn shortage(&self, bytes: u64, alignment: u64) -> ArenaError {
        self.full(&self.state(), bytes, alignment)
    }

    fn full(&self, state: &AllocatorState, needed: u64, alignment: u64) -> ArenaError {
        ArenaError::Full {
            needed,
            alignment,
            capacity: self.capacity(),
            used: state.used,
            largest_free: state.free.largest(),
        }
    }

    /// Reserves a range; returns its offset and how many of its first bytes may have been used
    /// before.
    fn reserve(&self, bytes: u64, alignment: u64) -> Result<(Offset, u64), ArenaError> {
        if !alignment.is_power_of_two() {
            return Err(ArenaError::Alignment { alignment });
        }
        let alignment = alignment.max(GRANULE);
        let mut state = self.state();
        let found = bytes.max(1).checked_next_multiple_of(GRANULE).and_then(|length| {
            let start = state.free.find(length, alignment)?;
            Some((start, length))
        });
        let Some((start, length)) = found else {
            return Err(self.full(&state, bytes, alignment));
        };
        let end = start + length;
        // The fallible step comes first, so that an error leaves the state unchanged.
        self.commit(&mut state, end)?;
        state.free.take(start, length);
        state.allocated.insert(start, length);
        state.used += length;
        // Bytes from `fresh_from` on come from the file system, which provides zeros. Only those
        // before it may hold former contents.
        let used_before = state.fresh_from.clamp(start, end) - start;
        state.fresh_from = state.fresh_from.max(end);
        Ok((Offset(start), used_before))
    }

    /// Commits all memory before `end`.
    fn commit(&self, state: &mut AllocatorState, end: u64) -> Result<(), SegmentError> {
        let from = state.committed_to;
        if end <= from {
            return Ok(());
        }
        let generous = end.max(from.saturating_add(COMMIT_STEP)).min(self.range.end);
        // When a whole step no longer fits, the bytes needed now may still fit.
        state.committed_to = match self.segment.commit(Offset(from), generous - from) {
            Err(SegmentError::NoSpace { .. }) if end < generous => {
                self.segment.commit(Offset(from), end - from).map(|()| end)?
            }
            other => other.map(|()| generous)?,
        };
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, AllocatorState> {
        // The state changes after every step that can fail, so it is consistent even if a thread
        // panicked while it held the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
