//! Blocking collectives: the thread that starts the collective also fetches the result, before any
//! other operation on the communicator.

use super::{Argument, Executor, InflightWindow, Record, RunNumber};
use crate::error::{Error, Outcome};
use crate::flat::executor::FlatExecutor;
use crate::flat::pattern::FlatCollective;
use crate::flat::result_binding::ResultBinding;
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

impl InflightWindow<FlatExecutor> {
    /// Starts a collective. The same thread fetches the result with
    /// [`fetch_blocking`](Self::fetch_blocking).
    pub(crate) fn start_blocking(
        &self,
        sequence: u64,
        collective: &FlatCollective,
        arguments: &[Argument<'_>],
    ) -> BlockingStart {
        let takes_memory = self.executor.is_large(collective);
        let run = {
            let mut starter = self.lock();
            let starter = &mut *starter;
            if !starter.queue.is_empty() || !self.ensure_slot(starter, collective) {
                return BlockingStart::NoSlot;
            }
            let run = starter.window.next;
            if takes_memory {
                let (scratch, consumed_by_all) =
                    (&mut starter.scratch, starter.window.consumed_by_all);
                if let Err(error) =
                    self.executor.prepare(scratch, run, consumed_by_all, collective, arguments)
                {
                    return BlockingStart::Refused(error);
                }
            }
            self.own().begin(run, RunState::Taken);
            starter.window.next += 1;
            let record = &mut starter.records[(run & (self.slots - 1)) as usize];
            if record.is_some() {
                *record = None;
            }
            run
        };
        // Unlocking waits until all earlier stores are visible. A store to a line that other ranks
        // have read takes as long as the line travels, so the contribution is written after the
        // unlock.
        let placed =
            if takes_memory { Ok(()) } else { self.executor.place(run, collective, arguments) };
        match placed.and_then(|()| self.executor.launch(run, collective)) {
            Ok(()) => BlockingStart::Begun(run),
            Err(error) => {
                self.abandon_blocking(
                    RunNumber { run, sequence },
                    collective,
                    FlatExecutor::bindings(arguments),
                );
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
        collective: &FlatCollective,
        bindings: ResultBinding,
    ) {
        let mut starter = self.lock();
        let record = Record { sequence: number.sequence, call: collective.clone(), bindings };
        starter.records[(number.run & (self.slots - 1)) as usize] = Some(record);
        self.own().change(number.run, RunState::Taken, RunState::Abandoned);
    }

    /// Fetches the result of a complete collective started by
    /// [`start_blocking`](Self::start_blocking).
    pub(crate) fn fetch_blocking(
        &self,
        number: RunNumber,
        collective: &FlatCollective,
        bindings: ResultBinding,
        outputs: &mut [&mut [u8]],
    ) -> Outcome {
        let outcome = self.executor.collect(number, collective, &bindings, outputs);
        self.own().consume(number.run);
        outcome
    }
}
