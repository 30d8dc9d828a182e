//! The pieces of an arena that a hall is made of, given back when nobody can touch them any more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shm::arena::Arena;
use shm::segment::{Offset, Segment};

use super::layout::Plan;
use crate::cache_line::CacheLineQueue;
use crate::error::CreateError;

/// What a hall has taken from its arena. Its parts hold it; the last of them to go tries to give it
/// back.
#[derive(Debug)]
pub(super) struct Memory {
    arena: Arc<Arena>,
    taken: Mutex<Taken>,
}

/// What has not been given back. Nothing of it is touched once it is: it may be others' memory
/// then.
#[derive(Debug, Default)]
struct Taken {
    pieces: Vec<Offset>,
    /// Once others can find the hall.
    plan: Option<Plan>,
}

impl Memory {
    pub(super) fn new(arena: &Arc<Arena>) -> Memory {
        Memory { arena: Arc::clone(arena), taken: Mutex::default() }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Nothing that holds it leaves a half-done change behind.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn segment(&self) -> &Arc<Segment> {
        self.arena.segment()
    }

    /// Zeroed lines.
    pub(super) fn lines(&self, bytes: u64) -> Result<Offset, CreateError> {
        let offset = self.arena.allocate_zeroed(bytes, 128)?;
        self.note(offset);
        Ok(offset)
    }

    /// A new ring.
    pub(super) fn ring(&self, capacity: usize) -> Result<CacheLineQueue, CreateError> {
        let ring = CacheLineQueue::create(&self.arena, capacity, None)?;
        self.note(ring.offset());
        Ok(ring)
    }

    fn note(&self, piece: Offset) {
        self.taken().pieces.push(piece);
    }

    /// From now on others can find the hall.
    pub(super) fn publish(&self, plan: &Plan) {
        self.taken().plan = Some(plan.clone());
    }

    /// Lets nobody in any more, and gives everything back, once, if no living process is in; gives
    /// whether it is given back.
    pub(super) fn give_back(&self) -> bool {
        let mut taken = self.taken();
        if let Some(plan) = &taken.plan {
            plan.processes().close();
            if plan.processes().has_living() {
                return false;
            }
            plan.erase();
        }
        let Taken { pieces, plan: _ } = std::mem::take(&mut *taken);
        for piece in pieces {
            // Each came from this arena and is freed once, so that this cannot fail.
            let _ = self.arena.free(piece);
        }
        true
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hall::Shape;
    use crate::sync::{AtomicU64, Ordering};
    use shm::segment::Backing;

    #[test]
    fn what_is_given_back_is_touched_no_more() {
        const BYTES: u64 = 1 << 16;
        let segment = Arc::new(Segment::create(BYTES, Backing::Memory).expect("memory"));
        let arena = Arc::new(Arena::new(Arc::clone(&segment), 0..BYTES).expect("all of it"));
        let memory = Memory::new(&arena);
        let shape = Shape { queues: 8, rings: 2, ring_capacity: 2, miss_capacity: 4, quota: 3 };
        drop(Plan::create(&memory, shape).expect("there is room"));
        assert!(memory.give_back(), "nobody has entered");

        // The next user of all of it.
        let mut words = Vec::new();
        while let Ok(piece) = arena.allocate(128, 128) {
            words.extend((0..16).map(|word| Offset(piece.0 + 8 * word)));
        }
        let at = |&word: &Offset| segment.at::<AtomicU64>(word).expect("inside");
        words.iter().for_each(|word| at(word).store(u64::MAX, Ordering::Relaxed));
        assert!(memory.give_back(), "as before");
        drop(memory);
        assert!(
            words.iter().all(|word| at(word).load(Ordering::Relaxed) == u64::MAX),
            "written into others' memory"
        );
    }
}
