//! The ranks of a port, and the outgoing queues of a node for it, as they lie in the segment of the
//! node's ranks.
//!
//! | word | contents |
//! |---|---|
//! | 0 | offset of the poll set |
//! | 1 | number of ranks |
//! | 2 | lines of each queue if the queues are Basic rings, otherwise 0 |
//! | then, for each rank | its number in the job; offset of the outgoing queue to it, or 0 for none |
//!
//! The outgoing queues are the members of the set, in this order. There is none to the ranks of this
//! node, and to those that only send.

use crate::error::{Error, system};
use crate::node_map::NodeMap;
use shm::arena::Arena;
use shm::mapped::MappedSlice;
use shm::segment::{Offset, Segment, SegmentError};
use shm::sync::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::Arc;

/// Words in front of the ranks.
const HEADER: usize = 3;

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortTable {
    /// The poll set of the outgoing queues.
    pub set: Offset,
    /// Number of lines of each queue, if the queues are Basic rings.
    pub lines: u64,
    /// All ranks of the port, each with the outgoing queue to it.
    pub ranks: Vec<(u32, Offset)>,
}

impl PortTable {
    /// Writes the table to new memory of the arena, and returns its offset.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn publish(&self, arena: &Arena) -> Result<Offset, Error> {
        let count = HEADER + 2 * self.ranks.len();
        let at = arena.allocate_zeroed(8 * count as u64, 64);
        let at = at.map_err(|error| system("take memory for queues to other nodes", error))?;
        let words = MappedSlice::<AtomicU64>::new(arena.segment(), at, count).map_err(outside)?;
        let entries = self.ranks.iter().flat_map(|(rank, at)| [u64::from(*rank), at.0]);
        let header = [self.set.0, self.ranks.len() as u64, self.lines];
        let values = header.into_iter().chain(entries);
        for (word, value) in words.iter().zip(values) {
            // Relaxed: a reader has received the offset in a message.
            word.store(value, Ordering::Relaxed);
        }
        Ok(at)
    }

    /// Returns the ranks that are on other nodes than `own`, each with its node.
    pub(crate) fn on_other_nodes(&self, own: u32, nodes: &NodeMap) -> HashMap<u32, u32> {
        let node_of = |(rank, _): &(u32, Offset)| Some((*rank, nodes.of(*rank)?));
        self.ranks.iter().filter_map(node_of).filter(|(_, node)| *node != own).collect()
    }

    /// Reads a table of at most `most` ranks.
    ///
    /// # Errors
    /// If none lies there.
    pub fn read(segment: &Arc<Segment>, at: Offset, most: u32) -> Result<PortTable, Error> {
        let words = |count| MappedSlice::<AtomicU64>::new(segment, at, count).map_err(outside);
        // Relaxed: as in `publish`. The copies are checked and used.
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let header = words(HEADER)?;
        let count = word(&header[1]).min(u64::from(most)) as usize;
        let all = words(HEADER + 2 * count)?;
        let (pairs, _) = all[HEADER..].as_chunks::<2>();
        let entry = |[rank, at]: &[AtomicU64; 2]| (word(rank) as u32, Offset(word(at)));
        Ok(PortTable {
            set: Offset(word(&header[0])),
            lines: word(&header[2]),
            ranks: pairs.iter().map(entry).collect(),
        })
    }
}

fn outside(error: SegmentError) -> Error {
    system("use the table of a port", error)
}
