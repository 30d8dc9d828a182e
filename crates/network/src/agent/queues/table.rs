//! The outgoing queues of a node for one port, as a rank registers them with its agent.
//!
//! | word | contents |
//! |---|---|
//! | 0 | offset of the poll set |
//! | 1 | number of queues |
//! | then, for each queue | its owner, a rank of the job; offset of the outgoing queue |
//!
//! The queues are the members of the set, in this order.

use crate::agent::shared_region::refused;
use crate::error::{Error, system};
use shm::arena::Arena;
use shm::mapped::MappedSlice;
use shm::segment::{Offset, Segment};
use shm::sync::{AtomicU64, Ordering};
use std::sync::Arc;

/// Words in front of the queues.
const HEADER: usize = 2;

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingTable {
    /// The poll set of the outgoing queues.
    pub set: Offset,
    /// The owner of the queue that each leads to, and the outgoing queue.
    pub queues: Vec<(u32, Offset)>,
}

impl OutgoingTable {
    /// Writes the table to new memory of the arena, and returns its offset. The memory is never
    /// freed: the agent and other ranks may read it at any time.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn publish(&self, arena: &Arena) -> Result<Offset, Error> {
        let count = HEADER + 2 * self.queues.len();
        let at = arena.allocate_zeroed(8 * count as u64, 64);
        let at = at.map_err(|error| system("take memory for queues to other nodes", error))?;
        let words = MappedSlice::<AtomicU64>::new(arena.segment(), at, count).map_err(refused)?;
        let entries = self.queues.iter().flat_map(|(owner, at)| [u64::from(*owner), at.0]);
        let values = [self.set.0, self.queues.len() as u64].into_iter().chain(entries);
        for (word, value) in words.iter().zip(values) {
            // Relaxed: a reader has received the offset in a message.
            word.store(value, Ordering::Relaxed);
        }
        Ok(at)
    }

    /// Reads a table of at most `most` queues.
    ///
    /// # Errors
    /// If none lies there.
    pub fn read(segment: &Arc<Segment>, at: Offset, most: u32) -> Result<OutgoingTable, Error> {
        let words = |count| MappedSlice::<AtomicU64>::new(segment, at, count).map_err(refused);
        // Relaxed: as in `publish`. The copies are checked and used.
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let header = words(HEADER)?;
        let count = word(&header[1]).min(u64::from(most)) as usize;
        let all = words(HEADER + 2 * count)?;
        let (pairs, _) = all[HEADER..].as_chunks::<2>();
        let queue = |[owner, at]: &[AtomicU64; 2]| (word(owner) as u32, Offset(word(at)));
        Ok(OutgoingTable {
            set: Offset(word(&header[0])),
            queues: pairs.iter().map(queue).collect(),
        })
    }
}
