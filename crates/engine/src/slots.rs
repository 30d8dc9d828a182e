//! Numbered runs and the slots they use: run r uses slot r mod K, and a slot is used again only when every rank has
//! consumed the run before.
//!
//! A rank's own side is a ring of words, one a slot, that say whose turn it is and in which state; what others need to
//! know is one number, how many runs this rank has consumed without a gap. Consuming is one exchange on the rank's own
//! word; the number is published by the next start, so that a blocking call writes no line that others read.

use crate::sync::{AtomicU64, Ordering};

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
            RunState::Consumed => 2,
            RunState::Abandoned => 3,
        }
    }
}

/// The word of run `run` in `state`. Whole run numbers, so that a late request cannot mistake a later run for its own.
fn word(run: u64, state: RunState) -> u64 {
    run << 2 | state.code()
}

/// The states of a rank's last K runs.
#[derive(Debug)]
pub(crate) struct RunStates {
    words: Box<[AtomicU64]>,
}

impl RunStates {
    pub(crate) fn new(slots: u64) -> Self {
        // Before run r there was run r − K, which nobody started: it counts as consumed.
        RunStates { words: (0..slots).map(|_| AtomicU64::new(u64::MAX)).collect() }
    }

    fn at(&self, run: u64) -> &AtomicU64 {
        &self.words[(run % self.words.len() as u64) as usize]
    }

    /// Begins run `run`; the caller has seen that the slot's previous run is consumed.
    #[inline]
    pub(crate) fn begin(&self, run: u64) {
        // Release: pairs with the Acquire in `change`, for a request handed to another thread.
        self.at(run).store(word(run, RunState::Active), Ordering::Release);
    }

    /// Changes the state of a run; false when it was not in state `from`.
    #[inline]
    pub(crate) fn change(&self, run: u64, from: RunState, to: RunState) -> bool {
        // AcqRel: who takes a run sees what its starter wrote; who sees it consumed sees that its reader has finished.
        self.at(run).compare_exchange(word(run, from), word(run, to), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Marks a run consumed whose result this caller has taken.
    #[inline]
    pub(crate) fn consume(&self, run: u64) {
        // Release: pairs with the Acquire in `is`: the reading of the result lies before.
        self.at(run).store(word(run, RunState::Consumed), Ordering::Release);
    }

    /// Whether run `run` is in this state.
    #[inline]
    pub(crate) fn is(&self, run: u64, state: RunState) -> bool {
        // Acquire: pairs with the Release in `consume` and `change`.
        self.at(run).load(Ordering::Acquire) == word(run, state)
    }
}

/// What the starting side keeps under its lock: the next run, how far consumption goes, the slowest rank.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Number of the next run to start.
    pub(crate) next: u64,
    /// All own runs below are consumed.
    pub(crate) consumed: u64,
    /// All runs below are consumed by every rank, as far as was seen.
    pub(crate) everyone: u64,
    slots: u64,
}

impl Turn {
    pub(crate) fn new(slots: u64) -> Self {
        Turn { next: 0, consumed: 0, everyone: 0, slots }
    }

    /// Moves `consumed` over every run in a row that is done with. `finished` tells whether an abandoned run has
    /// completed, so that its slot is really idle. True when it moved.
    pub(crate) fn advance(&mut self, states: &RunStates, mut finished: impl FnMut(u64) -> bool) -> bool {
        let before = self.consumed;
        while self.consumed < self.next {
            let run = self.consumed;
            let done = states.is(run, RunState::Consumed) || (states.is(run, RunState::Abandoned) && finished(run));
            if !done {
                break;
            }
            self.consumed += 1;
        }
        self.consumed != before
    }

    /// Whether run `next` may use its slot. `slowest` is asked only when what was seen before does not settle it.
    #[inline]
    pub(crate) fn may_start(&mut self, slowest: impl FnOnce() -> u64) -> bool {
        if self.next < self.everyone + self.slots {
            return true;
        }
        self.everyone = self.everyone.max(slowest());
        self.next < self.everyone + self.slots
    }
}
