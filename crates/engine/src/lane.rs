//! Numbered runs of one thing: starting, queueing, completing and retiring them on one rank.
//!
//! A lane has K slots in the segment. Any number of runs may be started: those that find no slot wait in a queue of
//! this process and start in a later call of this rank; a finished run whose result nobody has fetched yet is moved out
//! of its slot, so that starting never waits for a caller to fetch.

use crate::error::Error;
use crate::slots::{RunState, RunStates, Turn};
use shm::completion::Completion;
use shm::handle::MappedSlice;
use shm::segment::Offset;
use shm::sync::{AtomicBool, AtomicU64, Ordering};
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where a user buffer of a run lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// In private memory of its owner.
    Private,
    /// In the segment, at this place.
    Segment(Offset),
}

/// A user buffer at the start of a run.
#[derive(Clone, Copy, Debug)]
pub struct Argument<'a> {
    /// Where it lies.
    pub binding: Binding,
    /// Its bytes, where it is private and read.
    pub data: &'a [u8],
    /// Its length in bytes.
    pub length: u64,
}

impl<'a> Argument<'a> {
    /// A private buffer that the run reads (and may write).
    pub fn input(data: &'a [u8]) -> Self {
        Argument { binding: Binding::Private, data, length: data.len() as u64 }
    }

    /// A private buffer of this length that the run only writes.
    pub fn output(length: u64) -> Self {
        Argument { binding: Binding::Private, data: &[], length }
    }

    /// A buffer in the segment.
    pub fn segment(at: Offset, length: u64) -> Self {
        Argument { binding: Binding::Segment(at), data: &[], length }
    }
}

impl Argument<'_> {
    /// Whether it is what buffer number `buffer` needs: `expected` bytes, and the data where the run reads it.
    #[inline]
    pub(crate) fn check(&self, buffer: usize, expected: u64, read: bool) -> Result<(), Error> {
        let found = match self.binding {
            Binding::Private if read => self.data.len() as u64,
            _ => self.length,
        };
        if found == expected { Ok(()) } else { Err(Error::BufferLength { buffer, expected, found }) }
    }
}

/// Bindings of a run's buffers.
pub(crate) type Bindings = SmallVec<[Binding; 2]>;

/// A rank's run states in the segment.
pub(crate) type SharedStates = RunStates<MappedSlice<AtomicU64>>;

/// What a lane runs.
pub(crate) trait Plan {
    /// What differs from run to run besides the buffers.
    type Call: Clone;
    /// What only the starting side needs.
    type Scratch;

    /// The run states of every rank.
    fn states(&self) -> &[SharedStates];
    fn rank(&self) -> u32;
    /// How many runs may be under way at once, this one included.
    fn window(&self, call: &Self::Call) -> u64;
    fn completion(&self, run: u64, call: &Self::Call) -> (&Completion, u32);
    /// Starts a run whose slot is free. All runs below `everyone` are consumed by every rank.
    fn launch(
        &self,
        scratch: &mut Self::Scratch,
        run: u64,
        everyone: u64,
        call: &Self::Call,
        arguments: &[Argument<'_>],
    ) -> Result<(), Error>;
    /// Takes the results of a complete run to private outputs (by buffer; empty where none is wanted).
    fn collect(
        &self,
        run: u64,
        call: &Self::Call,
        bindings: &[Binding],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), Error>;
    /// Lengths of the outputs to keep for a run that nobody has fetched.
    fn output_lengths(&self, call: &Self::Call, bindings: &[Binding]) -> Vec<usize>;
}

/// A run that was started; the caller's side.
#[derive(Debug)]
pub(crate) struct Run<C> {
    pub(crate) number: u64,
    pub(crate) call: C,
    bindings: Bindings,
    queued: bool,
    collected: bool,
}

impl<C> Run<C> {
    /// Whether the result was fetched.
    pub(crate) fn is_collected(&self) -> bool {
        self.collected
    }

    /// Whether it had to wait for a slot.
    pub(crate) fn was_queued(&self) -> bool {
        self.queued
    }
}

/// A run that waits for a slot.
struct Queued<C> {
    call: C,
    arguments: Vec<(Binding, Vec<u8>, u64)>,
}

/// The starting side, under the lane's lock.
struct Starter<P: Plan> {
    turn: Turn,
    queue: VecDeque<Queued<P::Call>>,
    /// Results moved out of their slots.
    retired: HashMap<u64, Result<Vec<Vec<u8>>, Error>>,
    /// Queued runs that nobody will fetch.
    abandoned: HashSet<u64>,
    /// What was started in each slot last.
    records: Vec<Option<(P::Call, Bindings)>>,
    scratch: P::Scratch,
}

/// Runs of one plan on one rank.
pub(crate) struct Lane<P: Plan> {
    pub(crate) plan: P,
    /// A power of two.
    slots: u64,
    starter: Mutex<Starter<P>>,
    /// Whether runs wait for a slot; a hint that spares looking.
    has_queue: AtomicBool,
}

impl<P: Plan> std::fmt::Debug for Lane<P> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Lane").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl<P: Plan> Lane<P> {
    pub(crate) fn new(plan: P, slots: u64, scratch: P::Scratch) -> Self {
        let starter = Starter {
            turn: Turn::new(),
            queue: VecDeque::new(),
            retired: HashMap::new(),
            abandoned: HashSet::new(),
            records: (0..slots).map(|_| None).collect(),
            scratch,
        };
        Lane { plan, slots, starter: Mutex::new(starter), has_queue: AtomicBool::new(false) }
    }

    /// A panic elsewhere while starting leaves at worst a run that never starts, which the others notice; the lane's own
    /// state is changed in single steps.
    fn lock(&self) -> MutexGuard<'_, Starter<P>> {
        self.starter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a run, now or when a slot is free. Never waits.
    pub(crate) fn start(&self, call: P::Call, arguments: &[Argument<'_>]) -> Result<Run<P::Call>, Error> {
        let mut starter = self.lock();
        let bindings: Bindings = arguments.iter().map(|argument| argument.binding).collect();
        let starter = &mut *starter;
        let number = starter.turn.next + starter.queue.len() as u64;
        let clear = starter.queue.is_empty() || self.flush(starter)?;
        if clear && self.make_room(starter, &call) {
            self.launch(starter, call.clone(), bindings.clone(), arguments)?;
            return Ok(Run { number, call, bindings, queued: false, collected: false });
        }
        let owned = arguments.iter().map(|argument| (argument.binding, argument.data.to_vec(), argument.length));
        self.has_queue.store(true, Ordering::Relaxed);
        starter.queue.push_back(Queued { call: call.clone(), arguments: owned.collect() });
        Ok(Run { number, call, bindings, queued: true, collected: false })
    }

    fn launch(
        &self,
        starter: &mut Starter<P>,
        call: P::Call,
        bindings: Bindings,
        arguments: &[Argument<'_>],
    ) -> Result<(), Error> {
        let run = starter.turn.next;
        self.own().begin(run);
        starter.turn.next += 1;
        self.plan.launch(&mut starter.scratch, run, starter.turn.everyone, &call, arguments)?;
        if starter.abandoned.remove(&run) {
            self.own().change(run, RunState::Active, RunState::Abandoned);
        }
        starter.records[(run & (self.slots - 1)) as usize] = Some((call, bindings));
        Ok(())
    }

    /// The states of this rank's own runs.
    #[inline]
    fn own(&self) -> &SharedStates {
        &self.plan.states()[self.plan.rank() as usize]
    }

    /// Tells whether the next run may start, retiring finished runs of this rank where they are in the way.
    #[inline]
    fn make_room(&self, starter: &mut Starter<P>, call: &P::Call) -> bool {
        let window = self.plan.window(call);
        // Where few may be under way their memory is large, and is best used again as soon as possible.
        if window < self.slots || !starter.turn.fits(window) {
            starter.turn.look(self.plan.states());
        }
        if starter.turn.fits(window) {
            return true;
        }
        self.retire(starter);
        starter.turn.look(self.plan.states());
        starter.turn.fits(window)
    }

    /// Moves the results of this rank's finished, unfetched runs out of their slots.
    #[cold]
    fn retire(&self, starter: &mut Starter<P>) {
        for run in starter.turn.everyone..starter.turn.next {
            let Some((call, bindings)) = &starter.records[(run & (self.slots - 1)) as usize] else { continue };
            let (word, threshold) = self.plan.completion(run, call);
            if !word.reached(threshold) || self.own().change(run, RunState::Abandoned, RunState::Consumed) {
                continue;
            }
            if !self.own().change(run, RunState::Active, RunState::Taken) {
                continue;
            }
            let mut results: Vec<Vec<u8>> =
                self.plan.output_lengths(call, bindings).into_iter().map(|length| vec![0; length]).collect();
            let mut outputs: Vec<&mut [u8]> = results.iter_mut().map(Vec::as_mut_slice).collect();
            let outcome = self.plan.collect(run, call, bindings, &mut outputs);
            starter.retired.insert(run, outcome.map(|()| results));
            self.own().consume(run);
        }
    }

    /// Starts queued runs as far as there are slots; true when none is left.
    fn flush(&self, starter: &mut Starter<P>) -> Result<bool, Error> {
        while let Some(call) = starter.queue.front().map(|queued| queued.call.clone()) {
            if !self.make_room(starter, &call) {
                return Ok(false);
            }
            if let Some(Queued { call, arguments }) = starter.queue.pop_front() {
                let bindings = arguments.iter().map(|(binding, _, _)| *binding).collect();
                let borrowed: SmallVec<[Argument<'_>; 4]> = arguments
                    .iter()
                    .map(|(binding, data, length)| Argument { binding: *binding, data, length: *length })
                    .collect();
                self.launch(starter, call, bindings, &borrowed)?;
            }
        }
        Ok(true)
    }

    /// Starts queued runs as far as there are slots.
    pub(crate) fn advance(&self) -> Result<(), Error> {
        if self.has_queue.load(Ordering::Relaxed) {
            let mut starter = self.lock();
            let is_empty = self.flush(&mut starter)?;
            self.has_queue.store(!is_empty, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether `rank` has begun run `run`.
    pub(crate) fn came(&self, rank: u32, run: u64) -> bool {
        self.plan.states()[rank as usize].has_begun(run)
    }

    /// Whether a run of this rank is under way or waits for a slot.
    pub(crate) fn is_busy(&self) -> bool {
        let starter = self.lock();
        let unfinished = |run: u64| {
            starter.records[(run & (self.slots - 1)) as usize].as_ref().is_some_and(|(call, _)| {
                let (word, threshold) = self.plan.completion(run, call);
                !word.reached(threshold)
            })
        };
        !starter.queue.is_empty() || (starter.turn.everyone..starter.turn.next).any(unfinished)
    }

    /// Changes what only the starting side needs.
    pub(crate) fn with_scratch(&self, change: impl FnOnce(&mut P::Scratch)) {
        change(&mut self.lock().scratch);
    }

    /// Whether the run is complete. One load, unless it had to wait for a slot.
    #[inline]
    pub(crate) fn is_complete(&self, run: &Run<P::Call>) -> bool {
        let (word, threshold) = self.plan.completion(run.number, &run.call);
        self.has_begun(run) && word.reached(threshold)
    }

    /// Whether the run has got its slot. Until then it is not complete, even if all that others do for it is done.
    #[inline]
    pub(crate) fn has_begun(&self, run: &Run<P::Call>) -> bool {
        !run.queued || self.own().has_begun(run.number)
    }

    /// The word and count to wait for.
    pub(crate) fn completion(&self, run: &Run<P::Call>) -> (&Completion, u32) {
        self.plan.completion(run.number, &run.call)
    }

    /// Fetches the results of a complete run.
    #[inline]
    pub(crate) fn collect(&self, run: &mut Run<P::Call>, outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        if std::mem::replace(&mut run.collected, true) {
            return Ok(());
        }
        if self.own().change(run.number, RunState::Active, RunState::Taken) {
            let outcome = self.plan.collect(run.number, &run.call, &run.bindings, outputs);
            self.own().consume(run.number);
            return outcome;
        }
        let kept = self.lock().retired.remove(&run.number);
        for (output, result) in outputs.iter_mut().zip(kept.unwrap_or_else(|| Ok(Vec::new()))?) {
            if output.len() == result.len() {
                output.copy_from_slice(&result);
            }
        }
        Ok(())
    }

    /// Nobody will fetch the results; the slot is free again when the run is complete.
    pub(crate) fn abandon(&self, run: &Run<P::Call>) {
        if run.collected || self.own().change(run.number, RunState::Active, RunState::Abandoned) {
            return;
        }
        let mut starter = self.lock();
        if run.number >= starter.turn.next {
            starter.abandoned.insert(run.number);
        } else {
            starter.retired.remove(&run.number);
        }
    }
}
