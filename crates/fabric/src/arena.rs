//! The memory of messages.

use std::io;
use std::ptr::NonNull;

/// Pages that messages are sent from and received into, in buffers of one length.
///
/// Buffers are accessed by number. The owner of the arena keeps account of which of them a provider
/// uses, and touches only the others.
#[derive(Debug)]
pub(crate) struct Arena {
    start: NonNull<u8>,
    bytes: usize,
    buffer_bytes: usize,
}

// SAFETY: the arena owns its mapping, and a pointer to it means the same in every thread.
unsafe impl Send for Arena {}

impl Arena {
    /// Maps `buffers` buffers.
    pub(crate) fn new(buffers: usize, buffer_bytes: usize) -> io::Result<Arena> {
        let bytes = (buffers * buffer_bytes).max(1);
        // MAP_POPULATE: the pages exist, as FI_MR_ALLOCATED requires.
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new anonymous mapping touches no other memory.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(mapped.cast::<u8>()).ok_or_else(io::Error::last_os_error)?;
        Ok(Arena { start, bytes, buffer_bytes })
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Length of a buffer.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Returns the start of a buffer.
    pub(crate) fn buffer(&self, number: usize) -> *mut u8 {
        let at = number * self.buffer_bytes;
        assert!(at + self.buffer_bytes <= self.bytes, "buffer {number} is outside the arena");
        // SAFETY: the offset lies within the mapping.
        unsafe { self.start.as_ptr().add(at) }
    }

    /// Returns a buffer.
    ///
    /// # Safety
    /// No provider uses the buffer.
    pub(crate) unsafe fn bytes(&self, number: usize) -> &[u8] {
        // SAFETY: the range lies within the mapping, which is initialised; the caller promises that
        // nothing writes to it.
        unsafe { std::slice::from_raw_parts(self.buffer(number), self.buffer_bytes) }
    }

    /// Returns a buffer, to be written.
    ///
    /// # Safety
    /// No provider uses the buffer.
    pub(crate) unsafe fn bytes_mut(&mut self, number: usize) -> &mut [u8] {
        // SAFETY: as in `bytes`; the borrow of the arena is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.buffer(number), self.buffer_bytes) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is this arena's. Its user has closed the endpoint before.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
