//! An arena: one process's allocator over its own part of a segment.
//!
//! Each rank has an arena of its own and keeps the books in private memory. So ranks never wait for
//! each other to allocate, and a rank that is killed in the middle of it leaves nothing half done
//! in shared memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::free_list::{FreeList, GRANULE};
use crate::segment::{Offset, Segment, SegmentError};
use crate::sync::{AtomicU64, Ordering};

/// Memory is reserved in steps of at least this many bytes, because reserving is a system call.
const COMMIT_STEP: u64 = 256 << 10;

/// What can go wrong with an arena. Sizes are bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// No free piece is large enough.
    #[error(
        "no {needed} free bytes (aligned to {alignment}) in an arena of {capacity}, of which {used} are used and the \
         largest free piece has {largest_free}: free something or make the segment larger"
    )]
    Full {
        /// What was asked for.
        needed: u64,
        /// The alignment asked for.
        alignment: u64,
        /// The size of the arena.
        capacity: u64,
        /// What is handed out.
        used: u64,
        /// The largest piece that is free.
        largest_free: u64,
    },
    /// The alignment is not a power of two.
    #[error("an alignment of {alignment} bytes is not a power of two")]
    Alignment {
        /// What was asked for.
        alignment: u64,
    },
    /// Freed twice, or not the start of an allocation.
    #[error("{offset} is not the start of an allocation (was it freed before?)")]
    NotAllocated {
        /// What was to be freed.
        offset: Offset,
    },
    /// Freed in an arena that it does not come from.
    #[error(
        "{offset} lies outside this arena ({start:#x} to {end:#x}): free it where it was allocated"
    )]
    Foreign {
        /// What was to be freed.
        offset: Offset,
        /// Where the arena starts.
        start: u64,
        /// Where it ends.
        end: u64,
    },
    /// The segment has no such range, or could not supply the memory.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

/// An allocator over one range of a segment. All of its methods may be called from any thread.
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
/// let place = arena.allocate(1000, 64)?;
/// assert_eq!(arena.used(), 1024, "whole cache lines");
/// arena.free(place)?;
/// assert!(arena.free(place).is_err(), "freed twice");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Arena {
    segment: Arc<Segment>,
    range: Range<u64>,
    books: Mutex<Books>,
}

#[derive(Debug)]
struct Books {
    free: FreeList,
    /// start → length of everything handed out.
    taken: BTreeMap<u64, u64>,
    /// The sum of the lengths in `taken`.
    used: u64,
    /// Everything of the range before this is reserved.
    committed_to: u64,
    /// Nothing at or after this was ever handed out, so it is still zero.
    fresh_from: u64,
}

impl Arena {
    /// An arena over `range` (bytes of the segment; narrowed to whole 64-byte lines). No other
    /// arena may overlap it.
    ///
    /// # Errors
    ///
    /// [`ArenaError::Segment`] if the range does not lie in the segment.
    pub fn new(segment: Arc<Segment>, range: Range<u64>) -> Result<Arena, ArenaError> {
        segment.bytes_ptr(Offset(range.start), range.end.saturating_sub(range.start))?;
        let start = range.start.next_multiple_of(GRANULE);
        let range = start..(range.end / GRANULE * GRANULE).max(start);
        let books = Books {
            free: FreeList::new(range.clone()),
            taken: BTreeMap::new(),
            used: 0,
            committed_to: range.start,
            fresh_from: range.start,
        };
        Ok(Arena { segment, range, books: Mutex::new(books) })
    }

    /// Hands out `bytes` bytes (rounded up to whole 64-byte lines, at least one) whose offset is a
    /// multiple of `alignment` (a power of two; 64 at least). They are committed: touching them
    /// cannot fail. Bytes that were never handed out before are zero, others hold what they held.
    ///
    /// The address is aligned like the offset up to the size of a page, which is where the mapping
    /// starts.
    ///
    /// # Errors
    ///
    /// [`ArenaError::Full`], [`ArenaError::Alignment`], or [`ArenaError::Segment`] with
    /// [`SegmentError::NoSpace`] when the file system is full; the arena is then as before.
    pub fn allocate(&self, bytes: u64, alignment: u64) -> Result<Offset, ArenaError> {
        self.place(bytes, alignment).map(|(offset, _)| offset)
    }

    /// As [`Arena::allocate`], and all bytes are zero.
    ///
    /// ```
    /// # use shm::{arena::{Arena, ArenaError}, segment::{Backing, Segment}, sync::{AtomicU64, Ordering}};
    /// # fn main() -> Result<(), ArenaError> {
    /// let segment = std::sync::Arc::new(Segment::create(1 << 20, Backing::Memory)?);
    /// let arena = Arena::new(segment.clone(), 0..1 << 20)?;
    /// let place = arena.allocate(8, 64)?;
    /// segment.at::<AtomicU64>(place)?.store(7, Ordering::Relaxed);
    /// arena.free(place)?;
    /// let place = arena.allocate_zeroed(8, 64)?;
    /// assert_eq!(segment.at::<AtomicU64>(place)?.load(Ordering::Relaxed), 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Arena::allocate`].
    pub fn allocate_zeroed(&self, bytes: u64, alignment: u64) -> Result<Offset, ArenaError> {
        let (offset, used_before) = self.place(bytes, alignment)?;
        // Atomic stores, because a reader that was late to let go of the old contents must not make
        // this a data race. Relaxed: whoever publishes the offset orders them.
        let words = self.segment.slice_at::<AtomicU64>(offset, (used_before / 8) as usize)?;
        for word in words {
            word.store(0, Ordering::Relaxed);
        }
        Ok(offset)
    }

    /// Takes back what [`Arena::allocate`] gave.
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
        let mut books = self.books();
        let length = books.taken.remove(&offset.0).ok_or(ArenaError::NotAllocated { offset })?;
        books.used -= length;
        books.free.give_back(offset.0, length);
        Ok(())
    }

    /// Bytes handed out and not freed, in whole lines.
    pub fn used(&self) -> u64 {
        self.books().used
    }

    /// Bytes of the whole arena.
    pub fn capacity(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// The segment that the arena lies in.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Finds a place; gives it and how many of its first bytes may have been handed out before.
    fn place(&self, bytes: u64, alignment: u64) -> Result<(Offset, u64), ArenaError> {
        if !alignment.is_power_of_two() {
            return Err(ArenaError::Alignment { alignment });
        }
        let alignment = alignment.max(GRANULE);
        let mut books = self.books();
        let found = bytes.max(1).checked_next_multiple_of(GRANULE).and_then(|length| {
            let start = books.free.find(length, alignment)?;
            Some((start, length))
        });
        let Some((start, length)) = found else {
            let (used, largest_free) = (books.used, books.free.largest());
            return Err(ArenaError::Full {
                needed: bytes,
                alignment,
                capacity: self.capacity(),
                used,
                largest_free,
            });
        };
        let end = start + length;
        self.commit(&mut books, end)?;
        books.free.take(start, length);
        books.taken.insert(start, length);
        books.used += length;
        let used_before = books.fresh_from.clamp(start, end) - start;
        books.fresh_from = books.fresh_from.max(end);
        Ok((Offset(start), used_before))
    }

    /// Makes sure that everything up to `end` is reserved.
    fn commit(&self, books: &mut Books, end: u64) -> Result<(), SegmentError> {
        let from = books.committed_to;
        if end <= from {
            return Ok(());
        }
        let generous = end.max(from.saturating_add(COMMIT_STEP)).min(self.range.end);
        // When the whole step does not fit any more, what is needed now still may.
        books.committed_to = match self.segment.commit(Offset(from), generous - from) {
            Err(SegmentError::NoSpace { .. }) if end < generous => {
                self.segment.commit(Offset(from), end - from).map(|()| end)?
            }
            other => other.map(|()| generous)?,
        };
        Ok(())
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // The books are changed after everything that can fail, so they are whole even if a thread
        // panicked meanwhile.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
