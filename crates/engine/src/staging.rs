//! Room in a rank's own arena for the private buffers of large meetings, used again as soon as every rank is past them.

use crate::error::Error;
use shm::arena::Arena;
use shm::segment::Offset;
use std::sync::Arc;

/// One piece of memory.
#[derive(Debug)]
struct Room {
    at: Offset,
    bytes: u64,
    /// The run that used it last; others may look at it until they have consumed that run.
    run: u64,
}

impl Room {
    fn reuse(&mut self, run: u64) -> Offset {
        self.run = run;
        self.at
    }
}

/// Rooms are used in turn until they have this many bytes together, twice what a core's second cache commonly holds. To write
/// lines that lie in a reader's cache costs four times as much as to write lines that have left it: each must be called back first.
const ROTATION_BYTES: u64 = 2 << 20;

/// A rank's rooms.
#[derive(Debug)]
pub(crate) struct Staging {
    arena: Arc<Arena>,
    rooms: Vec<Room>,
    /// All runs below are consumed by every rank, as far as was seen.
    consumed: u64,
}

impl Staging {
    pub(crate) fn new(arena: Arc<Arena>) -> Self {
        Staging { arena, rooms: Vec::new(), consumed: 0 }
    }

    /// Takes `bytes` bytes for `run`. All runs below `consumed` are consumed by every rank.
    pub(crate) fn take(&mut self, bytes: u64, run: u64, consumed: u64) -> Result<Offset, Error> {
        self.consumed = consumed;
        let is_free = |room: &Room| room.run < consumed;
        // Rooms of other sizes that are free would otherwise pile up under changing messages.
        let arena = &self.arena;
        self.rooms.retain(|room| !is_free(room) || room.bytes == bytes || arena.free(room.at).is_err());
        let oldest = self.rooms.iter().enumerate().filter(|(_, room)| is_free(room)).min_by_key(|(_, room)| room.run);
        let oldest = oldest.map(|(index, _)| index);
        let rotates = self.rooms.len() as u64 * bytes >= ROTATION_BYTES;
        if let Some(index) = oldest.filter(|_| rotates) {
            return Ok(self.rooms[index].reuse(run));
        }
        match (self.arena.allocate(bytes, 64), oldest) {
            (Ok(at), _) => {
                self.rooms.push(Room { at, bytes, run });
                Ok(at)
            }
            (Err(_), Some(index)) => Ok(self.rooms[index].reuse(run)),
            (Err(error), None) => Err(error.into()),
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // A room that others may still fetch from is given up for good: nobody is left who could free it later.
        for room in self.rooms.iter().filter(|room| room.run < self.consumed) {
            // A room that is not the arena's cannot occur; if it did, the arena's owner could do nothing about it here.
            let _ = self.arena.free(room.at);
        }
    }
}
