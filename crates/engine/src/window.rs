//! Numbered runs on one rank: starting, queueing, completing and retiring them.
//!
//! A window has K slots in the segment. A program may start any number of runs: runs without a slot
//! wait in a queue of this process and start in a later call of this rank. The result of a finished
//! run that has not been fetched is moved out of its slot when the slot is needed. Starting a run
//! therefore never waits for a fetch.

pub(crate) mod blocking;
mod executor;
mod of_request;
pub(crate) mod queue;

use crate::argument::Argument;
use crate::error::{Error, Outcome};
use crate::memory::{Pending, RunMemory, Turn};
use crate::protocol::run_state::{RunState, SlotWindow};
use crate::state::SharedStates;
use queue::{QueuedRun, RunQueue};
use shm::biased_mutex::{BiasedGuard, BiasedMutex};
use shm::sync::{AtomicBool, Ordering};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use executor::{Executor, RunNumber, StartedRun};

/// The last run that a request started in a slot.
struct SlotRun<P: Executor> {
    sequence: u64,
    call: P::Parameters,
    bindings: P::Bindings,
}

/// The starting side, protected by the window's lock.
struct Starter<P: Executor> {
    window: SlotWindow,
    queue: RunQueue<P>,
    /// Results moved out of their slots.
    retired: HashMap<u64, Outcome<Vec<Vec<u8>>>>,
    /// The last run in each slot; `None` if a blocking call fetches the result itself.
    records: Vec<Option<SlotRun<P>>>,
    scratch: P::Scratch,
}

impl<P: Executor> Starter<P> {
    fn new(slots: u64, scratch: P::Scratch, queue: RunQueue<P>) -> Self {
        Starter {
            window: SlotWindow::new(),
            queue,
            retired: HashMap::new(),
            records: (0..slots).map(|_| None).collect(),
            scratch,
        }
    }
}

/// The runs of one executor on one rank.
pub(crate) struct InflightWindow<P: Executor> {
    pub(crate) executor: P,
    memory: Arc<RunMemory>,
    /// A power of two.
    slots: u64,
    starter: BiasedMutex<Starter<P>>,
    /// True if runs wait for a slot. A hint that avoids taking the lock.
    has_queue: AtomicBool,
}

impl<P: Executor> std::fmt::Debug for InflightWindow<P> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("InflightWindow").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl<P: Executor> InflightWindow<P> {
    pub(crate) fn new(
        (executor, memory): (P, &Arc<RunMemory>),
        slots: u64,
        scratch: P::Scratch,
    ) -> Self {
        InflightWindow::with_queue((executor, memory), slots, scratch, RunQueue::default())
    }

    /// Returns a window with first runs that have been started already and wait in `queue`.
    pub(crate) fn with_queue(
        (executor, memory): (P, &Arc<RunMemory>),
        slots: u64,
        scratch: P::Scratch,
        queue: RunQueue<P>,
    ) -> Self {
        let has_queue = AtomicBool::new(!queue.is_empty());
        let starter = Starter::new(slots, scratch, queue);
        let memory = Arc::clone(memory);
        InflightWindow { executor, memory, slots, starter: BiasedMutex::new(starter), has_queue }
    }

    /// Locks the starting side. A panic during a start leaves at worst a run that never starts,
    /// which the other ranks detect; each change of the window's own state is a single step.
    #[inline(always)]
    fn lock(&self) -> BiasedGuard<'_, Starter<P>> {
        self.starter.lock()
    }

    /// Starts a run, now or when there are a slot and memory. Never waits.
    #[inline]
    pub(crate) fn start(
        &self,
        sequence: u64,
        call: &P::Parameters,
        arguments: &[Argument<'_>],
    ) -> Outcome<StartedRun<P>> {
        let mut starter = self.lock();
        let starter = &mut *starter;
        // Queued runs begin before this one, in the order of their numbers: the numbers of a rank's
        // runs must match the other ranks' numbers of the same collectives. The sum does not change
        // while queued runs begin.
        let run = starter.window.next + starter.queue.len();
        let number = RunNumber { run, sequence };
        let clear = starter.queue.is_empty() || self.start_queued(starter).unwrap_or(false);
        let is_short = if clear && self.ensure_slot(starter, call) {
            match self.launch(starter, sequence, (call, arguments), None) {
                Ok(begun) => {
                    let bindings = P::bindings(arguments);
                    let call = call.clone();
                    let queued = !begun;
                    return Ok(StartedRun { number, call, bindings, queued, collected: false });
                }
                Err(error) if error.is_shortage() => true,
                Err(error) => return Err(error),
            }
        } else {
            false
        };
        let needed = self.executor.memory_needed(call, arguments);
        let turn = (needed > 0).then(|| self.memory.enqueue(needed));
        // Set under the lock. It may stay set after the queue has become empty, never the reverse.
        self.has_queue.store(true, Ordering::Relaxed);
        let started = starter.queue.push(number, call, arguments, turn);
        if is_short {
            self.memory.record_shortage();
        }
        Ok(started)
    }

    /// Places the inputs of the next run. If the run has waited for memory, it is its turn. After an
    /// error the run has not begun, and the next one gets its number.
    #[inline]
    fn prepare(
        &self,
        starter: &mut Starter<P>,
        (call, arguments): (&P::Parameters, &[Argument<'_>]),
        turn: Option<&Turn>,
    ) -> Outcome {
        let needed = self.executor.memory_needed(call, arguments);
        if needed > 0 && !self.memory.admits(turn) {
            return Err(self.memory.shortage(needed).into());
        }
        let run = starter.window.next;
        let consumed = starter.window.consumed_by_all;
        loop {
            let scratch = &mut starter.scratch;
            match self.executor.prepare(scratch, run, consumed, call, arguments) {
                Err(error) if error.is_shortage() => {
                    self.executor.release(scratch, run);
                    // The reserve is released once, so the loop ends.
                    if !self.memory.release_reserve(turn) {
                        return Err(error);
                    }
                }
                outcome => return outcome,
            }
        }
    }

    /// Starts the next run. Returns false if it failed after it had begun; its error is then stored
    /// with the results.
    #[inline]
    fn launch(
        &self,
        starter: &mut Starter<P>,
        sequence: u64,
        (call, arguments): (&P::Parameters, &[Argument<'_>]),
        turn: Option<&Turn>,
    ) -> Outcome<bool> {
        let run = starter.window.next;
        self.prepare(starter, (call, arguments), turn)?;
        // The number is used only now, so a failure above leaves it to the next run. The run states
        // are published under the lock, so runs of this rank begin in the order of their numbers.
        self.own().begin(run, RunState::Active);
        starter.window.next += 1;
        // Every rank has consumed the slot's previous run, so its record is free.
        let record = SlotRun { sequence, call: call.clone(), bindings: P::bindings(arguments) };
        starter.records[(run & (self.slots - 1)) as usize] = Some(record);
        // The request of a queued run may have been dropped before the run had a slot. The run
        // still starts, because the other ranks need this rank's part.
        if starter.queue.take_abandoned(run) {
            self.own().change(run, RunState::Active, RunState::Abandoned);
        }
        match self.executor.launch(run, call) {
            Ok(()) => Ok(true),
            Err(error) => {
                self.fail_launch(starter, run, error);
                Ok(false)
            }
        }
    }

    /// Stores the error of a run that failed after it had begun.
    #[cold]
    fn fail_launch(&self, starter: &mut Starter<P>, run: u64, error: Box<Error>) {
        // The number is used, because the other ranks count it. Other ranks may still work on the
        // run, so its slot is not free yet.
        self.own().change(run, RunState::Active, RunState::Abandoned);
        starter.retired.insert(run, Err(error));
    }

    /// Returns this rank's own run states.
    #[inline]
    fn own(&self) -> &SharedStates {
        &self.executor.states()[self.executor.rank() as usize]
    }

    /// Returns whether the next run may start. Retires finished runs of this rank if they occupy
    /// its slot.
    #[inline(always)]
    fn ensure_slot(&self, starter: &mut Starter<P>, call: &P::Parameters) -> bool {
        let window = self.executor.window(call);
        // For large runs, refresh first: the more runs are consumed, the more memory can be reused.
        (starter.window.fits(window) && !self.executor.is_large(call))
            || self.free_slot(starter, window)
    }

    /// Finds a slot that all ranks have left, for a window of this many runs.
    fn free_slot(&self, starter: &mut Starter<P>, window: u64) -> bool {
        starter.window.refresh(self.executor.states());
        if starter.window.fits(window) {
            return true;
        }
        // Results that this rank has not fetched may occupy the slot. Other ranks' unfetched
        // results are moved by their own later calls. Slots become free in order: behind a run that
        // stays, no result has to be moved now.
        if !self.can_retire(starter, starter.window.consumed_by_all) {
            return false;
        }
        self.retire(starter);
        starter.window.refresh(self.executor.states());
        starter.window.fits(window)
    }

    /// Returns whether [`retire`](Self::retire) can take a run of this rank out of its slot.
    fn can_retire(&self, starter: &Starter<P>, run: u64) -> bool {
        let record = starter.records[(run & (self.slots - 1)) as usize].as_ref();
        let is_complete = |record: &SlotRun<P>| self.executor.is_complete(run, &record.call);
        !self.own().is_past(run) && record.is_some_and(is_complete)
    }

    /// Moves the results of this rank's finished, unfetched runs out of their slots.
    #[cold]
    fn retire(&self, starter: &mut Starter<P>) {
        for run in starter.window.consumed_by_all..starter.window.next {
            let Some(record) = &starter.records[(run & (self.slots - 1)) as usize] else {
                continue;
            };
            let SlotRun { sequence, call, bindings } = record;
            if !self.executor.is_complete(run, call)
                || self.own().change(run, RunState::Abandoned, RunState::Consumed)
            {
                continue;
            }
            // The change excludes a thread that collects or pins the run at the same time: exactly
            // one of the two takes it.
            if !self.own().change(run, RunState::Active, RunState::Taken) {
                continue;
            }
            let mut results: Vec<Vec<u8>> = self
                .executor
                .output_lengths(call, bindings)
                .into_iter()
                .map(|length| vec![0; length])
                .collect();
            let mut outputs: Vec<&mut [u8]> = results.iter_mut().map(Vec::as_mut_slice).collect();
            // Fetch before the slot is released below; afterwards other ranks may overwrite it.
            let number = RunNumber { run, sequence: *sequence };
            let outcome = self.executor.collect(number, call, bindings, &mut outputs);
            starter.retired.insert(run, outcome.map(|()| results));
            self.own().consume(run);
        }
    }

    /// Starts queued runs while there are slots. Returns true if the queue is empty. An error
    /// states why the next run, which stays first in the queue, cannot start now.
    fn start_queued(&self, starter: &mut Starter<P>) -> Outcome<bool> {
        while let Some(call) = starter.queue.runs.front().map(|queued| queued.call.clone()) {
            if !self.ensure_slot(starter, &call) {
                return Ok(false);
            }
            // Removed before the launch: the run's number is then the window's next one, and no
            // other thread sees the gap, because the lock is held.
            if let Some(queued) = starter.queue.runs.pop_front()
                && let Err(error) = self.launch_queued(starter, &queued)
            {
                // A later call may find more free memory.
                starter.queue.runs.push_front(queued);
                if error.is_shortage() {
                    self.memory.record_shortage();
                }
                return Err(error);
            }
        }
        Ok(true)
    }

    fn launch_queued(
        &self,
        starter: &mut Starter<P>,
        queued: &QueuedRun<P::Parameters>,
    ) -> Outcome<bool> {
        let turn = queued.turn.as_ref();
        self.launch(starter, queued.sequence, (&queued.call, &queued.arguments()), turn)
    }

    /// Moves the results of finished runs out of their slots, and frees the memory that no rank
    /// uses any more. Returns what the runs that are left wait for. `is_blocked` returns whether a
    /// rank waits for memory itself.
    #[cold]
    pub(crate) fn reclaim(&self, is_blocked: impl Fn(u32) -> bool) -> Pending {
        let mut starter = self.lock();
        let starter = &mut *starter;
        let active = self.retire_and_free(starter);
        let first = active.start;
        let pending = active.map(|run| match self.pending(run, &is_blocked) {
            // Consumed by all since the refresh: the next call frees its memory. Behind a run that
            // is not, the memory stays until that one is consumed.
            Pending::Nothing if run == first => Pending::Awaited,
            pending => pending,
        });
        pending.max().unwrap_or(Pending::Nothing)
    }

    /// Moves the results of finished runs out of their slots, and frees memory. Returns the runs
    /// that not every rank has consumed.
    fn retire_and_free(&self, starter: &mut Starter<P>) -> Range<u64> {
        starter.window.refresh(self.executor.states());
        self.retire(starter);
        starter.window.refresh(self.executor.states());
        let active = starter.window.consumed_by_all..starter.window.next;
        self.executor.free_idle(&mut starter.scratch, active.clone());
        active
    }

    /// Returns what a begun run of this rank waits for.
    fn pending(&self, run: u64, is_blocked: impl Fn(u32) -> bool) -> Pending {
        let ranks = 0..self.executor.states().len() as u32;
        if ranks.clone().all(|rank| self.arrived(rank, run)) {
            // A thread of this rank that works on the result is not blocked.
            let is_blocked = |rank| rank != self.executor.rank() && is_blocked(rank);
            let is_past = |rank: u32| self.executor.states()[rank as usize].is_past(run);
            return Pending::on(ranks.filter(|rank| !is_past(*rank)), is_blocked);
        }
        Pending::on(ranks.filter(|rank| !self.arrived(*rank, run)), is_blocked)
    }

    /// Returns whether runs wait for a slot, as of the last [`advance`](Self::advance).
    pub(crate) fn has_queue(&self) -> bool {
        // Relaxed: the flag is a hint; the queue itself is protected by the lock.
        self.has_queue.load(Ordering::Relaxed)
    }

    /// Starts queued runs while there are slots and memory.
    pub(crate) fn advance(&self) {
        // Relaxed: a stale `false` leaves the queue to the next call of this rank, and a stale
        // `true` costs one lock.
        if self.has_queue.load(Ordering::Relaxed) {
            let mut starter = self.lock();
            let is_empty = self.start_queued(&mut starter).unwrap_or(false);
            self.has_queue.store(!is_empty, Ordering::Relaxed);
        }
    }

    /// As [`advance`](Self::advance), then executes the operations that only this rank may execute.
    /// Returns whether there were any.
    pub(crate) fn advance_own(&self) -> Outcome<bool> {
        self.advance();
        self.executor.progress_own()
    }

    /// Returns whether `rank` has begun run `run`.
    pub(crate) fn arrived(&self, rank: u32, run: u64) -> bool {
        self.executor.states()[rank as usize].has_begun(run)
    }

    /// Returns whether `rank` reads the contribution of this rank to run `run` no more. For runs in
    /// which every rank reads for itself: chunks are also reduced for an abandoned result.
    pub(crate) fn is_read(&self, rank: u32, run: u64) -> bool {
        rank == self.executor.rank() || self.executor.states()[rank as usize].is_read(run)
    }

    /// Moves the runs on that no request uses any more, as far as this rank can. Returns whether
    /// other ranks still need something: its part in a run, or memory that they have not read.
    pub(crate) fn is_needed(&self) -> bool {
        let mut starter = self.lock();
        let starter = &mut *starter;
        // A queued run that fails for lack of memory is started by a later call.
        let have_begun = self.start_queued(starter).unwrap_or(false);
        self.has_queue.store(!have_begun, Ordering::Relaxed);
        let active = self.retire_and_free(starter);
        // Complete runs are past now. Any other may need operations of this rank.
        if !have_begun || active.clone().any(|run| !self.own().is_past(run)) {
            return true;
        }
        let has_no_memory = self.executor.free_settled(&mut starter.scratch, active.start);
        !has_no_memory && !active.is_empty()
    }

    /// Moves the runs to a window with this executor. Leaves a window without runs.
    pub(crate) fn leave(&mut self, executor: P, scratch: P::Scratch) -> Self {
        let slots = self.slots;
        let left = Starter::new(slots, scratch, RunQueue::default());
        let starter = std::mem::replace(self.starter.get_mut(), left);
        let has_queue = AtomicBool::new(self.has_queue());
        let memory = Arc::clone(&self.memory);
        InflightWindow { executor, memory, slots, starter: BiasedMutex::new(starter), has_queue }
    }
}
