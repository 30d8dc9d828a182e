//! States of numbered runs: run r uses slot r mod K, and a slot is reused only after every rank has
//! consumed its previous run.
//!
//! Every rank has an array of words in the segment, one for each slot, with the number and the
//! state of the slot's run. Consuming a run is one store to the rank's own word. A rank that needs
//! a slot reads the words of all ranks, which costs one line a rank for every eight runs. No other
//! information about free slots is published.

use crate::sync::{AtomicU64, Ordering};
use std::ops::Deref;

/// State of a run on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunState {
    /// Started, or queued for a slot.
    Active,
    /// A thread is fetching the result.
    Taken,
    /// This rank does not need the slot any more.
    Consumed,
    /// The request was dropped; the result is not fetched.
    Abandoned,
}

impl RunState {
    const fn code(self) -> u64 {
        match self {
            RunState::Active => 0,
            RunState::Taken => 1,
            RunState::Abandoned => 2,
            // The largest codes, so that `is_past` and `is_read` are one comparison: every later word
            // of the slot, and no earlier one, is greater or equal.
            RunState::Consumed => 3,
        }
    }
}

/// Returns the word of run `run` in `state`. The word holds the complete run number, so a late
/// request cannot mistake a later run for its own. It holds the number plus one, so zeroed memory
/// is the word of no run.
fn word(run: u64, state: RunState) -> u64 {
    (run + 1) << 2 | state.code()
}

/// The states of a rank's last K runs. Generic in the memory that contains the words.
#[derive(Debug)]
pub(crate) struct RunStates<W> {
    words: W,
}

impl<W: Deref<Target = [AtomicU64]>> RunStates<W> {
    /// Wraps the words of a rank. Their number is a power of two.
    pub(crate) fn new(words: W) -> Self {
        debug_assert!(words.len().is_power_of_two(), "slots are found by masking");
        RunStates { words }
    }

    #[inline]
    fn at(&self, run: u64) -> &AtomicU64 {
        &self.words[run as usize & (self.words.len() - 1)]
    }

    /// Begins run `run`, as active or as taken by its starter. The caller has checked that the
    /// slot's previous run is consumed.
    #[inline]
    pub(crate) fn begin(&self, run: u64, state: RunState) {
        // Release: pairs with the Acquire in `change`, for a request moved to another thread. A
        // plain store suffices: the previous run is consumed, so no thread changes the word.
        self.at(run).store(word(run, state), Ordering::Release);
    }

    /// Changes the state of a run. Returns false if the run was not in state `from`.
    #[inline]
    pub(crate) fn change(&self, run: u64, from: RunState, to: RunState) -> bool {
        // AcqRel: a thread that takes a run sees its starter's writes; a rank that sees the run
        // consumed knows that the reader has finished.
        self.at(run)
            .compare_exchange(word(run, from), word(run, to), Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Marks a run consumed. The caller has taken the run, so no other thread changes the word.
    #[inline]
    pub(crate) fn consume(&self, run: u64) {
        // Release: pairs with the Acquire in `is_past`. All reads of the result happen before it,
        // so the slot's memory can be overwritten after it.
        self.at(run).store(word(run, RunState::Consumed), Ordering::Release);
    }

    /// Returns whether this rank has begun run `run`.
    #[inline]
    pub(crate) fn has_begun(&self, run: u64) -> bool {
        // Acquire: pairs with the Release in `begin`.
        self.at(run).load(Ordering::Acquire) >= word(run, RunState::Active)
    }

    /// Returns whether this rank is past run `run`: it has consumed it, or has begun a later run in
    /// its slot, which requires that every rank has consumed it.
    #[inline]
    pub(crate) fn is_past(&self, run: u64) -> bool {
        // Acquire: pairs with the Release in `consume`, `begin` and `change`.
        self.at(run).load(Ordering::Acquire) >= word(run, RunState::Consumed)
    }

    /// Returns whether this rank reads nothing of run `run` any more: it is past the run, or has
    /// abandoned the result. The rank may still have to arrive and to help the others.
    #[inline]
    pub(crate) fn is_read(&self, run: u64) -> bool {
        // Acquire: as in `is_past`. An abandoned run is not fetched: all changes from `Abandoned`
        // lead to `Consumed`.
        self.at(run).load(Ordering::Acquire) >= word(run, RunState::Abandoned)
    }
}

/// Progress of the starting side, kept under its lock: the next run, and the runs that all ranks
/// have consumed.
#[derive(Debug)]
pub(crate) struct SlotWindow {
    /// Number of the next run to start.
    pub(crate) next: u64,
    /// Every rank has consumed all runs below this number. A lower bound, updated by
    /// [`refresh`](Self::refresh).
    pub(crate) consumed_by_all: u64,
}

impl SlotWindow {
    pub(crate) fn new() -> Self {
        SlotWindow { next: 0, consumed_by_all: 0 }
    }

    /// Updates the lower bound from the ranks' words.
    #[inline]
    pub(crate) fn refresh<W: Deref<Target = [AtomicU64]>>(&mut self, ranks: &[RunStates<W>]) {
        while self.consumed_by_all < self.next
            && ranks.iter().all(|rank| rank.is_past(self.consumed_by_all))
        {
            self.consumed_by_all += 1;
        }
    }

    /// Returns whether the next run may start, in a window of `window` runs: the previous run in its
    /// slot has been consumed by every rank.
    #[inline]
    pub(crate) fn fits(&self, window: u64) -> bool {
        self.next < self.consumed_by_all + window
    }
}
