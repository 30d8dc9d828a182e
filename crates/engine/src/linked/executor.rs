//! Runs of a linked program: taking buffers in, starting, giving results out.

use crate::argument::{Argument, Binding};
use crate::error::{Error, Outcome};
use crate::linked::activation::Activation;
use crate::linked::program::Program;
use crate::window::{Executor, RunNumber, SharedStates};
use goal::graph::Access;
use shm::arena::Arena;
use shm::segment::Offset;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, PoisonError};

/// Memory for long private buffers, by slot and buffer, taken when first needed.
#[derive(Debug)]
pub(crate) struct LongStaging {
    arena: Arc<Arena>,
    rooms: Vec<Option<Offset>>,
}

impl LongStaging {
    pub(crate) fn new(arena: Arc<Arena>, program: &Program) -> Self {
        let buffers = program.linked(program.rank).staging.len();
        LongStaging { arena, rooms: vec![None; buffers * program.linked.slots as usize] }
    }

    /// Gives the memory up for good: others may still copy into it.
    pub(crate) fn forget(&mut self) {
        self.rooms.clear();
    }

    fn room(
        &mut self,
        slot: usize,
        buffers: usize,
        buffer: usize,
        bytes: u64,
    ) -> Result<Offset, Error> {
        let room = &mut self.rooms[slot * buffers + buffer];
        match room {
            Some(at) => Ok(*at),
            None => Ok(*room.insert(self.arena.allocate(bytes, 64)?)),
        }
    }
}

impl Drop for LongStaging {
    fn drop(&mut self) {
        for at in self.rooms.iter().flatten() {
            // The place arrived from this arena, so that freeing it cannot fail.
            let _ = self.arena.free(*at);
        }
    }
}

/// A linked program with what runs it on this rank.
#[derive(Debug)]
pub(crate) struct LinkedExecutor {
    pub(crate) program: Program,
    wakeup: Wakeup,
    /// Runs of which this rank may still have operations to execute itself.
    active: Mutex<Vec<u64>>,
}

/// Tells ranks that there is something for them to do or to see.
#[derive(Clone, Debug)]
pub(crate) struct Wakeup {
    /// By rank of the communicator.
    pub(crate) words: Arc<Vec<shm::mapped::Mapped<crate::node::WakeupLine>>>,
}

impl Wakeup {
    fn notify(&self, rank: u32) {
        self.words[rank as usize].events.add(1);
    }
}

impl LinkedExecutor {
    pub(crate) fn new(program: Program, wakeup: Wakeup) -> Self {
        LinkedExecutor { program, wakeup, active: Mutex::default() }
    }

    /// Does what was left for this rank in any of its runs; true when there was anything. Another
    /// thread that is at it already does it for this one too.
    pub(crate) fn progress_own(&self) -> Result<bool, Error> {
        if !self.program.linked.needs_owner {
            return Ok(false);
        }
        let mut active = match self.active.try_lock() {
            Ok(active) => active,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return Ok(false),
        };
        let mut did_any = false;
        for run in active.iter() {
            did_any |=
                Activation::new(&self.program, *run, false, &|rank| self.wakeup.notify(rank))
                    .resume()?;
        }
        active.retain(|run| {
            let (word, threshold) = self.program.completion(*run, self.program.rank);
            !word.reached(threshold)
        });
        Ok(did_any)
    }

    /// Whether this rank has no operations to execute itself until it starts another run.
    pub(crate) fn is_idle(&self) -> bool {
        // Who holds the lock has found something.
        self.active.try_lock().is_ok_and(|active| active.is_empty())
    }

    fn take_in(
        &self,
        rooms: &mut LongStaging,
        slot: u32,
        arguments: &[Argument<'_>],
    ) -> Result<(), Error> {
        let program = &self.program;
        let buffers = program.linked(program.rank).schedule.view().buffers();
        for (index, (argument, buffer)) in arguments.iter().zip(buffers).enumerate() {
            let reads = buffer.access != Access::Output as u32;
            let staged = program.staged(slot, index);
            match (staged, argument.binding) {
                (Some(at), Binding::Private) if reads => program.memory.write(at, argument.data)?,
                (Some(at), Binding::Segment(from)) if reads => {
                    program.memory.copy(from, at, buffer.length)?
                }
                (Some(_), _) => {}
                (None, Binding::Segment(at)) => program.bind(slot, index, at),
                (None, Binding::Private) => {
                    let at = rooms.room(slot as usize, buffers.len(), index, buffer.length)?;
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

impl Executor for LinkedExecutor {
    type Operation = ();
    type Bindings = SmallVec<[Binding; 2]>;
    type Scratch = LongStaging;

    fn bindings(arguments: &[Argument<'_>]) -> SmallVec<[Binding; 2]> {
        arguments.iter().map(|argument| argument.binding).collect()
    }

    fn is_large(&self, _call: &()) -> bool {
        // Slots with large frames are few; see `linking`.
        false
    }

    fn states(&self) -> &[SharedStates] {
        &self.program.states
    }

    fn window(&self, _call: &()) -> u64 {
        self.program.linked.slots
    }

    fn rank(&self) -> u32 {
        self.program.rank
    }

    #[inline]
    fn is_complete(&self, run: u64, _call: &()) -> bool {
        let (word, threshold) = self.program.completion(run, self.program.rank);
        word.reached(threshold)
    }

    fn prepare(
        &self,
        rooms: &mut LongStaging,
        run: u64,
        _everyone: u64,
        _call: &(),
        arguments: &[Argument<'_>],
    ) -> Outcome {
        Ok(self.take_in(rooms, self.program.slot(run), arguments)?)
    }

    fn launch(&self, run: u64, _call: &()) -> Outcome {
        if self.program.linked.needs_owner {
            let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
            // An earlier run of the slot is complete; its entry must not take the work of this one
            // for its own.
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
        let (program, run) = (&self.program, number.run);
        let (slot, own) = (program.slot(run), program.linked(program.rank));
        for (index, binding) in bindings.iter().enumerate() {
            let staged = program.staged(slot, index);
            match binding {
                Binding::Private => {
                    let Some(output) = outputs.get_mut(index).filter(|output| !output.is_empty())
                    else {
                        continue;
                    };
                    let from = staged.unwrap_or_else(|| program.bound(slot, index));
                    for (at, length) in &own.written[index] {
                        let piece = &mut output[*at as usize..(at + length) as usize];
                        program.memory.read(Offset(from.0 + at), piece)?;
                    }
                }
                Binding::Segment(to) => {
                    let Some(from) = staged else { continue };
                    for (at, length) in &own.written[index] {
                        program.memory.copy(Offset(from.0 + at), Offset(to.0 + at), *length)?;
                    }
                }
            }
        }
        Ok(program.failure(run)?)
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
        for (at, length) in &self.program.linked(self.program.rank).written[buffer] {
            let piece = *at as usize..(at + length) as usize;
            output[piece.clone()].copy_from_slice(&kept[piece]);
        }
    }
}
