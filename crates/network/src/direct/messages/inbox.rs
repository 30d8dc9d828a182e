//! Records that have arrived and that the port has not taken.

use crate::backend::LostRank;
use shm::mapped::Mapped;
use shm::sync::AtomicU32;
use shm::wakeup::Wakeup;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Bytes of one rank that are kept: more than the credit that receivers grant.
const KEPT_BYTES: usize = 16 << 20;

/// Something that has arrived from a rank.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::direct) enum Arrived {
    /// Whole records of messages.
    Records { from: u32, records: Vec<u8> },
    /// More than a rank sends that keeps within its credit. Nothing of it follows.
    Excess { from: u32 },
    /// The end of its connection.
    Lost(LostRank),
}

/// What has arrived, in order.
#[derive(Debug)]
pub(in crate::direct) struct Inbox {
    state: Mutex<State>,
    /// True if there is anything: to look costs one load.
    has_any: AtomicBool,
    /// Wakes the threads of the endpoint.
    wakeup: OnceLock<Mapped<AtomicU32>>,
}

#[derive(Debug)]
struct State {
    arrived: VecDeque<Arrived>,
    /// Bytes among them by rank; `None` for a rank that has exceeded its credit.
    kept: Vec<Option<usize>>,
}

impl Inbox {
    pub(in crate::direct) fn new(ranks: u32) -> Self {
        let kept = vec![Some(0); ranks as usize];
        Inbox {
            state: Mutex::new(State { arrived: VecDeque::new(), kept }),
            has_any: AtomicBool::new(false),
            wakeup: OnceLock::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the word that wakes the threads of the endpoint. The first one counts.
    pub(in crate::direct) fn set_wakeup(&self, word: Mapped<AtomicU32>) {
        self.wakeup.get_or_init(|| word);
    }

    /// Adds the records of a frame.
    pub(in crate::direct) fn add(&self, from: u32, records: Vec<u8>) {
        let mut state = self.state();
        let State { arrived, kept } = &mut *state;
        let Some(Some(bytes)) = kept.get_mut(from as usize) else { return };
        *bytes += records.len();
        if *bytes > KEPT_BYTES {
            kept[from as usize] = None;
            arrived.push_back(Arrived::Excess { from });
        } else {
            arrived.push_back(Arrived::Records { from, records });
        }
        self.has_any.store(true, Ordering::Release);
    }

    /// Adds the end of a connection.
    pub(in crate::direct) fn lose(&self, lost: LostRank) {
        self.state().arrived.push_back(Arrived::Lost(lost));
        // Release: pairs with the Acquire in `take`.
        self.has_any.store(true, Ordering::Release);
    }

    /// Wakes the threads that sleep until something is added. Called behind that.
    pub(in crate::direct) fn ring(&self) {
        if let Some(word) = self.wakeup.get() {
            Wakeup::by_store(word).notify();
        }
    }

    /// Returns true if there is anything.
    pub(in crate::direct) fn has_any(&self) -> bool {
        // Acquire: as in `take`.
        self.has_any.load(Ordering::Acquire)
    }

    /// Takes everything, in exchange for an empty queue.
    pub(in crate::direct) fn take(&self, into: &mut VecDeque<Arrived>) {
        // Acquire: pairs with the Release of the thread that has added something.
        if !self.has_any.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state();
        std::mem::swap(&mut state.arrived, into);
        state.kept.iter_mut().flatten().for_each(|bytes| *bytes = 0);
        // Under the lock, so that it agrees with the queue.
        self.has_any.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_ignores_its_credit_takes_a_limited_amount_of_memory() {
        let inbox = Inbox::new(2);
        for _ in 0..100 {
            inbox.add(1, vec![0; 1 << 20]);
        }
        inbox.add(0, vec![7; 8]);
        let mut arrived = VecDeque::new();
        inbox.take(&mut arrived);
        assert!(!inbox.has_any());
        assert_eq!(arrived.len(), KEPT_BYTES / (1 << 20) + 2);
        assert_eq!(arrived[arrived.len() - 2], Arrived::Excess { from: 1 });
        assert_eq!(arrived.back(), Some(&Arrived::Records { from: 0, records: vec![7; 8] }));
        inbox.add(1, vec![0; 8]);
        assert!(!inbox.has_any(), "nothing follows");
    }
}
