//! Division of a copy between two processes: both claim parts from one counter.
//!
//! A copy between two private memories can be made by either process: the receiver reads from the
//! sender's memory, the sender writes into the receiver's. If both claim parts until none is left,
//! a process without other work takes the larger share.

use crate::sync::{AtomicU64, Ordering};
use core::ops::Range;

/// Bit beside the count of completed parts: a part could not be copied.
const FAILED: u64 = 1 << 63;

/// Returns the size of a part in bytes: about an eighth of the message, so that both ends finish at
/// about the same time, but large enough to amortize a system call.
fn part_bytes(bytes: u64) -> u64 {
    (bytes / 8).next_multiple_of(4096).clamp(32 << 10, 256 << 10)
}

/// The parts of one copy at a time.
///
/// ```
/// use shm::part_claims::PartClaims;
///
/// let claims = PartClaims::new();
/// claims.reset();
/// let mut copied = 0;
/// while let Some(part) = claims.claim(100_000) {
///     copied += part.end - part.start;
///     claims.complete(true);
/// }
/// assert_eq!(copied, 100_000);
/// assert_eq!(claims.outcome(100_000), Some(true));
/// ```
#[derive(Debug)]
#[repr(C)]
pub struct PartClaims {
    /// Index of the first unclaimed part.
    next: AtomicU64,
    /// Number of completed parts, and [`FAILED`].
    done: AtomicU64,
}

impl PartClaims {
    /// Returns claims of no copy.
    pub fn new() -> Self {
        PartClaims { next: AtomicU64::new(0), done: AtomicU64::new(0) }
    }

    /// Begins another copy. No process uses the claims; the caller publishes the change.
    pub fn reset(&self) {
        // Relaxed: the caller's release publishes both.
        self.next.store(0, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
    }

    /// Claims a part of a copy of `bytes` bytes; `None` if all are claimed.
    /// [`complete`](Self::complete) follows every claim.
    pub fn claim(&self, bytes: u64) -> Option<Range<u64>> {
        let size = part_bytes(bytes);
        // Relaxed: the counter only makes claims exclusive. The caller has acquired the addresses. A
        // process that ends with a claimed part leaves the copy without an outcome: the other one
        // also checks that its peer is alive.
        let part = self.next.fetch_add(1, Ordering::Relaxed);
        let start = part.checked_mul(size).filter(|&start| start < bytes)?;
        Some(start..(start + size).min(bytes))
    }

    /// Completes a claimed part. The caller accesses its bytes no more.
    pub fn complete(&self, is_copied: bool) {
        if !is_copied {
            // Relaxed: the addition below publishes it.
            self.done.fetch_or(FAILED, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `outcome`.
        self.done.fetch_add(1, Ordering::Release);
    }

    /// Returns a value when all parts are complete, so that no process accesses the bytes any more:
    /// true if all were copied.
    pub fn outcome(&self, bytes: u64) -> Option<bool> {
        // Acquire: pairs with the Release in `complete`.
        let done = self.done.load(Ordering::Acquire);
        (done & !FAILED >= bytes.div_ceil(part_bytes(bytes))).then_some(done & FAILED == 0)
    }

    /// Claims parts and passes each to `copy`, until all are claimed. After a failure the remaining
    /// parts are claimed without a copy, so that the copy ends for both processes.
    ///
    /// # Errors
    /// Returns the first error of `copy`.
    pub fn copy_parts<E>(
        &self,
        bytes: u64,
        mut copy: impl FnMut(Range<u64>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut outcome = Ok(());
        while let Some(part) = self.claim(bytes) {
            if outcome.is_ok() {
                outcome = copy(part);
            }
            self.complete(outcome.is_ok());
        }
        outcome
    }
}

impl Default for PartClaims {
    fn default() -> Self {
        Self::new()
    }
}
