//! How a rank tells the agent that there is something in its ring, and when it must ring the
//! doorbell for it.
//!
//! The rank writes entries, publishes them, and looks whether the agent sleeps. The agent says that
//! it is about to sleep and looks at the ring once more. Both put a full fence between their store
//! and their look, so that not both miss the other. The agent numbers its naps and the rank
//! remembers which one it has rung for, so that one doorbell serves many entries; each word has one
//! writer.

use crate::sync::{AtomicU64, Ordering, fence};

/// The words of one rank's ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bell<'a> {
    /// Entries published so far.
    pub(crate) tail: &'a AtomicU64,
    /// Entries that the agent has taken so far.
    pub(crate) head: &'a AtomicU64,
    /// The nap that the agent takes, or is about to; 0 while it is up.
    pub(crate) nap: &'a AtomicU64,
}

impl Bell<'_> {
    /// The rank: every entry before `tail` is written; `rung` is the last nap it has rung for. True
    /// when it must ring now.
    #[must_use = "the agent may sleep"]
    pub(crate) fn publish(&self, tail: u64, rung: &mut u64) -> bool {
        // Release: pairs with the Acquire in `published`; with the count come the entries.
        self.tail.store(tail, Ordering::Release);
        // Partner: the fence in `doze`.
        fence(Ordering::SeqCst);
        let nap = self.nap.load(Ordering::Relaxed);
        nap != 0 && std::mem::replace(rung, nap) != nap
    }

    /// The rank: entries that the agent has taken, and with them what they referred to.
    pub(crate) fn taken(&self) -> u64 {
        // Acquire: pairs with the Release in `take`.
        self.head.load(Ordering::Acquire)
    }

    /// The agent: entries that may be read.
    pub(crate) fn published(&self) -> u64 {
        // Acquire: pairs with the Release in `publish`.
        self.tail.load(Ordering::Acquire)
    }

    /// The agent: everything before `head` was read, the rank may write there again.
    pub(crate) fn take(&self, head: u64) {
        // Release: pairs with the Acquire in `taken`; the reads come before.
        self.head.store(head, Ordering::Release);
    }

    /// The agent: is about to take its nap of this number, from 1 on, having taken everything
    /// before `head`. False when there is more.
    #[must_use = "without looking, what was published just now would be slept over"]
    pub(crate) fn doze(&self, head: u64, nap: u64) -> bool {
        self.nap.store(nap, Ordering::Relaxed);
        // Partner: the fence in `publish`.
        fence(Ordering::SeqCst);
        self.tail.load(Ordering::Relaxed) == head
    }

    /// The agent: is up, and will look at the ring before it sleeps.
    pub(crate) fn rise(&self) {
        self.nap.store(0, Ordering::Relaxed);
    }
}
