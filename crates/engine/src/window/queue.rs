//! Runs of this rank that have been started and wait for a slot, or for the memory of their window.

use super::executor::{Executor, RunNumber, StartedRun};
use crate::argument::{Argument, Binding};
use crate::memory::Turn;
use smallvec::SmallVec;
use std::collections::{HashSet, VecDeque};

/// A run that waits.
pub(super) struct QueuedRun<C> {
    pub(super) sequence: u64,
    pub(super) call: C,
    arguments: Vec<(Binding, Vec<u8>, u64)>,
    /// Its turn at the memory, if it needs some. Ends when the run leaves the queue.
    pub(super) turn: Option<Turn>,
}

impl<C> QueuedRun<C> {
    /// Returns the arguments of the start.
    pub(super) fn arguments(&self) -> SmallVec<[Argument<'_>; 4]> {
        self.arguments
            .iter()
            .map(|(binding, data, length)| Argument { binding: *binding, data, length: *length })
            .collect()
    }
}

/// The waiting runs, in the order of their numbers.
pub(crate) struct RunQueue<P: Executor> {
    pub(super) runs: VecDeque<QueuedRun<P::Parameters>>,
    /// Numbers of waiting runs with dropped requests.
    abandoned: HashSet<u64>,
}

impl<P: Executor> std::fmt::Debug for RunQueue<P> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RunQueue").field("runs", &self.runs.len()).finish_non_exhaustive()
    }
}

impl<P: Executor> Default for RunQueue<P> {
    fn default() -> Self {
        RunQueue { runs: VecDeque::new(), abandoned: HashSet::new() }
    }
}

impl<P: Executor> RunQueue<P> {
    /// Appends run `run` of the window.
    #[cold]
    pub(crate) fn push(
        &mut self,
        number: RunNumber,
        call: &P::Parameters,
        arguments: &[Argument<'_>],
        turn: Option<Turn>,
    ) -> StartedRun<P> {
        // The caller may change its buffers after the start returns, so private bytes are copied.
        let owned = arguments
            .iter()
            .map(|argument| (argument.binding, argument.data.to_vec(), argument.length));
        self.runs.push_back(QueuedRun {
            sequence: number.sequence,
            call: call.clone(),
            arguments: owned.collect(),
            turn,
        });
        let bindings = P::bindings(arguments);
        StartedRun { number, call: call.clone(), bindings, queued: true, collected: false }
    }

    /// Returns the number of waiting runs.
    pub(crate) fn len(&self) -> u64 {
        self.runs.len() as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Records that the request of a waiting run has been dropped.
    pub(crate) fn abandon(&mut self, run: u64) {
        self.abandoned.insert(run);
    }

    /// Returns whether the request of a run that starts now was dropped while the run waited.
    pub(super) fn take_abandoned(&mut self, run: u64) -> bool {
        !self.abandoned.is_empty() && self.abandoned.remove(&run)
    }
}
