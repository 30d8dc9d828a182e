//! Table of the processes that are attached to shared memory of one owner. The owner frees the
//! memory when the table is closed and no living process is left in it.

use crate::liveness::{ProcessId, ProcessWatch};
use crate::sync::{AtomicU64, Ordering};
use shm::process::ProcessError;

/// Number of entries: the most handles that can be attached at a time.
pub(crate) const MAX_PROCESSES: usize = 255;

shm::shared_lines! {
    /// One entry per attached handle. Zeroed memory is an empty, open table.
    pub(crate) struct ProcessTable {
        /// Not 0 once the owner has closed the table. Every remote command loads this word, so only
        /// rare events write into its line.
        closed: AtomicU64,
        entries: [AtomicU64; MAX_PROCESSES],
    }
}

/// Index of an attached handle; returned with [`ProcessTable::detach`].
#[derive(Debug)]
pub(crate) struct Entry(usize);

/// Reason why a process could not attach.
#[derive(Debug)]
pub(crate) enum AttachError {
    /// The owner has closed the table.
    Closed,
    /// All entries are taken by living processes.
    TooMany,
    /// The identity of the calling process is unavailable.
    Unidentified(ProcessError),
}

impl ProcessTable {
    /// Attaches the calling process.
    pub(crate) fn attach(&self) -> Result<Entry, AttachError> {
        let own = ProcessId::own().map_err(AttachError::Unidentified)?;
        let free = self.entries.iter().position(|entry| self.take(entry, ProcessId::NONE, own));
        let entry = free.or_else(|| self.take_over_dead(own)).ok_or(AttachError::TooMany)?;
        // This is one half of a store-load handshake with the owner, which closes the table and
        // then scans the entries. SeqCst in both orders all four accesses: either this load sees
        // the closed table, or the scan in `has_living` sees the new entry. So the owner never
        // frees memory that a process believes to be attached to.
        if self.closed.load(Ordering::SeqCst) != 0 {
            self.detach(&Entry(entry));
            return Err(AttachError::Closed);
        }
        Ok(Entry(entry))
    }

    fn take(&self, entry: &AtomicU64, from: ProcessId, own: ProcessId) -> bool {
        // SeqCst: see `attach`.
        entry.compare_exchange(from.0, own.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Takes over the entry of a process that ended without detaching.
    fn take_over_dead(&self, own: ProcessId) -> Option<usize> {
        self.entries.iter().position(|entry| {
            // Relaxed: the value is only compared, and the exchange in `take` fails if another
            // process has taken the entry over meanwhile.
            let held = ProcessId(entry.load(Ordering::Relaxed));
            ProcessWatch::default().has_ended(held) && self.take(entry, held, own)
        })
    }

    /// Detaches a handle. Its process must not touch the memory afterwards.
    pub(crate) fn detach(&self, entry: &Entry) {
        // Release: pairs with the load in `has_living`, so that all accesses of this process come
        // before the owner's reuse of the memory.
        self.entries[entry.0].store(0, Ordering::Release);
    }

    /// Returns true if the owner has closed the table.
    #[inline(always)]
    pub(crate) fn is_closed(&self) -> bool {
        // Acquire: pairs with the store in `close`.
        self.closed.load(Ordering::Acquire) != 0
    }

    /// Closes the table for new processes.
    pub(crate) fn close(&self) {
        // SeqCst: see `attach`. It includes the Release that pairs with the Acquire in `is_closed`.
        self.closed.store(1, Ordering::SeqCst);
    }

    /// Returns true if a living process is still attached. Call it after [`ProcessTable::close`]:
    /// before that, another process can attach at any time.
    pub(crate) fn has_living(&self) -> bool {
        // SeqCst: see `attach`. It includes the Acquire that pairs with the Release in `detach`.
        let held = |entry: &AtomicU64| ProcessId(entry.load(Ordering::SeqCst));
        self.entries.iter().map(held).any(|process| {
            process != ProcessId::NONE && !ProcessWatch::default().has_ended(process)
        })
    }
}
