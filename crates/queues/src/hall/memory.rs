//! The pieces of an arena that a hall is made of, given back when nobody can touch them any more.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use shm::arena::Arena;
use shm::segment::{Offset, Segment};

use super::layout::Plan;
use crate::lines::WideQueue;
use crate::ring::RingError;

/// What a hall has taken from its arena. Its parts hold it; the last of them to go tries to give it back.
#[derive(Debug)]
pub(super) struct Memory {
    arena: Arc<Arena>,
    pieces: Mutex<Vec<Offset>>,
    /// Once others can find the hall.
    plan: OnceLock<Plan>,
}

impl Memory {
    pub(super) fn new(arena: &Arc<Arena>) -> Memory {
        Memory { arena: Arc::clone(arena), pieces: Mutex::default(), plan: OnceLock::new() }
    }

    pub(super) fn segment(&self) -> &Arc<Segment> {
        self.arena.segment()
    }

    /// Zeroed lines.
    pub(super) fn lines(&self, bytes: u64) -> Result<Offset, RingError> {
        let offset = self.arena.allocate_zeroed(bytes, 128)?;
        self.note(offset);
        Ok(offset)
    }

    /// A new ring.
    pub(super) fn ring(&self, capacity: usize) -> Result<WideQueue, RingError> {
        let ring = WideQueue::create(&self.arena, capacity, None)?;
        self.note(ring.offset());
        Ok(ring)
    }

    fn note(&self, piece: Offset) {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner).push(piece);
    }

    /// From now on others can find the hall.
    pub(super) fn publish(&self, plan: &Plan) {
        let _ = self.plan.set(plan.clone());
    }

    /// Lets nobody in any more, and gives everything back if no living process is in; gives whether it is given back.
    pub(super) fn give_back(&self) -> bool {
        if let Some(plan) = self.plan.get() {
            plan.users().turn_away();
            if plan.users().are_left() {
                return false;
            }
            plan.erase();
        }
        for piece in self.pieces.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
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
