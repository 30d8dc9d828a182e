//! Room in a rank's own arena for the private buffers of large collectives, used again when every
//! rank is past them.

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

/// The smallest room. Sizes are powers of two, so that messages of many sizes share rooms.
const LEAST_ROOM: u64 = 4096;

/// Rooms of one size are used in turn; so many at most, which bounds the search.
const MOST_ROOMS: u64 = 64;

/// Rooms of one size are used in turn when they have this many bytes together, twice what a core's
/// second cache commonly holds. To write lines that lie in a reader's cache costs four times as
/// much as to write lines that have left it: each must be called back first.
const ROTATION_BYTES: u64 = 2 << 20;

/// A rank's rooms.
#[derive(Debug)]
pub(crate) struct Staging {
    arena: Arc<Arena>,
    rooms: Vec<Room>,
    /// All runs below are consumed by every rank, as far as was seen.
    consumed: u64,
}

/// Refuses what this arena will never have room for, in the arena's words.
pub(crate) fn check(arena: &Arena, bytes: u64) -> Result<(), Error> {
    let class = class_of(bytes);
    if class <= arena.capacity() {
        return Ok(());
    }
    Ok(arena.allocate(class, 64).and_then(|at| arena.free(at))?)
}

fn class_of(bytes: u64) -> u64 {
    bytes.next_power_of_two().max(LEAST_ROOM)
}

impl Staging {
    pub(crate) fn new(arena: Arc<Arena>) -> Self {
        Staging { arena, rooms: Vec::new(), consumed: 0 }
    }

    /// Takes `bytes` bytes for `run`. All runs below `consumed` are consumed by every rank.
    pub(crate) fn take(&mut self, bytes: u64, run: u64, consumed: u64) -> Result<Offset, Error> {
        self.consumed = consumed;
        let class = class_of(bytes);
        let of_class = self.rooms.iter().enumerate().filter(|(_, room)| room.bytes == class);
        let (mut count, mut oldest) = (0, None::<(usize, u64)>);
        for (index, room) in of_class {
            count += 1;
            if room.run < consumed && oldest.is_none_or(|(_, run)| room.run < run) {
                oldest = Some((index, room.run));
            }
        }
        let oldest = oldest.map(|(index, _)| index);
        if let Some(index) =
            oldest.filter(|_| count >= MOST_ROOMS || count * class >= ROTATION_BYTES)
        {
            return Ok(self.rooms[index].reuse(run));
        }
        match (self.allocate(class, run), oldest) {
            (Ok(at), _) => Ok(at),
            (Err(_), Some(index)) => Ok(self.rooms[index].reuse(run)),
            (Err(error), None) => {
                // What other sizes do not need now may be enough.
                let arena = &self.arena;
                self.rooms.retain(|room| room.run >= consumed || arena.free(room.at).is_err());
                self.allocate(class, run).map_err(|_| error)
            }
        }
    }

    fn allocate(&mut self, bytes: u64, run: u64) -> Result<Offset, Error> {
        let at = self.arena.allocate(bytes, 64)?;
        self.rooms.push(Room { at, bytes, run });
        Ok(at)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // A room that others may still fetch from is given up for good: nobody is left who could
        // free it later.
        for room in self.rooms.iter().filter(|room| room.run < self.consumed) {
            // A room that is not the arena's cannot occur; if it did, the arena's owner could do
            // nothing about it here.
            let _ = self.arena.free(room.at);
        }
    }
}
