//! Checked references into a segment that keep it mapped.
//!
//! A [`Mapped`] checks its offset once, on creation, and then costs as much as a reference.

use crate::segment::{Offset, Segment, SegmentError};
use crate::shared::Shared;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// Reference to a `T` in a segment that this handle keeps mapped.
#[derive(Debug)]
pub struct Mapped<T: Shared> {
    target: NonNull<T>,
    segment: Arc<Segment>,
}

/// Reference to consecutive values of type `T` in a segment that this handle keeps mapped.
#[derive(Debug)]
pub struct MappedSlice<T: Shared> {
    first: NonNull<T>,
    count: usize,
    segment: Arc<Segment>,
}

impl<T: Shared> Mapped<T> {
    /// Checks that a `T` at `offset` lies within the segment and is aligned.
    ///
    /// # Errors
    /// Returns an error when it does not or is not.
    pub fn new(segment: &Arc<Segment>, offset: Offset) -> Result<Self, SegmentError> {
        let target = NonNull::from(segment.at::<T>(offset)?);
        Ok(Mapped { target, segment: Arc::clone(segment) })
    }

    /// Returns the segment.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }
}

impl<T: Shared> MappedSlice<T> {
    /// Checks that `count` elements at `offset` lie within the segment and are aligned.
    ///
    /// # Errors
    /// Returns an error when they do not or are not.
    pub fn new(segment: &Arc<Segment>, offset: Offset, count: usize) -> Result<Self, SegmentError> {
        let first = NonNull::from(segment.slice_at::<T>(offset, count)?).cast::<T>();
        Ok(MappedSlice { first, count, segment: Arc::clone(segment) })
    }
}

impl<T: Shared> Clone for Mapped<T> {
    fn clone(&self) -> Self {
        Mapped { target: self.target, segment: Arc::clone(&self.segment) }
    }
}

impl<T: Shared> Clone for MappedSlice<T> {
    fn clone(&self) -> Self {
        MappedSlice { first: self.first, count: self.count, segment: Arc::clone(&self.segment) }
    }
}

impl<T: Shared> Deref for Mapped<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `new` checked range and alignment, `self.segment` keeps the mapping alive as long
        // as this handle, and `Shared` promises that every bit pattern is a value and that bytes
        // change atomically or in an `UnsafeCell`.
        unsafe { self.target.as_ref() }
    }
}

impl<T: Shared> Deref for MappedSlice<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: as for `Mapped`, with the range of all elements checked by `new`.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

// SAFETY: a handle returns only shared references to `T`, and `Shared` types allow access from many
// threads and processes at once; the segment itself is `Send` and `Sync`.
unsafe impl<T: Shared> Send for Mapped<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Shared> Sync for Mapped<T> {}
// SAFETY: as for `Mapped`.
unsafe impl<T: Shared> Send for MappedSlice<T> {}
// SAFETY: as for `Mapped`.
unsafe impl<T: Shared> Sync for MappedSlice<T> {}
