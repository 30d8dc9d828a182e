//! Numbered runs and the slots they use: run r uses slot r mod K, and a slot is used again only
//! when every rank has consumed the run before.
//!
//! Every rank has a ring of words in the segment, one a slot, that say whose turn it is and in
//! which state. Consuming a run is one store to the rank's own word. Whoever wants to use a slot
//! again looks at the words of all ranks, which cost it one line a rank for every eight runs;
//! nothing is published that nobody asks for.

use crate::sync::{AtomicU64, Ordering};
use std::ops::Deref;

/// In what state a run is, on the rank whose ring this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunState {
    /// Started, or waiting for its turn to start.
    Active,
    /// Someone is taking its result out.
    Taken,
    /// Done with, as far as this rank is concerned.
    Consumed,
    /// Nobody will ask for its result.
    Abandoned,
}

impl RunState {
    const fn code(self) -> u64 {
        match self {
            RunState::Active => 0,
            RunState::Taken => 1,
            RunState::Abandoned => 2,
            // The highest: whatever word comes later in the slot is greater.
            RunState::Consumed => 3,
        }
    }
}

/// The word of run `run` in `state`. Whole run numbers, so that a late request cannot mistake a
/// later run for its own; one more than the number, so that zeroed memory is the word of no run.
fn word(run: u64, state: RunState) -> u64 {
    (run + 1) << 2 | state.code()
}

/// The states of a rank's last K runs, in whatever memory they lie.
#[derive(Debug)]
pub(crate) struct RunStates<W> {
    words: W,
}

impl<W: Deref<Target = [AtomicU64]>> RunStates<W> {
    /// The number of words is a power of two.
    pub(crate) fn new(words: W) -> Self {
        debug_assert!(words.len().is_power_of_two(), "slots are found by masking");
        RunStates { words }
    }

    #[inline]
    fn at(&self, run: u64) -> &AtomicU64 {
        &self.words[run as usize & (self.words.len() - 1)]
    }

    /// Begins run `run`, as active or as taken by its starter; the caller has seen that the slot's
    /// previous run is consumed.
    #[inline]
    pub(crate) fn begin(&self, run: u64, state: RunState) {
        // Release: pairs with the Acquire in `change`, for a request handed to another thread.
        self.at(run).store(word(run, state), Ordering::Release);
    }

    /// Changes the state of a run; false when it was not in state `from`.
    #[inline]
    pub(crate) fn change(&self, run: u64, from: RunState, to: RunState) -> bool {
        // AcqRel: who takes a run sees what its starter wrote; who sees it consumed sees that its
        // reader has finished.
        self.at(run)
            .compare_exchange(word(run, from), word(run, to), Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Marks a run consumed whose result this caller has taken.
    #[inline]
    pub(crate) fn consume(&self, run: u64) {
        // Release: pairs with the Acquire in `is_past`: the reading of the result lies before.
        self.at(run).store(word(run, RunState::Consumed), Ordering::Release);
    }

    /// Whether this rank has begun run `run`.
    #[inline]
    pub(crate) fn has_begun(&self, run: u64) -> bool {
        // Acquire: pairs with the Release in `begin`.
        self.at(run).load(Ordering::Acquire) >= word(run, RunState::Active)
    }

    /// Whether this rank is done with run `run`: it has consumed it, or begun a later run in its
    /// slot, which it does only when every rank has consumed it.
    #[inline]
    pub(crate) fn is_past(&self, run: u64) -> bool {
        // Acquire: pairs with the Release in `consume`, `begin` and `change`.
        self.at(run).load(Ordering::Acquire) >= word(run, RunState::Consumed)
    }
}

/// What the starting side keeps under its lock: the next run, and how far all ranks are.
#[derive(Debug)]
pub(crate) struct SlotWindow {
    /// Number of the next run to start.
    pub(crate) next: u64,
    /// All runs below are consumed by every rank, as far as was seen.
    pub(crate) consumed_by_all: u64,
}

impl SlotWindow {
    pub(crate) fn new() -> Self {
        SlotWindow { next: 0, consumed_by_all: 0 }
    }

    /// Looks how far all ranks are by now.
    #[inline]
    pub(crate) fn refresh<W: Deref<Target = [AtomicU64]>>(&mut self, ranks: &[RunStates<W>]) {
        while self.consumed_by_all < self.next
            && ranks.iter().all(|rank| rank.is_past(self.consumed_by_all))
        {
            self.consumed_by_all += 1;
        }
    }

    /// Whether the next run may start when `window` runs may be under way at once: what it uses was
    /// used last by a run that every rank has consumed.
    #[inline]
    pub(crate) fn fits(&self, window: u64) -> bool {
        self.next < self.consumed_by_all + window
    }
}
