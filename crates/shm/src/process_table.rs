//! Tables of the processes that are attached to an object in shared memory, one word each.
//!
//! | Table | Words | A word is |
//! |---|---|---|
//! | [`ProcessTable`] | 255, with a word that closes the table | taken and left any number of times |
//! | [`ProcessWords`] | any number, borrowed | taken any number of times |
//! | [`EndHolder`] | one | taken once and never free again |
//!
//! A process that is killed leaves its word behind. Its [`ProcessId`] distinguishes it from later
//! processes, so the word can be taken over and the object freed.

use crate::liveness::{ProcessId, ProcessWatch};
use crate::process_words::ProcessWords;
use crate::shared::Shared;
use crate::sync::{AtomicU64, Ordering};
use std::fmt;

/// Number of entries of a [`ProcessTable`]: the most handles that can be attached at a time.
pub const MAX_PROCESSES: usize = 255;

crate::shared_lines! {
    /// Processes that are attached to memory of one owner, one entry for each handle. Zeroed memory
    /// is an empty, open table. The owner frees the memory when the table is closed and no living
    /// process is left in it.
    pub struct ProcessTable {
        /// Not 0 once the owner has closed the table. Every remote command loads this word, so only
        /// rare events write into its line.
        closed: AtomicU64,
        entries: [AtomicU64; MAX_PROCESSES],
    }
}

/// Entry of an attached handle; returned with [`ProcessTable::detach`].
#[derive(Debug)]
pub struct Entry(usize);

impl Entry {
    /// Returns the index in the table.
    pub fn index(&self) -> usize {
        self.0
    }
}

/// Reason why a process could not attach.
#[derive(Debug)]
pub enum AttachError {
    /// The owner has closed the table.
    Closed,
    /// All entries belong to living processes.
    TooMany,
}

impl ProcessTable {
    fn words(&self) -> ProcessWords<'_> {
        ProcessWords(&self.entries)
    }

    /// Returns the process in an entry; [`ProcessId::NONE`] if it is free or does not exist.
    pub fn process(&self, index: usize) -> ProcessId {
        self.words().process(index)
    }

    /// Attaches the calling process, in one of the first `numbers` entries if one of them does not
    /// belong to a living process. Calls `recover`, which undoes what ended processes left in the
    /// object under their number, before it takes over the entry of one of them.
    ///
    /// # Errors
    /// [`AttachError`]; the process is not attached.
    pub fn attach_numbered(
        &self,
        own: ProcessId,
        numbers: usize,
        recover: impl FnOnce(),
    ) -> Result<Entry, AttachError> {
        let (numbered, others) = self.entries.split_at(numbers.min(MAX_PROCESSES));
        // The entry of an ended process among the numbered ones is taken over after `recover` only.
        let entry = ProcessWords(numbered).enter(own, recover).or_else(|| {
            let other = ProcessWords(others).enter(own, || {});
            other.map(|index| numbered.len() + index)
        });
        let entry = entry.ok_or(AttachError::TooMany)?;
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

    /// Detaches a handle. Its process must not touch the memory afterwards.
    pub fn detach(&self, entry: &Entry) {
        self.words().leave(entry.0);
    }

    /// Returns true if the owner has closed the table.
    #[inline(always)]
    pub fn is_closed(&self) -> bool {
        // Acquire: pairs with the store in `close`.
        self.closed.load(Ordering::Acquire) != 0
    }

    /// Closes the table for new processes.
    pub fn close(&self) {
        // SeqCst: see `attach_numbered`. It includes the Release that pairs with the Acquire in `is_closed`.
        self.closed.store(1, Ordering::SeqCst);
    }

    /// Returns true if a living process is still attached. Call it after [`ProcessTable::close`]:
    /// before that, another process can attach at any time.
    pub fn has_living(&self) -> bool {
        self.words().has_living()
    }
}

/// One of the two ends of a connection in shared memory. Each is taken by one process, once, and
/// released for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The sending end.
    Sender,
    /// The receiving end.
    Receiver,
}

impl End {
    /// Both ends.
    pub const BOTH: [End; 2] = [End::Sender, End::Receiver];

    /// Returns the opposite end.
    #[must_use]
    pub fn other(self) -> End {
        match self {
            End::Sender => End::Receiver,
            End::Receiver => End::Sender,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            End::Sender => "sender",
            End::Receiver => "receiver",
        })
    }
}

/// State of an end after its process has released it.
const RELEASED: u64 = u64::MAX;

/// State of an end that was still free when the owner of the memory withdrew it.
const WITHDRAWN: u64 = u64::MAX - 1;

/// The word with the holder of an end, borrowed from shared memory: 0 (free), a [`ProcessId`],
/// `RELEASED` or `WITHDRAWN`. It leaves 0 once and never returns to it, so an end has at most one
/// holder in its lifetime.
#[derive(Debug, Clone, Copy)]
pub struct EndHolder<'a>(pub &'a AtomicU64);

/// Holders of the two ends of an object. Zeroed memory has two free ends.
#[derive(Debug)]
#[repr(C)]
pub struct Ends {
    sender: AtomicU64,
    receiver: AtomicU64,
}

// SAFETY: `repr(C)` with two atomics, which accept every bit pattern.
unsafe impl Shared for Ends {}

impl Ends {
    /// Returns the word with the holder of an end.
    pub fn holder(&self, end: End) -> EndHolder<'_> {
        match end {
            End::Sender => EndHolder(&self.sender),
            End::Receiver => EndHolder(&self.receiver),
        }
    }

    /// Returns true if the memory is no longer accessed through either end. Call it after both were
    /// withdrawn.
    pub fn are_free(&self) -> bool {
        End::BOTH.into_iter().all(|end| self.holder(end).is_free())
    }
}

/// State of an end that could not be taken: the number of the process that holds it, `None` if it
/// was released or withdrawn. Displayed as the end of a sentence.
#[derive(Debug)]
pub struct TakenBy(pub Option<u32>);

impl fmt::Display for TakenBy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(process) => write!(formatter, "is held by process {process}"),
            None => formatter.write_str("was closed or withdrawn"),
        }
    }
}

impl EndHolder<'_> {
    /// Takes the end for the calling process, for good.
    ///
    /// # Errors
    /// [`TakenBy`]; the end keeps its state.
    pub fn take(self, own: ProcessId) -> Result<(), TakenBy> {
        // Release: pairs with the Acquire in `holder`. What this process wrote for the other end
        // before is visible to a process that sees the holder.
        match self.0.compare_exchange(0, own.0, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(held) => Err(TakenBy((held < WITHDRAWN).then_some(ProcessId(held).pid()))),
        }
    }

    /// Releases the end. Its process must not touch the memory afterwards.
    pub fn release(self) {
        // Release: pairs with the Acquire in `is_free`, so that all accesses of this process come
        // before the owner's reuse of the memory.
        self.0.store(RELEASED, Ordering::Release);
    }

    /// Returns the holder; [`ProcessId::NONE`] if the end is free, released or withdrawn.
    pub fn holder(self) -> ProcessId {
        // Acquire: pairs with the Release in `take`.
        let held = self.0.load(Ordering::Acquire);
        if held < WITHDRAWN { ProcessId(held) } else { ProcessId::NONE }
    }

    /// Withdraws the end if it is still free. Returns true if it was.
    pub fn withdraw(self) -> bool {
        // Relaxed: the exchange publishes nothing; it only decides against a concurrent `take`.
        self.0.compare_exchange(0, WITHDRAWN, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Returns true if the memory is no longer accessed through this end. Call it after
    /// [`EndHolder::withdraw`]: a free end could still be taken.
    pub fn is_free(self) -> bool {
        // Acquire: pairs with the Release in `release`. A dead process makes no more accesses.
        let held = self.0.load(Ordering::Acquire);
        held >= WITHDRAWN || ProcessWatch::default().has_ended(ProcessId(held))
    }
}
