//! Runs of a linked program: placing inputs, starting, and fetching results.

use crate::argument::{Argument, Binding};
use crate::context::Wakeup;
use crate::error::{Error, Outcome};
use crate::linked::activation::Activation;
use crate::linked::program::LinkedProgram;
use crate::state::SharedStates;
use crate::window::{Executor, RunNumber};
use goal::graph::Access;
use shm::arena::Arena;
use shm::segment::Offset;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

/// Memory for long private buffers, by slot and buffer, allocated at first use.
#[derive(Debug)]
pub(crate) struct LongStaging {
    arena: Arc<Arena>,
    buffers: Vec<Option<Offset>>,
}

impl LongStaging {
    pub(crate) fn new(arena: Arc<Arena>, program: &LinkedProgram) -> Self {
        let buffers = program.linked(program.rank).schedule.view().buffers().len();
        LongStaging { arena, buffers: vec![None; buffers * program.slots() as usize] }
    }

    /// Frees the buffers of all slots, of which there are `slots`, but those that are used.
    fn free(&mut self, is_used: impl Fn(u32) -> bool, slots: usize) {
        let arena = &self.arena;
        let each = self.buffers.len() / slots;
        for (slot, buffers) in (0..).zip(self.buffers.chunks_mut(each.max(1))) {
            for buffer in buffers.iter_mut().filter(|_| !is_used(slot)) {
                // The memory is from this arena, so the call cannot fail.
                buffer.take().map(|at| arena.free(at).is_ok());
            }
        }
    }

    fn buffer(&mut self, index: usize, bytes: u64) -> Result<Offset, Error> {
        let buffer = &mut self.buffers[index];
        match buffer {
            Some(at) => Ok(*at),
            None => Ok(*buffer.insert(self.arena.allocate(bytes, 64)?)),
        }
    }
}

/// Executor of a linked program on this rank.
#[derive(Debug)]
pub(crate) struct LinkedExecutor {
    pub(crate) program: LinkedProgram,
    wakeup: Wakeup,
    /// Runs in which this rank may still have operations to execute itself.
    active: Mutex<Vec<u64>>,
}

impl LinkedExecutor {
    pub(crate) fn new(program: LinkedProgram, wakeup: Wakeup) -> Self {
        LinkedExecutor { program, wakeup, active: Mutex::default() }
    }

    /// Executes the tasks deferred to this rank in any of its runs. Returns whether there were any.
    /// Returns immediately if another thread of the rank executes them.
    fn execute_deferred(&self) -> Outcome<bool> {
        if !self.program.linked.needs_owner {
            return Ok(false);
        }
        // The queue of tasks has one consumer at a time. A thread that finds the lock taken leaves
        // the tasks to its holder.
        let mut active = match self.active.try_lock() {
            Ok(active) => active,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(false),
        };
        let mut did_any = false;
        for run in active.iter() {
            did_any |=
                Activation::new(&self.program, *run, false, &|rank| self.wakeup.notify(rank))
                    .resume()?;
        }
        // A complete run has no tasks left: each task leads to a sink that the threshold counts.
        active.retain(|run| {
            let (word, threshold) = self.program.completion(*run, self.program.rank);
            !word.reached(threshold)
        });
        Ok(did_any)
    }

    /// Returns whether this rank has no operations to execute itself until it starts another run.
    pub(crate) fn is_idle(&self) -> bool {
        // A held lock means that another thread executes tasks.
        self.active.try_lock().is_ok_and(|active| active.is_empty())
    }

    /// Copies short inputs to the frame and publishes the locations of long buffers. The slot is
    /// free: every rank has consumed its previous run, so no rank accesses the frame.
    fn place_inputs(
        &self,
        staging: &mut LongStaging,
        slot: u32,
        arguments: &[Argument<'_>],
    ) -> Result<(), Error> {
        let program = &self.program;
        let buffers = program.linked(program.rank).schedule.view().buffers();
        for (index, (argument, buffer)) in arguments.iter().zip(buffers).enumerate() {
            let reads = buffer.access != Access::Output as u32;
            match (program.staged(slot, index), argument.binding) {
                (Some(at), Binding::Private) if reads => program.memory.write(at, argument.data)?,
                (Some(at), Binding::Segment(from)) if reads => {
                    program.memory.copy(from, at, buffer.length)?
                }
                (Some(_), _) => {}
                (None, Binding::Segment(at)) => program.bind(slot, index, at),
                (None, Binding::Private) => {
                    let number = slot as usize * buffers.len() + index;
                    let at = staging.buffer(number, buffer.length)?;
                    if reads {
                        program.memory.write(at, argument.data)?;
                    }
                    program.bind(slot, index, at);
                }
            }
        }
        Ok(())
    }
}

/// Returns a range of offsets as indices.
fn indices(range: &Range<u64>) -> Range<usize> {
    range.start as usize..range.end as usize
}

impl Executor for LinkedExecutor {
    type Parameters = ();
    type Bindings = SmallVec<[Binding; 2]>;
    type Scratch = LongStaging;

    fn bindings(arguments: &[Argument<'_>]) -> SmallVec<[Binding; 2]> {
        arguments.iter().map(|argument| argument.binding).collect()
    }

    fn is_large(&self, _call: &()) -> bool {
        // Programs with large frames have few slots, so no run takes memory beyond them.
        false
    }

    fn states(&self) -> &[SharedStates] {
        &self.program.states
    }

    fn window(&self, _call: &()) -> u64 {
        self.program.slots()
    }

    fn rank(&self) -> u32 {
        self.program.rank
    }

    #[inline]
    fn is_complete(&self, run: u64, _call: &()) -> bool {
        let (word, threshold) = self.program.completion(run, self.program.rank);
        word.reached(threshold)
    }

    fn memory_needed(&self, _call: &(), arguments: &[Argument<'_>]) -> u64 {
        let is_long = |index: usize| self.program.staged(0, index).is_none();
        let long = arguments
            .iter()
            .enumerate()
            .filter(|(index, argument)| argument.binding == Binding::Private && is_long(*index));
        long.map(|(_, argument)| argument.length).sum()
    }

    fn release(&self, _staging: &mut LongStaging, _run: u64) {
        // The next attempt uses the buffers that this one has found.
    }

    fn free_idle(&self, staging: &mut LongStaging, active: Range<u64>) {
        let slots = self.program.slots();
        let used = active.map(|run| self.program.slot(run)).collect::<SmallVec<[u32; 8]>>();
        staging.free(|slot| used.contains(&slot), slots as usize);
    }

    fn free_settled(&self, staging: &mut LongStaging, _consumed_by_all: u64) -> bool {
        // In a complete run all messages from and to this rank's buffers have been copied.
        staging.free(|_| false, self.program.slots() as usize);
        true
    }

    fn progress_own(&self) -> Outcome<bool> {
        self.execute_deferred()
    }

    fn prepare(
        &self,
        staging: &mut LongStaging,
        run: u64,
        _consumed_by_all: u64,
        _call: &(),
        arguments: &[Argument<'_>],
    ) -> Outcome {
        Ok(self.place_inputs(staging, self.program.slot(run), arguments)?)
    }

    fn launch(&self, run: u64, _call: &()) -> Outcome {
        // Registered before the start: a task deferred by another rank is then found.
        if self.program.linked.needs_owner {
            let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
            // An earlier run of the slot is complete. Its entry goes, because it would take tasks
            // of this run from the slot's queue.
            active.retain(|other| self.program.slot(*other) != self.program.slot(run));
            active.push(run);
        }
        Activation::new(&self.program, run, true, &|rank| self.wakeup.notify(rank))
            .start()
            .map_err(Box::from)
    }

    fn collect(
        &self,
        number: RunNumber,
        _call: &(),
        bindings: &SmallVec<[Binding; 2]>,
        outputs: &mut [&mut [u8]],
    ) -> Outcome {
        let program = &self.program;
        let slot = program.slot(number.run);
        // `is_complete` has acquired the completion word, so the writes of all ranks to these bytes
        // are visible. They do not change before this rank consumes the run.
        for (index, binding) in bindings.iter().enumerate() {
            let staged = program.staged(slot, index);
            match binding {
                Binding::Private => {
                    let Some(output) = outputs.get_mut(index).filter(|output| !output.is_empty())
                    else {
                        continue;
                    };
                    let from = staged.unwrap_or_else(|| program.bound(slot, index));
                    for range in &program.written[index] {
                        let piece = &mut output[indices(range)];
                        program.memory.read(Offset(from.0 + range.start), piece)?;
                    }
                }
                Binding::Segment(to) => {
                    let Some(from) = staged else { continue };
                    for Range { start, end } in &program.written[index] {
                        let piece = Offset(from.0 + start);
                        program.memory.copy(piece, Offset(to.0 + start), end - start)?;
                    }
                }
            }
        }
        Ok(program.failure(number.run)?)
    }

    fn output_lengths(&self, _call: &(), bindings: &SmallVec<[Binding; 2]>) -> Vec<usize> {
        let buffers = self.program.linked(self.program.rank).schedule.view().buffers();
        let wanted = |binding: &Binding, length: u64| {
            if *binding == Binding::Private { length as usize } else { 0 }
        };
        buffers
            .iter()
            .zip(bindings)
            .map(|(buffer, binding)| wanted(binding, buffer.length))
            .collect()
    }

    fn put_back(&self, _call: &(), buffer: usize, kept: &[u8], output: &mut [u8]) {
        if kept.len() != output.len() {
            return;
        }
        for range in &self.program.written[buffer] {
            output[indices(range)].copy_from_slice(&kept[indices(range)]);
        }
    }
}
