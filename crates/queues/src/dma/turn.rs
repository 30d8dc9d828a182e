//! One transfer that both ends work on: offered by the sender, joined by the receiver, its parts
//! claimed by whoever is free.
//!
//! A transfer between two private memories is cut into parts, and both processes copy parts at the
//! same time: the receiver by reading from the sender's memory, the sender by writing into the
//! receiver's. Where only one of them may, that one copies all. The parts are claimed from one
//! counter, so that a side that has nothing else to do takes the larger share.

use super::layout::Turn;
use crate::sync::Ordering;

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The sender waits for the receiver to come.
    Offered = 1,
    /// The receiver has come.
    Joined = 2,
    /// The receiver needs nothing of the sender any more.
    Done = 3,
    /// The sender has gone before the receiver came.
    Withdrawn = 4,
}

/// Beside the count of parts done: one could not be copied.
const FAILED: u64 = 1 << 63;

/// The size of a part in bytes: about an eighth of the message, so that both sides end at about the
/// same time, but large enough that a system call is worth it.
pub(super) fn part_bytes(bytes: u64) -> u64 {
    (bytes / 8).next_multiple_of(4096).clamp(32 << 10, 256 << 10)
}

impl Turn {
    fn word(number: u64, state: State) -> u64 {
        number << 3 | state as u64
    }

    /// Whether the last transfer is over, so that the next one can be offered. Transfers are
    /// numbered from 1.
    pub(super) fn is_over(&self, number: u64) -> bool {
        // Acquire: pairs with the Release in `finish`; the receiver does not look at the counters
        // any more.
        let state = self.state.load(Ordering::Acquire);
        number == 0
            || state == Self::word(number, State::Done)
            || state == Self::word(number, State::Withdrawn)
    }

    /// The sender offers a transfer.
    pub(super) fn offer(&self, number: u64) {
        // Relaxed: the state publishes them.
        self.next.store(0, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        // Release: pairs with the Acquire in `join`.
        self.state.store(Self::word(number, State::Offered), Ordering::Release);
    }

    /// The sender takes its offer back; gives whether that was in time.
    pub(super) fn withdraw(&self, number: u64) -> bool {
        self.change(number, State::Offered, State::Withdrawn)
    }

    /// The receiver joins, with a buffer at this address; gives whether that was in time.
    pub(super) fn join(&self, number: u64, target: u64) -> bool {
        // Relaxed: the state publishes it.
        self.target.store(target, Ordering::Relaxed);
        self.change(number, State::Offered, State::Joined)
    }

    /// The receiver is done with the transfer.
    pub(super) fn finish(&self, number: u64) {
        // Release: pairs with the Acquire in `is_over` and `is`.
        self.state.store(Self::word(number, State::Done), Ordering::Release);
    }

    fn change(&self, number: u64, from: State, to: State) -> bool {
        let (from, to) = (Self::word(number, from), Self::word(number, to));
        // AcqRel: both sides read what the other wrote before its own change.
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether the transfer is in this state.
    pub(super) fn is(&self, number: u64, state: State) -> bool {
        // Acquire: pairs with the Release half of `change`, and with `finish`.
        self.state.load(Ordering::Acquire) == Self::word(number, state)
    }

    /// Copies parts of a transfer of `bytes` bytes with `copy`, which gets the start and the length
    /// of each, until all are claimed. When one cannot be copied, the others are claimed all the
    /// same, so that the transfer ends.
    pub(super) fn copy_parts<E>(
        &self,
        bytes: u64,
        mut copy: impl FnMut(u64, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let size = part_bytes(bytes);
        let mut outcome = Ok(());
        loop {
            // Relaxed: which part it is says nothing about the bytes; both sides know each other's
            // memory since `join`.
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(start) = part.checked_mul(size).filter(|&start| start < bytes) else {
                return outcome;
            };
            if outcome.is_ok() {
                outcome = copy(start, size.min(bytes - start));
            }
            if outcome.is_err() {
                // Relaxed: the addition below publishes it.
                self.done.fetch_or(FAILED, Ordering::Relaxed);
            }
            // Release: pairs with the Acquire in `progress`; this side does not touch the part any
            // more.
            self.done.fetch_add(1, Ordering::Release);
        }
    }

    /// Whether nobody touches any part any more: `Some(false)` if one could not be copied.
    pub(super) fn progress(&self, bytes: u64) -> Option<bool> {
        // Acquire: pairs with the Release in `copy_parts`.
        let done = self.done.load(Ordering::Acquire);
        (done & !FAILED >= bytes.div_ceil(part_bytes(bytes))).then_some(done & FAILED == 0)
    }
}
