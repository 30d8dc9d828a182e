//! The processes that send to a ring, a word each, so that the line of a dead one is told from that
//! of a slow one.

use std::sync::Mutex;

use super::state::{CLAIMANTS, SenderId};
use crate::liveness::{ProcessId, ProcessWatch};
use crate::sync::{AtomicU64, Ordering};

/// The words, borrowed from shared memory; [`CLAIMANTS`] of them, the first of which is nobody's.
/// Zeroed memory is nobody.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Senders<'a>(pub(crate) &'a [AtomicU64]);

impl Senders<'_> {
    /// Whether the process of this number has ended. Nobody has not.
    #[cold]
    pub(crate) fn is_dead(self, claimant: SenderId) -> bool {
        ProcessWatch::default().has_ended(self.name(claimant.number() as usize))
    }

    fn name(self, number: usize) -> ProcessId {
        // Acquire: pairs with the Release half of `take`.
        self.0.get(number).map_or(ProcessId::NONE, |word| ProcessId(word.load(Ordering::Acquire)))
    }

    /// The number of this process, which gets one if it has none. `recover` gives back the lines of
    /// dead processes; it is called before one of their numbers is given to this process. Nobody if
    /// all numbers are those of living processes.
    pub(crate) fn enter(self, recover: impl FnOnce()) -> SenderId {
        let Some(own) = own_name() else { return SenderId::NOBODY };
        let numbers = 1..self.0.len().min(CLAIMANTS);
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
        // AcqRel: pairs with the Acquire in `name`. Two threads of a process may take two numbers:
        // either is right.
        self.0[number].compare_exchange(from.0, own.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// The name of this process, asked of the system once. `None` where that does not tell.
fn own_name() -> Option<ProcessId> {
    static OWN: Mutex<Option<ProcessId>> = Mutex::new(None);
    let mut own = OWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // A forked child is another process.
    if own.is_none_or(|name| name.pid() != std::process::id()) {
        *own = ProcessId::own().ok();
    }
    *own
}
