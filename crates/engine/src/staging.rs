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
        let fits = self
            .rooms
            .iter_mut()
            .filter(|room| room.run < consumed && room.bytes >= bytes)
            .min_by_key(|room| room.bytes);
        if let Some(room) = fits {
            room.run = run;
            return Ok(room.at);
        }
        // Rooms that are free but too small would otherwise pile up under growing messages.
        let arena = &self.arena;
        self.rooms.retain(|room| room.run >= consumed || room.bytes >= bytes || arena.free(room.at).is_err());
        let at = self.arena.allocate(bytes, 64)?;
        self.rooms.push(Room { at, bytes, run });
        Ok(at)
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
