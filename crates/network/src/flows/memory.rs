//! Memory of this process that the ends of ranks take.

use shm::mapped::Mapped;
use shm::sync::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::Arc;

/// Memory of an end without bytes, with its entries in the tables.
pub(super) const END_BYTES: u64 = 1 << 10;

/// Reason why an end is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The rank has opened one of this name already.
    Taken = 1,
    /// The ends would take more than the [limit](Purpose::limit).
    Memory = 2,
    /// No such object lies in the segment of the job, or the name is none of this rank.
    Invalid = 3,
}

/// Use of the memory of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// Messages to its queues that wait for space, and what its ports need.
    Queues,
    /// Words of its channels, charged by their credit, which is no less.
    Channels,
    /// Commands on its windows.
    Windows,
}

/// Bytes in use, by rank of this node.
#[derive(Debug, Default)]
pub(super) struct RankMemory {
    used: HashMap<(u32, Purpose), Arc<AtomicU64>>,
}

/// Part of the memory of a rank, until it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    bytes: u64,
    used: Arc<AtomicU64>,
    /// Uses of the rank's objects in the segment of the job, counted beside them.
    uses: Option<Mapped<AtomicU64>>,
}

impl Purpose {
    /// Returns the number of bytes that one rank may take.
    pub(crate) const fn limit(self) -> u64 {
        match self {
            Purpose::Queues => 256 << 20,
            Purpose::Channels => 1 << 30,
            Purpose::Windows => 8 << 30,
        }
    }
}

impl RankMemory {
    /// Charges a rank with what it makes this process allocate, before it does.
    pub(super) fn charge(
        &mut self,
        rank: u32,
        purpose: Purpose,
        bytes: u64,
    ) -> Result<Charge, Refusal> {
        let used = self.used.entry((rank, purpose)).or_default();
        // Relaxed: one thread has the flows.
        if used.load(Ordering::Relaxed).saturating_add(bytes) > purpose.limit() {
            return Err(Refusal::Memory);
        }
        used.fetch_add(bytes, Ordering::Relaxed);
        Ok(Charge { bytes, used: Arc::clone(used), uses: None })
    }

    /// Returns the number of bytes that a rank may still take.
    pub(super) fn free(&self, rank: u32, purpose: Purpose) -> u64 {
        let used = self.used.get(&(rank, purpose));
        purpose.limit() - used.map_or(0, |used| used.load(Ordering::Relaxed))
    }

    /// Forgets a rank that has exited.
    pub(super) fn remove(&mut self, rank: u32) {
        self.used.retain(|(other, _), _| *other != rank);
    }

    /// Returns the counts of the bytes that a rank has in use.
    #[cfg(test)]
    pub(super) fn counts(&self, rank: u32) -> Vec<Arc<AtomicU64>> {
        let of_rank = self.used.iter().filter(|((other, _), _)| *other == rank);
        of_rank.map(|(_, used)| Arc::clone(used)).collect()
    }

    /// Returns the number of bytes that a rank has in use.
    #[cfg(test)]
    pub(super) fn used(&self, rank: u32) -> u64 {
        self.counts(rank).iter().map(|used| used.load(Ordering::Relaxed)).sum()
    }
}

impl Charge {
    /// Adds a use of the rank's objects, which the count includes already.
    pub(super) fn of_objects(mut self, uses: Mapped<AtomicU64>) -> Self {
        self.uses = Some(uses);
        self
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(uses) = &self.uses {
            // Release: the rank acquires the count before it frees the objects, and this process
            // accesses them no more.
            uses.fetch_sub(1, Ordering::Release);
        }
    }
}
