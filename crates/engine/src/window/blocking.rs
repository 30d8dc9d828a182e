//! Short ways of starting a collective: one for collectives that take no memory and find a slot, and
//! one for blocking collectives. The thread of a blocking collective also fetches the result, before
//! any other operation on the communicator.

use super::{Executor, InflightWindow, RunNumber, SlotRun, StartedRun};
use crate::argument::Argument;
use crate::error::{Error, Outcome};
use crate::protocol::run_state::RunState;

/// Outcome of starting a blocking collective. Two words, so it is returned in registers.
#[derive(Debug)]
pub(crate) enum BlockingStart {
    /// Begun, under this run number.
    Begun(u64),
    /// No slot is free now.
    NoSlot,
    /// Not begun. The next collective gets its number.
    Refused(Box<Error>),
    /// Begun, but failed. Its number is used.
    Failed(Box<Error>),
}

/// An executor of collectives that are short, or blocking.
pub(crate) trait BlockingExecutor: Executor {
    /// Places the inputs of a run that takes no memory from the arena. Every rank has consumed the
    /// previous run of its slot, and the run has not been launched, so no other rank reads them.
    fn place(&self, run: u64, call: &Self::Parameters, arguments: &[Argument<'_>]) -> Outcome;
}

impl<P: BlockingExecutor> InflightWindow<P> {
    /// As [`start`](Self::start), with a short way for a run that takes no memory and finds a slot.
    ///
    /// Always inlined, as [`start_blocking`](Self::start_blocking) is.
    #[inline(always)]
    pub(crate) fn start_short(
        &self,
        sequence: u64,
        call: &P::Parameters,
        arguments: &[Argument<'_>],
    ) -> Outcome<StartedRun<P>> {
        if self.executor.is_large(call) {
            return self.start(sequence, call, arguments);
        }
        // Before the first store to a line that other ranks have read: a clone may count a
        // reference, and a locked instruction waits for all earlier stores.
        let bindings = P::bindings(arguments);
        let record = SlotRun { sequence, call: call.clone(), bindings: bindings.clone() };
        let call = call.clone();
        let mut guard = self.lock();
        let starter = &mut *guard;
        if !starter.queue.is_empty() || !self.ensure_slot(starter, &call) {
            drop(guard);
            return self.start(sequence, &call, arguments);
        }
        let run = starter.window.next;
        // Every rank has consumed the slot's previous run, so its record is free, also if the
        // inputs cannot be placed.
        starter.records[(run & (self.slots - 1)) as usize] = Some(record);
        self.executor.place(run, &call, arguments)?;
        // Under the lock, as in `launch`, so runs of this rank begin in the order of their numbers.
        // The run was never queued, so its request has not been dropped.
        self.own().begin(run, RunState::Active);
        starter.window.next += 1;
        let queued = match self.executor.launch(run, &call) {
            Ok(()) => false,
            Err(error) => {
                self.fail_launch(starter, run, error);
                true
            }
        };
        drop(guard);
        Ok(StartedRun {
            number: RunNumber { run, sequence },
            call,
            bindings,
            queued,
            collected: false,
        })
    }

    /// Starts a collective. The same thread fetches the result with
    /// [`fetch_blocking`](Self::fetch_blocking).
    ///
    /// Always inlined, as is everything that a blocking call runs through unless it waits: the
    /// pattern is a constant where a collective is called, and most of the work on it folds away.
    #[inline(always)]
    pub(crate) fn start_blocking(
        &self,
        sequence: u64,
        call: &P::Parameters,
        arguments: &[Argument<'_>],
    ) -> BlockingStart {
        let takes_memory = self.executor.is_large(call);
        let run = {
            let mut starter = self.lock();
            let starter = &mut *starter;
            if !starter.queue.is_empty() || !self.ensure_slot(starter, call) {
                return BlockingStart::NoSlot;
            }
            let run = starter.window.next;
            if takes_memory && let Err(error) = self.prepare(starter, (call, arguments), None) {
                return BlockingStart::Refused(error);
            }
            self.own().begin(run, RunState::Taken);
            starter.window.next += 1;
            let record = &mut starter.records[(run & (self.slots - 1)) as usize];
            if record.is_some() {
                *record = None;
            }
            run
        };
        // If several threads use the communicator, unlocking waits until all earlier stores are
        // visible. A store to a line that other ranks have read takes as long as the transfer of
        // the line, so the contribution is written after the unlock.
        let placed = if takes_memory { Ok(()) } else { self.executor.place(run, call, arguments) };
        match placed.and_then(|()| self.executor.launch(run, call)) {
            Ok(()) => BlockingStart::Begun(run),
            Err(error) => {
                let bindings = P::bindings(arguments);
                self.abandon_blocking(RunNumber { run, sequence }, call, &bindings);
                BlockingStart::Failed(error)
            }
        }
    }

    /// Abandons a collective that [`start_blocking`](Self::start_blocking) has begun. Its slot is
    /// reused when the collective is complete.
    #[cold]
    pub(crate) fn abandon_blocking(
        &self,
        number: RunNumber,
        call: &P::Parameters,
        bindings: &P::Bindings,
    ) {
        let mut starter = self.lock();
        let sequence = number.sequence;
        // With a record, `retire` finds the run and frees its slot as soon as it is complete.
        let record = SlotRun { sequence, call: call.clone(), bindings: bindings.clone() };
        starter.records[(number.run & (self.slots - 1)) as usize] = Some(record);
        self.own().change(number.run, RunState::Taken, RunState::Abandoned);
    }

    /// Fetches the result of a complete collective started by
    /// [`start_blocking`](Self::start_blocking).
    #[inline(always)]
    pub(crate) fn fetch_blocking(
        &self,
        number: RunNumber,
        call: &P::Parameters,
        bindings: &P::Bindings,
        outputs: &mut [&mut [u8]],
    ) -> Outcome {
        // Taken since its start, so no other thread retires it.
        let outcome = self.executor.collect(number, call, bindings, outputs);
        self.own().consume(number.run);
        outcome
    }
}
