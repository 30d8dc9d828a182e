//! Publication of entries in a rank's ring, and the decision whether the agent must be woken.
//!
//! The rank writes entries, publishes them and then reads whether the agent sleeps. The agent
//! announces that it is about to sleep and then reads the ring once more. Each side puts a full
//! fence between its store and its load, so at least one of them sees the other's store: either the
//! rank wakes the agent, or the agent does not sleep. The agent numbers its sleeps (epochs), and
//! the rank remembers the epoch for which it has notified it, so that one notification serves many
//! entries. Each word has one writer.

use crate::sync::{AtomicU64, Ordering, fence};

/// The words of one rank's ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubmissionRing<'a> {
    /// Number of entries published so far; written by the rank.
    pub(crate) tail: &'a AtomicU64,
    /// Number of entries that the agent has consumed; written by the agent.
    pub(crate) head: &'a AtomicU64,
    /// Number of the agent's sleep, from before it begins; 0 while the agent is awake.
    pub(crate) epoch: &'a AtomicU64,
}

impl SubmissionRing<'_> {
    /// Publishes every entry before `tail` (rank). `notified` is the last epoch for which the rank
    /// has notified the agent. Returns true if it must do so now.
    #[must_use = "the agent may sleep"]
    pub(crate) fn publish(&self, tail: u64, notified: &mut u64) -> bool {
        // Release: pairs with the Acquire in `published`. The entries were written before.
        self.tail.store(tail, Ordering::Release);
        // Pairs with the fence in `arm`: if the agent has not seen the new tail there, its epoch is
        // visible here.
        fence(Ordering::SeqCst);
        let epoch = self.epoch.load(Ordering::Relaxed);
        epoch != 0 && std::mem::replace(notified, epoch) != epoch
    }

    /// Number of entries that the agent has consumed (rank). Memory that these refer to is free.
    pub(crate) fn consumed(&self) -> u64 {
        // Acquire: pairs with the Release in `consume`.
        self.head.load(Ordering::Acquire)
    }

    /// Number of entries that may be read (agent).
    pub(crate) fn published(&self) -> u64 {
        // Acquire: pairs with the Release in `publish`.
        self.tail.load(Ordering::Acquire)
    }

    /// Returns every entry before `head` to the rank, which may overwrite them (agent).
    pub(crate) fn consume(&self, head: u64) {
        // Release: pairs with the Acquire in `consumed`. The entries were read before.
        self.head.store(head, Ordering::Release);
    }

    /// Requests a notification for the next entry, before the sleep of this epoch, from 1 on
    /// (agent). Returns false if there is an entry that has not been consumed.
    #[must_use = "without this check the agent would sleep although an entry was published"]
    pub(crate) fn arm(&self, head: u64, epoch: u64) -> bool {
        self.epoch.store(epoch, Ordering::Relaxed);
        // Pairs with the fence in `publish`: if the rank has not seen the epoch there, its new tail
        // is visible here.
        fence(Ordering::SeqCst);
        self.tail.load(Ordering::Relaxed) == head
    }

    /// Withdraws the request (agent). The agent reads the ring before it sleeps again, so a store
    /// that the rank sees late costs one superfluous notification.
    pub(crate) fn disarm(&self) {
        self.epoch.store(0, Ordering::Relaxed);
    }
}
