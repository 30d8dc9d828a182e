//! Records that have arrived and that the port has not taken.

use super::send_credit::frame_bytes;
use crate::backend::LostRank;
use shm::mapped::Mapped;
use shm::sync::AtomicU32;
use shm::wakeup::Wakeup;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Memory for what one rank has sent: more than the messages, parts and answers of a rank that
/// keeps within its credit take if each is a frame.
const KEPT_BYTES: u64 = 48 << 20;

/// Something that has arrived from a rank.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::direct) enum Arrived {
    /// Whole records of messages.
    Records { from: u32, records: Vec<u8> },
    /// A frame that no rank sends: one without records, or beyond its credit. Nothing of the rank
    /// follows.
    Invalid { from: u32 },
    /// The end of its connection.
    Lost(LostRank),
}

/// Records and ends of connections that have arrived, in order.
#[derive(Debug)]
pub(in crate::direct) struct ReceivedRecords {
    state: Mutex<State>,
    /// True if there is anything: to look costs one load.
    has_any: AtomicBool,
    /// Wakes the threads of the endpoint.
    wakeup: OnceLock<Mapped<AtomicU32>>,
}

#[derive(Debug)]
struct State {
    arrived: VecDeque<Arrived>,
    /// Memory that they take by rank; `None` for a rank that has sent what no rank sends.
    kept: Vec<Option<u64>>,
}

impl ReceivedRecords {
    pub(in crate::direct) fn new(ranks: u32) -> Self {
        let kept = vec![Some(0); ranks as usize];
        ReceivedRecords {
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
        // A short frame takes more memory than its records.
        *bytes += size_of::<Arrived>() as u64 + frame_bytes(records.len());
        if records.is_empty() || *bytes > KEPT_BYTES {
            kept[from as usize] = None;
            arrived.push_back(Arrived::Invalid { from });
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
    pub(in crate::direct) fn notify(&self) {
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
        let received = ReceivedRecords::new(2);
        for _ in 0..2 * (KEPT_BYTES >> 20) {
            received.add(1, vec![0; 1 << 20]);
        }
        received.add(0, vec![7; 8]);
        let mut arrived = VecDeque::new();
        received.take(&mut arrived);
        assert!(!received.has_any());
        // The headers take the place of one frame.
        assert_eq!(arrived.len() as u64, KEPT_BYTES / (1 << 20) - 1 + 2);
        assert_eq!(arrived[arrived.len() - 2], Arrived::Invalid { from: 1 });
        assert_eq!(arrived.back(), Some(&Arrived::Records { from: 0, records: vec![7; 8] }));
        received.add(1, vec![0; 8]);
        assert!(!received.has_any(), "nothing follows");
    }

    #[test]
    fn frames_without_records_end_the_messages_of_their_sender() {
        let received = ReceivedRecords::new(1);
        (0..3).for_each(|_| received.add(0, Vec::new()));
        let mut arrived = VecDeque::new();
        received.take(&mut arrived);
        assert_eq!(arrived, [Arrived::Invalid { from: 0 }]);
    }

    #[test]
    fn short_frames_take_a_limited_amount_of_memory() {
        let received = ReceivedRecords::new(1);
        // One record without bytes each.
        (0..KEPT_BYTES / 32).for_each(|_| received.add(0, vec![0; 32]));
        let mut arrived = VecDeque::new();
        received.take(&mut arrived);
        assert_eq!(arrived.back(), Some(&Arrived::Invalid { from: 0 }));
    }
}
