//! Allocation of the receive queues and their rings in an arena. Everything is freed when no
//! process can access it any more.

use super::config::QueuesConfig;
use super::layout::QueuesLayout;
use crate::cache_line::CacheLineQueue;
use crate::error::CreateError;
use shm::arena::Arena;
use shm::segment::Offset;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Allocations of the receive queues. All their parts hold it; the drop of the last one tries to
/// free them.
#[derive(Debug)]
pub(super) struct QueuesMemory {
    arena: Arc<Arena>,
    allocated: Mutex<Allocated>,
}

/// Allocations that are not freed. After the free they may belong to another user, so nothing of
/// them is accessed any more.
#[derive(Debug, Default)]
struct Allocated {
    rings: Vec<Offset>,
    /// Present once other processes can find the queues.
    layout: Option<QueuesLayout>,
}

impl QueuesMemory {
    pub(super) fn new(arena: &Arc<Arena>) -> QueuesMemory {
        QueuesMemory { arena: Arc::clone(arena), allocated: Mutex::default() }
    }

    fn allocated(&self) -> MutexGuard<'_, Allocated> {
        // Every change under the lock is complete, so a poisoned lock protects valid data.
        self.allocated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates queues without rings, and the non-resident queues of both classes.
    pub(super) fn create_layout(
        &self,
        config: QueuesConfig,
    ) -> Result<(QueuesLayout, [CacheLineQueue; 2]), CreateError> {
        config.max_bytes()?;
        let capacity = config.non_resident_capacity;
        let (layout, non_resident) = QueuesLayout::create(&self.arena, config, || {
            Ok([self.create_ring(capacity)?, self.create_ring(capacity)?])
        })?;
        self.allocated().layout = Some(layout.clone());
        Ok((layout, non_resident))
    }

    /// Creates a ring.
    pub(super) fn create_ring(&self, capacity: usize) -> Result<CacheLineQueue, CreateError> {
        let ring = CacheLineQueue::create(&self.arena, capacity, None)?;
        self.allocated().rings.push(ring.offset());
        Ok(ring)
    }

    /// Closes the process table and frees everything, once, if no living process is attached.
    /// Returns true if everything is freed.
    pub(super) fn try_free(&self) -> bool {
        let mut allocated = self.allocated();
        // A process that died while attached does not count.
        if allocated.layout.as_ref().is_some_and(|layout| !layout.object().close()) {
            return false;
        }
        // Emptied under the lock, so a later call frees nothing twice and reads no freed memory.
        let Allocated { rings, layout } = std::mem::take(&mut *allocated);
        if let Some(layout) = layout {
            layout.object().free(&self.arena);
        }
        for offset in rings {
            // Cannot fail: each came from this arena and is freed once.
            let _ = self.arena.free(offset);
        }
        true
    }
}

impl Drop for QueuesMemory {
    fn drop(&mut self) {
        self.try_free();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{AtomicU64, Ordering};
    use shm::segment::{Backing, Segment};

    #[test]
    fn freed_memory_is_not_accessed_again() {
        const BYTES: u64 = 1 << 16;
        let segment = Arc::new(Segment::create(BYTES, Backing::Memory).expect("memory"));
        let arena = Arc::new(Arena::new(Arc::clone(&segment), 0..BYTES).expect("all of it"));
        let memory = QueuesMemory::new(&arena);
        let config = QueuesConfig {
            queues: 8,
            rings: 2,
            ring_capacity: 2,
            non_resident_capacity: 4,
            quota: 3,
        };
        drop(memory.create_layout(config).expect("there is memory"));
        assert!(memory.try_free(), "no process is attached");

        // The next user of all of it.
        let mut words = Vec::new();
        while let Ok(piece) = arena.allocate(128, 128) {
            words.extend((0..16).map(|word| Offset(piece.0 + 8 * word)));
        }
        let at = |&word: &Offset| segment.at::<AtomicU64>(word).expect("inside");
        words.iter().for_each(|word| at(word).store(u64::MAX, Ordering::Relaxed));
        assert!(memory.try_free(), "as before");
        drop(memory);
        assert!(
            words.iter().all(|word| at(word).load(Ordering::Relaxed) == u64::MAX),
            "memory of the next user was overwritten"
        );
    }
}
