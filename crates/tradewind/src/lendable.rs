//! Memory of the segment that other ranks may still read after a collective has returned it.
//!
//! The input of a long flat collective is read in place, by every rank in its own wait. A rank that is
//! done earlier has its buffer back at once and may read it. Before its first change of bytes that
//! another rank has yet to read, the buffer moves to a copy in spare memory; the others go on reading
//! the old memory, which does not change. So no call waits for a rank that computes.

use crate::deferred::{DeferredBuffers, WeakDeferredBuffers};
use crate::error::Result;
use engine::InputReaders;
use engine::communicator::Communicator as NodeCommunicator;
use shm::owned::OwnedBytes;

/// Bytes of a buffer.
#[derive(Debug)]
pub(crate) struct LendableBytes {
    /// `None` only while the value is dropped.
    memory: Option<OwnedBytes>,
    /// Present from the first loan on. In a box, because buffers are moved often.
    loans: Option<Box<Loans>>,
    /// Takes memory that other ranks still read. May hold the buffer itself.
    deferred: WeakDeferredBuffers,
}

#[derive(Debug)]
struct Loans {
    /// The ranks that may still read the memory.
    readers: Vec<InputReaders>,
    /// Memory of the same length.
    spare: OwnedBytes,
    /// The ranks that may still read the spare memory, which was the buffer's before a change. They
    /// are done while `readers` is not empty.
    spare_readers: Vec<InputReaders>,
}

fn are_done(readers: &[InputReaders]) -> bool {
    readers.iter().all(InputReaders::are_done)
}

impl LendableBytes {
    pub(crate) fn new(
        group: &NodeCommunicator,
        deferred: &DeferredBuffers,
        (bytes, alignment): (u64, u64),
    ) -> Result<Self> {
        let memory = Some(group.allocate(bytes, alignment)?);
        Ok(LendableBytes { memory, loans: None, deferred: deferred.downgrade() })
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
        if self.loans.as_ref().is_some_and(|loans| !loans.readers.is_empty()) {
            self.end_loans();
        }
    }

    #[cold]
    fn end_loans(&mut self) {
        let (Some(memory), Some(loans)) = (&mut self.memory, &mut self.loans) else { return };
        loans.readers.retain(|readers| !readers.are_done());
        if loans.readers.is_empty() {
            return;
        }
        loans.spare.as_mut_slice().copy_from_slice(memory.as_slice());
        std::mem::swap(memory, &mut loans.spare);
        std::mem::swap(&mut loans.readers, &mut loans.spare_readers);
        loans.readers.clear();
    }

    /// Finds spare memory for a change before other ranks have read the bytes. Returns `false` if
    /// there is none: the bytes may then not be lent.
    pub(crate) fn reserve(&mut self, group: &NodeCommunicator, alignment: u64) -> bool {
        let bytes = self.memory.as_ref().map_or(0, OwnedBytes::bytes);
        let allocate = || {
            self.deferred.sweep();
            group.allocate(bytes, alignment)
        };
        if let Some(loans) = &mut self.loans {
            loans.readers.retain(|readers| !readers.are_done());
            if !are_done(&loans.spare_readers) {
                let Ok(fresh) = allocate() else { return false };
                let busy = std::mem::replace(&mut loans.spare, fresh);
                let readers = std::mem::take(&mut loans.spare_readers);
                self.deferred.drop_once(move || are_done(&readers), busy);
            }
            loans.spare_readers.clear();
            return true;
        }
        let Ok(spare) = allocate() else { return false };
        self.loans =
            Some(Box::new(Loans { readers: Vec::new(), spare, spare_readers: Vec::new() }));
        true
    }

    /// Lends the bytes to these ranks, after [`reserve`](Self::reserve).
    pub(crate) fn lend_to(&mut self, readers: InputReaders) {
        if let Some(loans) = &mut self.loans {
            loans.readers.push(readers);
        }
    }
}

impl Drop for LendableBytes {
    fn drop(&mut self) {
        let Some(loans) = self.loans.take() else { return };
        let Loans { readers, spare, spare_readers } = *loans;
        self.deferred.drop_once(move || are_done(&spare_readers), spare);
        if let Some(memory) = self.memory.take() {
            self.deferred.drop_once(move || are_done(&readers), memory);
        }
    }
}
