//! Processes that send to a ring, one word each, which distinguish slots of ended processes from
//! those of slow ones.

use crate::slot_ring::{MAX_SENDERS, SenderId};
use crate::sync::AtomicU64;
use shm::liveness::{ProcessId, ProcessWatch};
use shm::process_words::ProcessWords;

/// Words of the table, borrowed from shared memory: [`MAX_SENDERS`] of them, the first of which is
/// unused, because number 0 stands for no process. Zeroed memory is an empty table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Senders<'a>(pub(crate) &'a [AtomicU64]);

impl<'a> Senders<'a> {
    fn words(self) -> ProcessWords<'a> {
        ProcessWords(self.0.get(1..MAX_SENDERS).unwrap_or_default())
    }

    /// Returns whether the process of this number has ended; false for no process.
    #[cold]
    pub(crate) fn is_dead(self, claimant: SenderId) -> bool {
        let Some(index) = (claimant.number() as usize).checked_sub(1) else { return false };
        ProcessWatch::default().has_ended(self.words().process(index))
    }

    /// Registers this process; returns its number, or none if all numbers belong to living
    /// processes. Calls `recover`, which releases the slots of ended processes, before it reuses
    /// the number of one of them.
    pub(crate) fn enter(self, recover: impl FnOnce()) -> SenderId {
        let Ok(own) = ProcessId::own() else { return SenderId::NONE };
        // Two threads of a process may enter at the same time and take two numbers; either
        // identifies the process.
        let index = self.words().find(own).or_else(|| self.words().enter(own, recover));
        SenderId::from_bits(index.map_or(0, |index| index as u64 + 1))
    }
}
