//! Meetings whose result the thread that comes to them fetches itself, before it does anything else
//! there: blocking calls.

use super::{Argument, Lane, Numbered, Plan, Record};
use crate::error::{Error, Outcome};
use crate::meeting::Meeting;
use crate::ring::{ResultBinding, Ring};
use crate::slots::RunState;

/// What became of a meeting that its starter wants to fetch itself. Two words, which come back in
/// registers.
#[derive(Debug)]
pub(crate) enum Hold {
    /// It has begun, under this number.
    Begun(u64),
    /// There is no slot for it now.
    NoSlot,
    /// It could not begin. The next one gets its number.
    Refused(Box<Error>),
    /// It has begun and could not go on. Its number is used.
    Failed(Box<Error>),
}

impl Lane<Ring> {
    /// Starts a meeting whose result this thread fetches itself, with
    /// [`fetch_held`](Self::fetch_held).
    pub(crate) fn hold(
        &self,
        sequence: u64,
        meeting: &Meeting,
        arguments: &[Argument<'_>],
    ) -> Hold {
        let takes_memory = self.plan.is_large(meeting);
        let run = {
            let mut starter = self.lock();
            let starter = &mut *starter;
            if !starter.queue.is_empty() || !self.make_room(starter, meeting) {
                return Hold::NoSlot;
            }
            let run = starter.turn.next;
            if takes_memory {
                let (scratch, everyone) = (&mut starter.scratch, starter.turn.everyone);
                if let Err(error) = self.plan.prepare(scratch, run, everyone, meeting, arguments) {
                    return Hold::Refused(error);
                }
            }
            self.own().begin(run, RunState::Taken);
            starter.turn.next += 1;
            let record = &mut starter.records[(run & (self.slots - 1)) as usize];
            if record.is_some() {
                *record = None;
            }
            run
        };
        // To let go of a lock takes until all stores before are done. Those to lines that others
        // have read take as long as such a line travels, and so they come after it.
        let placed = if takes_memory { Ok(()) } else { self.plan.place(run, meeting, arguments) };
        match placed.and_then(|()| self.plan.launch(run, meeting)) {
            Ok(()) => Hold::Begun(run),
            Err(error) => {
                self.give_up(Numbered { run, sequence }, meeting, Ring::bindings(arguments));
                Hold::Failed(error)
            }
        }
    }

    /// Gives up a meeting that [`hold`](Self::hold) has begun: whoever needs its slot takes it when
    /// the meeting is complete.
    #[cold]
    pub(crate) fn give_up(&self, number: Numbered, meeting: &Meeting, bindings: ResultBinding) {
        let mut starter = self.lock();
        let record = Record { sequence: number.sequence, call: meeting.clone(), bindings };
        starter.records[(number.run & (self.slots - 1)) as usize] = Some(record);
        self.own().change(number.run, RunState::Taken, RunState::Abandoned);
    }

    /// Fetches the result of a complete meeting that [`hold`](Self::hold) has started.
    pub(crate) fn fetch_held(
        &self,
        number: Numbered,
        meeting: &Meeting,
        bindings: ResultBinding,
        outputs: &mut [&mut [u8]],
    ) -> Outcome {
        let outcome = self.plan.collect(number, meeting, &bindings, outputs);
        self.own().consume(number.run);
        outcome
    }
}
