//! Meetings whose result the thread that comes to them fetches itself, before it does anything else
//! there: blocking calls.

use super::{Argument, Executor, InflightWindow, Record, RunNumber};
use crate::error::{Error, Outcome};
use crate::flat::executor::FlatExecutor;
use crate::flat::pattern::FlatCollective;
use crate::flat::result_binding::ResultBinding;
use crate::protocol::run_state::RunState;

/// What became of a collective that its starter wants to fetch itself. Two words, which come back in
/// registers.
#[derive(Debug)]
pub(crate) enum BlockingStart {
    /// It has begun, under this number.
    Begun(u64),
    /// There is no slot for it now.
    NoSlot,
    /// It could not begin. The next one gets its number.
    Refused(Box<Error>),
    /// It has begun and could not go on. Its number is used.
    Failed(Box<Error>),
}

impl InflightWindow<FlatExecutor> {
    /// Starts a collective whose result this thread fetches itself, with
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
        // To let go of a lock takes until all stores before are done. Those to lines that others
        // have read take as long as such a line travels, and so they come after it.
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

    /// Gives up a collective that [`hold`](Self::start_blocking) has begun: whoever needs its slot takes it when
    /// the collective is complete.
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

    /// Fetches the result of a complete collective that [`hold`](Self::start_blocking) has started.
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
