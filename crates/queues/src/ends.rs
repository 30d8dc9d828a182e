//! The two ends of a connection in shared memory. Each is taken by one process, once, and released
//! for good.

use crate::liveness::{ProcessId, ProcessWatch};
use crate::sync::{AtomicU64, Ordering};
use shm::process::ProcessError;

/// One of the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The sending end.
    Sender,
    /// The receiving end.
    Receiver,
}

impl End {
    /// Returns the opposite end.
    pub(crate) fn other(self) -> End {
        match self {
            End::Sender => End::Receiver,
            End::Receiver => End::Sender,
        }
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
pub(crate) struct EndHolder<'a>(pub(crate) &'a AtomicU64);

/// Reason why an end could not be taken.
#[derive(Debug)]
pub(crate) enum TakeError {
    /// The process with this number holds it; `None` if it was released or withdrawn.
    Taken(Option<u32>),
    /// The identity of the calling process is unavailable.
    Unidentified(ProcessError),
}

/// State of an end that could not be taken, as the end of a sentence.
pub(crate) struct TakenBy(pub(crate) Option<u32>);

impl std::fmt::Display for TakenBy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(process) => write!(formatter, "is held by process {process}"),
            None => formatter.write_str("was closed or withdrawn"),
        }
    }
}

impl EndHolder<'_> {
    /// Takes the end for the calling process, for good.
    pub(crate) fn take(self) -> Result<(), TakeError> {
        let own = ProcessId::own().map_err(TakeError::Unidentified)?;
        // Release: pairs with the Acquire in `holder`. What this process wrote for the other end
        // before is visible to a process that sees the holder.
        match self.0.compare_exchange(0, own.0, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(held) => Err(TakeError::Taken((held < WITHDRAWN).then_some(ProcessId(held).pid()))),
        }
    }

    /// Releases the end. Its process must not touch the memory afterwards.
    pub(crate) fn release(self) {
        // Release: pairs with the Acquire in `is_free`, so that all accesses of this process come
        // before the owner's reuse of the memory.
        self.0.store(RELEASED, Ordering::Release);
    }

    /// Returns the holder; [`ProcessId::NONE`] if the end is free, released or withdrawn.
    pub(crate) fn holder(self) -> ProcessId {
        // Acquire: pairs with the Release in `take`.
        let held = self.0.load(Ordering::Acquire);
        if held < WITHDRAWN { ProcessId(held) } else { ProcessId::NONE }
    }

    /// Withdraws the end if it is still free. Returns true if it was.
    pub(crate) fn withdraw(self) -> bool {
        // Relaxed: the exchange publishes nothing; it only decides against a concurrent `take`.
        self.0.compare_exchange(0, WITHDRAWN, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Returns true if the memory is no longer accessed through this end. Call it after
    /// [`EndHolder::withdraw`]: a free end could still be taken.
    pub(crate) fn is_free(self) -> bool {
        // Acquire: pairs with the Release in `release`. A dead process makes no more accesses.
        let held = self.0.load(Ordering::Acquire);
        held >= WITHDRAWN || ProcessWatch::default().has_ended(ProcessId(held))
    }
}
