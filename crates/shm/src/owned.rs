//! Arena memory with a single owner, accessible as ordinary slices.

use crate::arena::{Arena, ArenaError};
use crate::segment::{Offset, Segment};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of an arena that are freed when the value is dropped.
///
/// To let other processes write the bytes, the owner passes on the offset and does not access them
/// until those processes are done. While other processes only read them, the owner may read too,
/// and neither calls [`as_mut_slice`](Self::as_mut_slice) nor frees the bytes. Types of the layers
/// above guarantee this: they move the value into the operation and return it afterwards, and before
/// a change of bytes that are still read they move to a [copy](Self::copy)
/// (`tradewind::copy_on_write::CopyOnWriteBytes::make_writable`).
///
/// ```
/// use shm::{arena::Arena, owned::OwnedBytes, segment::{Backing, Segment}};
/// use std::sync::Arc;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
/// let arena = Arc::new(Arena::new(segment, 4096..1 << 20)?);
/// let mut bytes = OwnedBytes::new(&arena, 100, 64)?;
/// bytes.as_mut_slice()[99] = 7;
/// assert_eq!(bytes.as_slice().iter().sum::<u8>(), 7);
/// drop(bytes);
/// assert_eq!(arena.used(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct OwnedBytes {
    arena: Arc<Arena>,
    at: Offset,
    bytes: u64,
    first: NonNull<u8>,
}

// SAFETY: the value owns its bytes as a `Vec<u8>` does; the arena and its segment are `Send` and
// `Sync`.
unsafe impl Send for OwnedBytes {}
// SAFETY: as for `Send`; `&OwnedBytes` only reads.
unsafe impl Sync for OwnedBytes {}

impl OwnedBytes {
    /// Allocates `bytes` zeroed bytes, aligned as [`Arena::allocate`] does: at least to a cache line.
    ///
    /// # Errors
    /// Returns an error when the arena or its file system is full.
    pub fn new(arena: &Arc<Arena>, bytes: u64, alignment: u64) -> Result<Self, ArenaError> {
        // Never an empty allocation, so that every buffer has a distinct offset.
        let at = arena.allocate_zeroed(bytes.max(1), alignment)?;
        let Some(first) = NonNull::new(arena.segment().bytes_ptr(at, bytes)?) else {
            return Err(ArenaError::NotAllocated { offset: at });
        };
        Ok(OwnedBytes { arena: Arc::clone(arena), at, bytes, first })
    }

    /// Copies the bytes to other memory of the arena, which is not zeroed before.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn copy(&self, alignment: u64) -> Result<Self, ArenaError> {
        let segment = self.arena.segment();
        let at = self.arena.allocate(self.bytes.max(1), alignment)?;
        let Some(first) = NonNull::new(segment.bytes_ptr(at, self.bytes)?) else {
            return Err(ArenaError::NotAllocated { offset: at });
        };
        // SAFETY: both ranges were checked when they were allocated, and are apart because both are
        // allocated. The new one is not used otherwise yet; the old one is only read, by the owner
        // and possibly by other processes. From here on the new range is initialised.
        unsafe {
            std::ptr::copy_nonoverlapping(self.first.as_ptr(), first.as_ptr(), self.bytes as usize);
        }
        Ok(OwnedBytes { arena: Arc::clone(&self.arena), at, bytes: self.bytes, first })
    }

    /// Drops the value without freeing the bytes: another process may use them as long as the
    /// arena exists.
    pub fn abandon(self) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used again, and its `drop` does not run, so the field is dropped
        // once.
        unsafe { std::ptr::drop_in_place(&raw mut this.arena) };
    }

    /// Returns the offset of the bytes in the segment.
    pub fn offset(&self) -> Offset {
        self.at
    }

    /// Returns whether the bytes lie in this segment, where other handles of it find them at the
    /// offset.
    pub fn lies_in(&self, segment: &Arc<Segment>) -> bool {
        Arc::ptr_eq(self.arena.segment(), segment)
    }

    /// Returns the number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the range was checked and committed when it was allocated, is initialised (zeroed
        // or written), and stays allocated as long as `self`. No other process writes to it while
        // the owner can call this (see the type's documentation).
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.bytes as usize) }
    }

    /// Returns the bytes, for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; `&mut self` makes this the only reference here, and the owner
        // calls this only when no other process reads the bytes any more (see the type's
        // documentation).
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.bytes as usize) }
    }
}

impl Drop for OwnedBytes {
    fn drop(&mut self) {
        // Cannot fail: the bytes came from this arena and are freed once.
        let _ = self.arena.free(self.at);
    }
}
