//! The collectives that a window runs, and their runs as requests hold them.

use crate::argument::Argument;
use crate::error::Outcome;
use crate::state::SharedStates;
use std::ops::Range;

/// The kind of collective that a window runs: flat or linked.
pub(crate) trait Executor {
    /// The parameters of a run other than its buffers.
    type Parameters: Clone;
    /// The locations of a run's buffers.
    type Bindings: Clone + std::fmt::Debug;
    /// State of the starting side, protected by the window's lock.
    type Scratch;

    /// Returns the locations of the buffers.
    fn bindings(arguments: &[Argument<'_>]) -> Self::Bindings;

    /// Returns the run states of every rank.
    fn states(&self) -> &[SharedStates];
    fn rank(&self) -> u32;
    /// Returns whether a run takes memory from the arena.
    fn is_large(&self, call: &Self::Parameters) -> bool;
    /// Returns the number of runs that may be started at once, this one included.
    fn window(&self, call: &Self::Parameters) -> u64;
    fn is_complete(&self, run: u64, call: &Self::Parameters) -> bool;
    /// Returns the bytes of the arena that [`prepare`](Self::prepare) takes at most.
    fn memory_needed(&self, call: &Self::Parameters, arguments: &[Argument<'_>]) -> u64;
    /// Places the inputs of a run. The run's slot is free. Memory is allocated here: after an error
    /// the run has not begun. Every rank has consumed all runs below `consumed_by_all`.
    fn prepare(
        &self,
        scratch: &mut Self::Scratch,
        run: u64,
        consumed_by_all: u64,
        call: &Self::Parameters,
        arguments: &[Argument<'_>],
    ) -> Outcome;
    /// Frees the memory of a run that could not be prepared.
    fn release(&self, scratch: &mut Self::Scratch, run: u64);
    /// Frees the memory of all runs but the active ones. Every rank has consumed the runs before
    /// them.
    fn free_idle(&self, scratch: &mut Self::Scratch, active: Range<u64>);
    /// Frees the memory that no rank uses any more, after this rank has consumed all its runs and
    /// every rank the runs below `consumed_by_all`. Returns whether none is left.
    fn free_settled(&self, scratch: &mut Self::Scratch, consumed_by_all: u64) -> bool;
    /// Executes the operations that only this rank may execute. Returns whether there were any.
    fn progress_own(&self) -> Outcome<bool> {
        Ok(false)
    }
    /// Starts a prepared run.
    fn launch(&self, run: u64, call: &Self::Parameters) -> Outcome;
    /// Copies the results of a complete run to private outputs, by buffer; empty slices for outputs
    /// that are not wanted.
    fn collect(
        &self,
        run: RunNumber,
        call: &Self::Parameters,
        bindings: &Self::Bindings,
        outputs: &mut [&mut [u8]],
    ) -> Outcome;
    /// Returns the lengths of the outputs to store for a retired run.
    fn output_lengths(&self, call: &Self::Parameters, bindings: &Self::Bindings) -> Vec<usize>;
    /// Copies the stored bytes that the run has written to an output.
    fn put_back(&self, call: &Self::Parameters, buffer: usize, kept: &[u8], output: &mut [u8]);
}

/// The two numbers of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunNumber {
    /// Number within its window.
    pub(crate) run: u64,
    /// Sequence number of the collective on its communicator.
    pub(crate) sequence: u64,
}

/// A started run, as its request holds it.
#[derive(Debug)]
pub(crate) struct StartedRun<P: Executor> {
    pub(crate) number: RunNumber,
    pub(crate) call: P::Parameters,
    pub(super) bindings: P::Bindings,
    pub(super) queued: bool,
    pub(super) collected: bool,
}

impl<P: Executor> StartedRun<P> {
    /// Returns whether the result has been fetched.
    pub(crate) fn is_collected(&self) -> bool {
        self.collected
    }

    /// Moves the run to a new value; this value then counts as fetched.
    pub(crate) fn transfer(&mut self) -> Self {
        let collected = std::mem::replace(&mut self.collected, true);
        let number = self.number;
        let call = self.call.clone();
        let bindings = self.bindings.clone();
        StartedRun { number, call, bindings, queued: self.queued, collected }
    }

    /// Returns whether the run had to wait for a slot.
    pub(crate) fn was_queued(&self) -> bool {
        self.queued
    }
}
