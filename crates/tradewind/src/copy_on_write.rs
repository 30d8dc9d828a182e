//! Memory of the segment that other ranks may still read after a collective has returned it.
//!
//! The input of a long flat collective is read in place, by every rank in its own wait. A rank that is
//! done earlier has its buffer back at once and may read it. Before its first change of bytes that
//! another rank has yet to read, the buffer moves to a copy; the others go on reading the old memory,
//! which does not change and is freed after the last read. So a change waits for no rank that
//! computes, unless this rank's part of the segment has no space for the copy.

use crate::deferred::{DeferredBuffers, WeakDeferredBuffers};
use crate::error::{Error, Result};
use crate::failure::Straggler;
use engine::InputReaders;
use engine::communicator::Communicator as NodeCommunicator;
use shm::owned::OwnedBytes;
use std::convert::Infallible;
use std::time::{Duration, Instant};

/// Bytes of a buffer that move to a copy before a change while other ranks read them.
#[derive(Debug)]
pub(crate) struct CopyOnWriteBytes {
    /// `None` only while the value is dropped.
    memory: Option<OwnedBytes>,
    alignment: u64,
    /// The ranks that may still read the memory.
    readers: Vec<InputReaders>,
    /// Takes memory that other ranks still read. May hold the buffer itself.
    deferred: WeakDeferredBuffers,
}

fn are_done(readers: &[InputReaders]) -> bool {
    readers.iter().all(InputReaders::are_done)
}

impl CopyOnWriteBytes {
    pub(crate) fn new(
        group: &NodeCommunicator,
        deferred: &DeferredBuffers,
        (bytes, alignment): (u64, u64),
    ) -> Result<Self> {
        let memory = Some(group.allocate(bytes, alignment)?);
        let deferred = deferred.downgrade();
        Ok(CopyOnWriteBytes { memory, alignment, readers: Vec::new(), deferred })
    }

    /// The memory where it lies now.
    pub(crate) fn memory(&self) -> Option<&OwnedBytes> {
        self.memory.as_ref()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], OwnedBytes::as_slice)
    }

    /// The bytes, for changes.
    #[inline]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        self.make_writable();
        self.memory.as_mut().map_or(&mut [], OwnedBytes::as_mut_slice)
    }

    /// Prepares a change of the bytes, here or by other ranks.
    #[inline]
    pub(crate) fn make_writable(&mut self) {
        if !self.readers.is_empty() {
            let Ok(()) = self.detach_readers::<Infallible>(|readers, bytes| {
                readers.wait_until_done(bytes);
                Ok(())
            });
        }
    }

    /// Prepares a change of the bytes here, for at most `limit`.
    pub(crate) fn make_writable_within(&mut self, limit: Duration) -> Result<()> {
        // Without a deadline if it lies beyond the clock's range.
        let deadline = Instant::now().checked_add(limit);
        self.detach_readers(|readers, bytes| {
            let waiting_for = readers.wait(bytes, deadline)?;
            if waiting_for.is_empty() {
                return Ok(());
            }
            let waiting_for = waiting_for.into_iter().map(Straggler::from).collect();
            Err(Error::Timeout { after: limit, waiting_for })
        })
    }

    /// Moves to a copy, or waits for the readers, which `wait` does for those of one collective. If
    /// it fails, the ranks may read on.
    #[cold]
    fn detach_readers<E>(
        &mut self,
        wait: impl Fn(&InputReaders, u64) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.readers.retain(|readers| !readers.are_done());
        let (Some(memory), Some(first)) = (&mut self.memory, self.readers.first()) else {
            return Ok(());
        };
        self.deferred.sweep();
        match first.copy(memory, self.alignment) {
            Ok(copy) => {
                let read = std::mem::replace(memory, copy);
                let readers = std::mem::take(&mut self.readers);
                self.deferred.free_once(move || are_done(&readers), read);
            }
            // The memory is full.
            Err(_) => {
                let bytes = memory.bytes();
                while let Some(readers) = self.readers.last() {
                    wait(readers, bytes)?;
                    self.readers.pop();
                }
            }
        }
        Ok(())
    }

    /// Adds ranks that read the bytes in place.
    pub(crate) fn add_readers(&mut self, readers: InputReaders) {
        self.readers.retain(|readers| !readers.are_done());
        self.readers.push(readers);
    }
}

impl Drop for CopyOnWriteBytes {
    fn drop(&mut self) {
        if self.readers.is_empty() {
            return;
        }
        if let Some(memory) = self.memory.take() {
            let readers = std::mem::take(&mut self.readers);
            self.deferred.free_once(move || are_done(&readers), memory);
        }
    }
}
