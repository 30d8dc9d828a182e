//! A transfer that both ends execute together: offered by the sender, joined by the receiver, its
//! parts claimed by both.
//!
//! A transfer between two private memories is divided into parts, and both processes copy parts
//! concurrently: the receiver reads from the sender's memory, the sender writes into the
//! receiver's ([`PartClaims`](shm::part_claims::PartClaims)). If only one of them has the
//! permission, it copies all parts.
//!
//! ```text
//!            sender: offer          receiver: join           receiver: finish
//! (over) ───────────────▶ Offered ─────────────────▶ Joined ──────────────────▶ Done
//!                            │ sender: withdraw
//!                            └──────────────────────▶ Withdrawn
//! ```

use super::memory::SharedTransfer;
use crate::sync::Ordering;

/// State of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransferState {
    /// The sender waits for the receiver.
    Offered = 1,
    /// The receiver takes part.
    Joined = 2,
    /// The receiver needs nothing more from the sender.
    Done = 3,
    /// The sender withdrew its offer before the receiver joined.
    Withdrawn = 4,
}

impl SharedTransfer {
    fn word(number: u64, state: TransferState) -> u64 {
        number << 3 | state as u64
    }

    /// Returns true if transfer `number`, the last one, is over, so that the next can be offered.
    /// Transfers are numbered from 1.
    pub(super) fn is_over(&self, number: u64) -> bool {
        // Acquire: pairs with the Release in `finish`. The receiver has made its last access to the
        // counters, so `offer` may reset them.
        let state = self.state.load(Ordering::Acquire);
        number == 0
            || state == Self::word(number, TransferState::Done)
            || state == Self::word(number, TransferState::Withdrawn)
    }

    /// Offers a transfer. Called by the sender when the previous one is over.
    pub(super) fn offer(&self, number: u64) {
        self.parts.reset();
        // Release: publishes the reset, and pairs with the Acquire in `join`.
        self.state.store(Self::word(number, TransferState::Offered), Ordering::Release);
    }

    /// Withdraws the sender's offer. Returns false if the receiver has joined before.
    pub(super) fn withdraw(&self, number: u64) -> bool {
        self.change(number, TransferState::Offered, TransferState::Withdrawn)
    }

    /// Joins as receiver, with a buffer at this address. Returns false if the offer was withdrawn
    /// before.
    pub(super) fn join(&self, number: u64, target: u64) -> bool {
        // Relaxed: the exchange of the state publishes it.
        self.target.store(target, Ordering::Relaxed);
        self.change(number, TransferState::Offered, TransferState::Joined)
    }

    /// Ends the transfer. Called by the receiver.
    pub(super) fn finish(&self, number: u64) {
        // Release: pairs with the Acquire in `is_over` and `is`.
        self.state.store(Self::word(number, TransferState::Done), Ordering::Release);
    }

    /// Withdraw and join start from the same state and change it by an exchange, so exactly one of
    /// them succeeds.
    fn change(&self, number: u64, from: TransferState, to: TransferState) -> bool {
        // AcqRel: each end sees the other's writes from before its own change.
        self.state
            .compare_exchange(
                Self::word(number, from),
                Self::word(number, to),
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .is_ok()
    }

    /// Returns true if the transfer is in this state.
    pub(super) fn is(&self, number: u64, state: TransferState) -> bool {
        // Acquire: pairs with the Release half of `change`, and with `finish`.
        self.state.load(Ordering::Acquire) == Self::word(number, state)
    }
}
