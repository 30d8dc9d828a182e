//! Data areas of a segment: bytes that processes copy in, copy out and combine, but never keep a
//! reference to.
//!
//! Every access is checked against the segment's length and lasts for one call. The protocols above
//! decide whether two calls may access the same bytes at the same time: an engine starts an
//! operation only when its dependency counter shows that earlier users of the bytes have finished,
//! and the graph checker refuses graphs in which two unordered operations access the same bytes. A
//! process that breaks the protocol can corrupt data, as any process that maps the segment can; it
//! cannot make an access leave the segment.

use crate::line_copy;
use crate::segment::{Offset, Segment, SegmentError};
use std::sync::Arc;

pub use crate::prefetch::Purpose;
use crate::prefetch::prefetch;

/// The bytes of a segment, for copies and combinations in place.
#[derive(Clone, Debug)]
pub struct SegmentMemory {
    segment: Arc<Segment>,
}

/// Operands of a combination, by how the destination coincides with them.
#[derive(Debug)]
pub enum Operands<'a> {
    /// Three distinct ranges.
    Apart {
        /// Left operand.
        left: &'a [u8],
        /// Right operand.
        right: &'a [u8],
        /// Result.
        destination: &'a mut [u8],
    },
    /// The result replaces the left operand.
    OntoLeft {
        /// Left operand and result.
        left: &'a mut [u8],
        /// Right operand.
        right: &'a [u8],
    },
    /// The result replaces the right operand.
    OntoRight {
        /// Left operand.
        left: &'a [u8],
        /// Right operand and result.
        right: &'a mut [u8],
    },
    /// All three are the same range.
    AllOne(&'a mut [u8]),
}

impl SegmentMemory {
    /// Creates access to the bytes of this segment.
    ///
    /// # Safety
    /// All users of the segment follow a protocol, as the module's page describes: no two calls on
    /// such a value, by any thread of any process, may access the same bytes at the same time
    /// unless both only read; this includes calls from inside [`inspect`](Self::inspect),
    /// [`fill`](Self::fill) and [`combine`](Self::combine).
    pub unsafe fn new(segment: Arc<Segment>) -> Self {
        SegmentMemory { segment }
    }

    /// Returns the segment.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Copies `bytes` into the segment.
    ///
    /// # Errors
    /// [`SegmentError::OutOfBounds`].
    #[inline]
    pub fn write(&self, at: Offset, bytes: &[u8]) -> Result<(), SegmentError> {
        let target = self.segment.bytes_ptr(at, bytes.len() as u64)?;
        // SAFETY: `bytes_ptr` checked the target range. `bytes` is a slice of private memory, or of
        // segment memory borrowed by another call of this module, which the protocol keeps apart
        // from the target.
        unsafe { line_copy::copy_out_raw(bytes.as_ptr(), target, bytes.len()) };
        Ok(())
    }

    /// Copies from the segment into `bytes`.
    ///
    /// # Errors
    /// [`SegmentError::OutOfBounds`].
    #[inline]
    pub fn read(&self, at: Offset, bytes: &mut [u8]) -> Result<(), SegmentError> {
        let source = self.segment.bytes_ptr(at, bytes.len() as u64)?;
        // SAFETY: `bytes_ptr` checked the source range, and the caller of `new` guarantees that no
        // other thread writes to it meanwhile. `bytes` is exclusively borrowed, so it cannot overlap
        // memory to which only this module creates references.
        unsafe { line_copy::copy_raw(source, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// Prefetches the cache lines of a range.
    ///
    /// # Errors
    /// [`SegmentError::OutOfBounds`].
    #[inline]
    pub fn prefetch(&self, at: Offset, length: u64, purpose: Purpose) -> Result<(), SegmentError> {
        prefetch(self.segment.bytes_ptr(at, length)?, length as usize, purpose);
        Ok(())
    }

    /// Copies within the segment; the ranges may overlap.
    ///
    /// # Errors
    /// [`SegmentError::OutOfBounds`].
    #[inline]
    pub fn copy(&self, from: Offset, to: Offset, length: u64) -> Result<(), SegmentError> {
        let source = self.segment.bytes_ptr(from, length)?;
        let target = self.segment.bytes_ptr(to, length)?;
        // SAFETY: both ranges were checked; `copy` allows overlap.
        unsafe { std::ptr::copy(source, target, length as usize) };
        Ok(())
    }

    /// Sets bytes of the segment to zero.
    ///
    /// # Errors
    /// [`SegmentError::OutOfBounds`].
    pub fn clear(&self, at: Offset, length: u64) -> Result<(), SegmentError> {
        let target = self.segment.bytes_ptr(at, length)?;
        // SAFETY: the range was checked.
        unsafe { std::ptr::write_bytes(target, 0, length as usize) };
        Ok(())
    }

    /// Calls `use_them` with bytes of the segment, for reading.
    ///
    /// # Errors
    /// [`SegmentError::OutOfBounds`].
    #[inline]
    pub fn inspect<R>(
        &self,
        at: Offset,
        length: u64,
        use_them: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, SegmentError> {
        let source = self.segment.bytes_ptr(at, length)?;
        // SAFETY: the range was checked. The reference ends with the call, and until then the
        // protocol permits no writes to these bytes (see the module's page).
        Ok(use_them(unsafe { std::slice::from_raw_parts(source, length as usize) }))
    }

    /// Calls `use_them` with bytes of the segment, for writing.
    ///
    /// # Errors
    /// [`SegmentError::OutOfBounds`].
    #[inline]
    pub fn fill<R>(
        &self,
        at: Offset,
        length: u64,
        use_them: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, SegmentError> {
        let target = self.segment.bytes_ptr(at, length)?;
        // SAFETY: the range was checked. The reference ends with the call, and until then the
        // protocol permits no other access to these bytes (see the module's page).
        Ok(use_them(unsafe { std::slice::from_raw_parts_mut(target, length as usize) }))
    }

    /// Calls `use_them` with three ranges of equal length, the destination for writing. The
    /// destination may coincide with an operand.
    ///
    /// # Errors
    /// [`SegmentError::OutOfBounds`], and [`SegmentError::Overlap`] when the destination overlaps
    /// an operand in part.
    pub fn combine<R>(
        &self,
        left: Offset,
        right: Offset,
        destination: Offset,
        length: u64,
        use_them: impl FnOnce(Operands<'_>) -> R,
    ) -> Result<R, SegmentError> {
        let bytes = length as usize;
        let l = self.segment.bytes_ptr(left, length)?;
        let r = self.segment.bytes_ptr(right, length)?;
        let d = self.segment.bytes_ptr(destination, length)?;
        let apart = |a: Offset, b: Offset| a.0.abs_diff(b.0) >= length;
        // SAFETY (all four arms): the ranges were checked against the segment. The guards ensure
        // that the mutable range either equals an operand, which then is not borrowed a second
        // time, or does not overlap it; two operands that are only read may coincide. The
        // references end with the call, and until then the protocol permits no other access.
        let operands = if d == l && d == r {
            // SAFETY: as above.
            Operands::AllOne(unsafe { std::slice::from_raw_parts_mut(d, bytes) })
        } else if d == l && apart(destination, right) {
            // SAFETY: as above.
            let (left, right) = unsafe {
                (std::slice::from_raw_parts_mut(l, bytes), std::slice::from_raw_parts(r, bytes))
            };
            Operands::OntoLeft { left, right }
        } else if d == r && apart(destination, left) {
            // SAFETY: as above.
            let (left, right) = unsafe {
                (std::slice::from_raw_parts(l, bytes), std::slice::from_raw_parts_mut(r, bytes))
            };
            Operands::OntoRight { left, right }
        } else if apart(destination, left) && apart(destination, right) {
            // SAFETY: as above.
            let (left, right, destination) = unsafe {
                (
                    std::slice::from_raw_parts(l, bytes),
                    std::slice::from_raw_parts(r, bytes),
                    std::slice::from_raw_parts_mut(d, bytes),
                )
            };
            Operands::Apart { left, right, destination }
        } else {
            return Err(SegmentError::Overlap { offset: destination, length });
        };
        Ok(use_them(operands))
    }
}
