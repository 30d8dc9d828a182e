//! One rank running one schedule.

use crate::effect::{Effect, Event};
use crate::error::{EventError, ScheduleRefused, StartError};
use crate::external::{ExternalBuffer, Lent, lendable};
use crate::named::NamedReceives;
use crate::run::Run;
use goal::schedule::{Kind, Schedule};
use std::sync::Arc;

/// What an interpreter may use; see the [crate](crate) for what happens beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Messages of up to this many bytes are sent with their payload at once, longer ones when they
    /// are requested.
    pub eager_limit: u64,
    /// Bytes of payloads that are kept for receives not posted yet.
    pub unexpected_bytes: u64,
    /// Payloads that are kept for receives not posted yet.
    pub unexpected_messages: u64,
}

impl Default for Limits {
    /// Eager up to 16 KiB; 64 MiB in 65,536 unexpected payloads.
    fn default() -> Self {
        Limits { eager_limit: 16 << 10, unexpected_bytes: 64 << 20, unexpected_messages: 1 << 16 }
    }
}

/// An operation that has started and waits for something outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// The operation's place in vertex order.
    pub vertex: u32,
    /// What it does.
    pub kind: Kind,
    /// The rank it waits for, where it waits for one only.
    pub peer: Option<u32>,
}

/// The state machine of one rank running one schedule; see the [crate](crate).
#[derive(Debug)]
pub struct Interpreter {
    schedule: Arc<Schedule>,
    named: NamedReceives,
    /// The dependency counters at the start of a run, one for each operation.
    initial: Vec<u32>,
    /// Which buffers can be lent, and those that have been for the next run.
    lendable: Vec<bool>,
    lent: Lent,
    run: Run,
}

impl Interpreter {
    /// An interpreter without a run.
    ///
    /// # Errors
    /// A scratchpad that does not fit into memory.
    pub fn new(schedule: Arc<Schedule>, limits: Limits) -> Result<Self, ScheduleRefused> {
        let view = schedule.view();
        let bytes = view.header().scratchpad_bytes;
        let mut scratchpad: Vec<u8> = Vec::new();
        let length = usize::try_from(bytes).map_err(|_| ScheduleRefused::Scratchpad { bytes })?;
        scratchpad.try_reserve_exact(length).map_err(|_| ScheduleRefused::Scratchpad { bytes })?;
        scratchpad.resize(length, 0);
        let initial: Vec<u32> =
            view.operations().iter().map(|record| record.dependencies).collect();
        let run = Run::new(&view, limits, scratchpad);
        let named = NamedReceives::of(&view);
        let lendable = lendable(&view);
        Ok(Interpreter { schedule, named, initial, lendable, lent: Vec::new(), run })
    }

    /// The schedule it runs.
    pub fn schedule(&self) -> &Arc<Schedule> {
        &self.schedule
    }

    /// Whether a buffer can be [lent](Self::lend).
    pub fn can_be_lent(&self, buffer: usize) -> bool {
        self.lendable.get(buffer).copied().unwrap_or(false)
    }

    /// Lends the next run a buffer that lies elsewhere, on which the schedule computes nothing:
    /// only messages, timestamps and joins touch it. What is given to [`start`](Self::start) in its
    /// place is empty; so is what [`reset`](Self::reset) gives back, with which the loan ends.
    ///
    /// # Errors
    /// [`StartError::NotLendable`] and [`StartError::BufferLength`].
    pub fn lend(
        &mut self,
        buffer: usize,
        external: Box<dyn ExternalBuffer>,
    ) -> Result<(), StartError> {
        let view = self.schedule.view();
        let declared = view.buffers().get(buffer).filter(|_| self.can_be_lent(buffer));
        let declared = declared.ok_or(StartError::NotLendable { buffer })?;
        let (expected, found) = (declared.length, external.length());
        if expected != found {
            return Err(StartError::BufferLength { buffer, expected, found });
        }
        self.lent.retain(|(other, _)| *other != buffer);
        self.lent.push((buffer, external));
        Ok(())
    }

    /// Starts the run: executes what depends on nothing, and what that enables. The buffers are
    /// those the schedule declares, in order; `now_nanoseconds` is what timestamps record.
    ///
    /// The scratchpad is cleared, so that no run can come to depend on what another left there.
    ///
    /// # Errors
    /// Buffers that are not as declared, and a run that was started before. The buffers are dropped
    /// then.
    pub fn start(&mut self, buffers: Vec<Vec<u8>>, now_nanoseconds: u64) -> Result<(), StartError> {
        if !self.run.is_idle() {
            return Err(StartError::Started);
        }
        let view = self.schedule.view();
        if buffers.len() != view.buffers().len() {
            return Err(StartError::BufferCount {
                expected: view.buffers().len(),
                found: buffers.len(),
            });
        }
        for (buffer, (declared, given)) in view.buffers().iter().zip(&buffers).enumerate() {
            let is_lent = self.lent.iter().any(|(lent, _)| *lent == buffer);
            let (expected, found) = (if is_lent { 0 } else { declared.length }, given.len() as u64);
            if expected != found {
                return Err(StartError::BufferLength { buffer, expected, found });
            }
        }
        self.run.start(&view, buffers, std::mem::take(&mut self.lent), now_nanoseconds);
        Ok(())
    }

    /// Takes in what happened outside, and executes what that enables.
    ///
    /// # Errors
    /// Events that cannot be: they are refused, and the run is as before.
    pub fn handle(&mut self, event: Event, now_nanoseconds: u64) -> Result<(), EventError> {
        self.run.handle(&self.schedule.view(), &self.named, event, now_nanoseconds)
    }

    /// The next effect; `None` when the interpreter waits for an event.
    #[inline]
    pub fn poll(&mut self) -> Option<Effect> {
        self.run.poll()
    }

    /// Whether the run has completed; its last effect may still have to be polled.
    pub fn is_over(&self) -> bool {
        self.run.is_over()
    }

    /// What the run waits for, to tell a person why it does not end.
    pub fn outstanding(&self) -> impl Iterator<Item = Outstanding> + '_ {
        let records = self.schedule.view().operations();
        self.run.outstanding().map(|index| Outstanding {
            vertex: records[index].vertex,
            kind: records[index].kind(),
            peer: matches!(records[index].kind(), Kind::Send | Kind::Receive)
                .then(|| records[index].peer())
                .flatten(),
        })
    }

    /// Bounds the bytes of payloads that later calls send eagerly; what does not fit is announced.
    /// Without a call there is no bound but [`Limits::eager_limit`]. For transports that hold
    /// senders back when receivers fall behind.
    pub fn set_eager_budget(&mut self, bytes: u64) {
        self.run.set_eager_budget(bytes);
    }

    /// Hands over a payload buffer for reuse, so that sending need not allocate.
    pub fn recycle(&mut self, payload: Vec<u8>) {
        self.run.recycle(payload);
    }

    /// Ends the run wherever it is, forgets its messages and effects, and gives back the buffers
    /// (none if it was not started). The next run can start.
    pub fn reset(&mut self) -> Vec<Vec<u8>> {
        self.lent.clear();
        self.run.reset(&self.initial)
    }
}
