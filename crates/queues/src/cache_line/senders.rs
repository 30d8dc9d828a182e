//! Processes that send to a ring, one word each, which distinguish slots of ended processes from
//! those of slow ones.

use std::sync::Mutex;

use super::state::{MAX_SENDERS, SenderId};
use crate::liveness::{ProcessId, ProcessWatch};
use crate::sync::{AtomicU64, Ordering};

/// Words of the table, borrowed from shared memory: [`MAX_SENDERS`] of them, the first of which is
/// unused. Zeroed memory is an empty table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Senders<'a>(pub(crate) &'a [AtomicU64]);

impl Senders<'_> {
    /// Returns whether the process of this number has ended; false for no process.
    #[cold]
    pub(crate) fn is_dead(self, claimant: SenderId) -> bool {
        ProcessWatch::default().has_ended(self.name(claimant.number() as usize))
    }

    fn name(self, number: usize) -> ProcessId {
        // Acquire: pairs with the Release half of `take`.
        self.0.get(number).map_or(ProcessId::NONE, |word| ProcessId(word.load(Ordering::Acquire)))
    }

    /// Registers this process; returns its number, or none if all numbers belong to living
    /// processes. Calls `recover`, which releases the slots of ended processes, before it reuses
    /// the number of one of them.
    pub(crate) fn enter(self, recover: impl FnOnce()) -> SenderId {
        let Some(own) = own_name() else { return SenderId::NONE };
        let numbers = 1..self.0.len().min(MAX_SENDERS);
        let known = numbers.clone().find(|&number| self.name(number) == own);
        let taken = known
            .or_else(|| numbers.clone().find(|&number| self.take(number, ProcessId::NONE, own)));
        let number = taken.or_else(|| {
            recover();
            numbers.clone().find(|&number| {
                let held = self.name(number);
                ProcessWatch::default().has_ended(held) && self.take(number, held, own)
            })
        });
        SenderId::from_bits(number.unwrap_or(0) as u64)
    }

    fn take(self, number: usize, from: ProcessId, own: ProcessId) -> bool {
        // AcqRel: pairs with the Acquire load of the word. Two threads of a process may take two
        // numbers; either identifies the process.
        self.0[number].compare_exchange(from.0, own.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// Returns the identity of this process, cached after the first call. `None` if it is unavailable.
fn own_name() -> Option<ProcessId> {
    static OWN: Mutex<Option<ProcessId>> = Mutex::new(None);
    let mut own = OWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // A forked child is another process: its number differs from the cached one.
    if own.is_none_or(|name| name.pid() != std::process::id()) {
        *own = ProcessId::own().ok();
    }
    *own
}
