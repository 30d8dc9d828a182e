//! The public state machine: one rank running one schedule.

use crate::effect::{Effect, Event, Handle, Packet};
use crate::error::{EventError, ScheduleRefused, StartError};
use crate::external::{BorrowedBuffers, ExternalBuffer, Incoming, Outgoing};
use crate::limits::Limits;
use crate::matching::NamedReceives;
use crate::run::ScheduleRun;
use goal::schedule::{Kind, Schedule};
use std::ops::Range;
use std::sync::Arc;

/// An operation that has started and waits for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// The operation's place in vertex order.
    pub vertex: u32,
    /// The kind of operation.
    pub kind: Kind,
    /// The rank it waits for, if it is a single one.
    pub peer: Option<u32>,
    /// True for a send with its payload on its way: it waits for the network only.
    pub is_on_its_way: bool,
}

/// The state machine of one rank running one schedule; see the [crate](crate).
#[derive(Debug)]
pub struct Interpreter {
    schedule: Arc<Schedule>,
    named: NamedReceives,
    /// The dependency counters at the start of a run, one for each operation.
    initial: Vec<u32>,
    /// The buffers borrowed for the next run.
    borrowed: BorrowedBuffers,
    run: ScheduleRun,
}

impl Interpreter {
    /// Creates an interpreter without a run.
    ///
    /// # Errors
    /// Returns [`ScheduleRefused::Scratchpad`] if the scratchpad does not fit into memory.
    pub fn new(schedule: Arc<Schedule>, limits: Limits) -> Result<Self, ScheduleRefused> {
        let view = schedule.view();
        let bytes = view.header().scratchpad_bytes;
        let mut scratchpad: Vec<u8> = Vec::new();
        let length = usize::try_from(bytes).map_err(|_| ScheduleRefused::Scratchpad { bytes })?;
        // The schedule declares the size. A size that this machine does not have is an error, where
        // `vec!` would end the process.
        scratchpad.try_reserve_exact(length).map_err(|_| ScheduleRefused::Scratchpad { bytes })?;
        scratchpad.resize(length, 0);
        let initial: Vec<u32> =
            view.operations().iter().map(|record| record.dependencies).collect();
        let run = ScheduleRun::new(&view, limits, scratchpad);
        let named = NamedReceives::of(&view);
        Ok(Interpreter { schedule, named, initial, borrowed: Vec::new(), run })
    }

    /// Returns the schedule.
    pub fn schedule(&self) -> &Arc<Schedule> {
        &self.schedule
    }

    /// Makes the next run use an external buffer in place.
    ///
    /// Pass an empty buffer in its place to [`start`](Self::start). [`reset`](Self::reset) returns
    /// an empty buffer in its place and ends the borrow.
    ///
    /// # Errors
    /// Returns [`StartError::NotBorrowable`] or [`StartError::BufferLength`].
    pub fn borrow_buffer(
        &mut self,
        buffer: usize,
        external: Box<dyn ExternalBuffer>,
    ) -> Result<(), StartError> {
        let view = self.schedule.view();
        let declared = view.buffers().get(buffer).ok_or(StartError::NotBorrowable { buffer })?;
        let expected = declared.length;
        let found = external.length();
        if expected != found {
            return Err(StartError::BufferLength { buffer, expected, found });
        }
        self.borrowed.retain(|(other, _)| *other != buffer);
        self.borrowed.push((buffer, external));
        Ok(())
    }

    /// Starts the run: executes the independent operations and every operation they enable.
    ///
    /// `buffers` are the buffers the schedule declares, in order. Timestamps record
    /// `now_nanoseconds`. The scratchpad is cleared, so a run never sees the scratchpad contents of
    /// an earlier run.
    ///
    /// # Errors
    /// Returns an error, and drops the buffers, if they differ from the declaration or if a run has
    /// already been started.
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
        for (buffer, (declared, passed)) in view.buffers().iter().zip(&buffers).enumerate() {
            let is_borrowed = self.borrowed.iter().any(|(borrowed, _)| *borrowed == buffer);
            let expected = if is_borrowed { 0 } else { declared.length };
            let found = passed.len() as u64;
            if expected != found {
                return Err(StartError::BufferLength { buffer, expected, found });
            }
        }
        // Validation has compared all blocks with the declared lengths, and the buffers have these:
        // from here on every block lies in its buffer.
        self.run.start(&view, buffers, std::mem::take(&mut self.borrowed), now_nanoseconds);
        Ok(())
    }

    /// Processes an event and executes every operation it enables.
    ///
    /// # Errors
    /// Returns an error if the event is invalid in the current state. The run is unchanged then.
    pub fn handle(&mut self, event: Event, now_nanoseconds: u64) -> Result<(), EventError> {
        self.run.handle(&self.schedule.view(), &self.named, event, now_nanoseconds)
    }

    /// Returns the next effect, or `None` if the interpreter waits for an event.
    #[inline]
    pub fn poll(&mut self) -> Option<Effect> {
        self.run.poll()
    }

    /// Returns whether the run has completed. Its last effect may still have to be polled.
    pub fn is_over(&self) -> bool {
        self.run.is_over()
    }

    /// Returns the operations the run waits for, for reports about a run that does not end.
    pub fn outstanding(&self) -> impl Iterator<Item = Outstanding> + '_ {
        let records = self.schedule.view().operations();
        self.run.outstanding().map(|(index, is_on_its_way)| Outstanding {
            is_on_its_way,
            vertex: records[index].vertex,
            kind: records[index].kind(),
            peer: matches!(records[index].kind(), Kind::Send | Kind::Receive)
                .then(|| records[index].peer())
                .flatten(),
        })
    }

    /// Assigns an arriving message the memory of its receive. `packet` is a [`Packet::Eager`] or
    /// [`Packet::Data`] without its payload, which has `bytes` bytes. The owner writes the payload
    /// to the [incoming](Self::incoming) memory of the receive and reports [`Event::Received`].
    ///
    /// Returns `None` if the message must be passed as a whole, in an [`Event::Packet`]: the
    /// receive is not posted, is a wildcard, or its memory is not one block of that length.
    pub fn admit(&mut self, source: u32, packet: &Packet, bytes: u64) -> Option<Handle> {
        self.run.admit(&self.schedule.view(), &self.named, source, packet, bytes)
    }

    /// Takes back the memory that [`admit`](Self::admit) has assigned to a message, which arrives in
    /// another way. What was written to it is undefined.
    pub fn withdraw(&mut self, receive: Handle, packet: &Packet) {
        self.run.withdraw(receive, packet);
    }

    /// Returns the payload of a send between [`Effect::TransmitInPlace`] and [`Event::Sent`].
    pub fn outgoing(&self, send: Handle) -> Option<Outgoing<'_>> {
        self.run.outgoing(&self.schedule.view(), send)
    }

    /// Returns the memory of a receive between [`admit`](Self::admit) and [`Event::Received`].
    pub fn incoming(&mut self, receive: Handle) -> Option<Incoming<'_>> {
        self.run.incoming(&self.schedule.view(), receive)
    }

    /// Returns the sends between [`Effect::TransmitInPlace`] and [`Event::Sent`].
    pub fn sending(&self) -> impl Iterator<Item = Handle> + '_ {
        let sending =
            |(index, is_on_its_way): (usize, bool)| is_on_its_way.then_some(Handle(index as u32));
        self.run.outstanding().filter_map(sending)
    }

    /// Returns the ranges of a buffer that operations still read which are not complete: what they
    /// send, copy, combine or contribute. They may overlap.
    ///
    /// ```
    /// use goal::compile::compile;
    /// use goal::graph::{Access, Graph};
    /// use interpreter::{Effect, Event, Interpreter, Limits};
    /// use std::sync::Arc;
    ///
    /// let mut graph = Graph::new(0, 2);
    /// let (input, output) = (graph.buffer(Access::Input, 100), graph.buffer(Access::Output, 40));
    /// graph.send(input.part(0, 60), 1, 0);
    /// let received = graph.receive(output, 1, 0);
    /// let answer = graph.send(input.part(60, 40), 1, 1);
    /// graph.requires(answer, received);
    /// let limits = Limits::new(1000).with_in_place(50);
    /// let mut interpreter = Interpreter::new(Arc::new(compile(&graph)?), limits)?;
    /// interpreter.start(vec![vec![0; 100], vec![0; 40]], 0)?;
    /// assert!(interpreter.unread(0).eq([0..60, 60..100]));
    /// if let Some(Effect::TransmitInPlace { send, .. }) = interpreter.poll() {
    ///     interpreter.handle(Event::Sent { send }, 0)?;
    /// }
    /// assert!(interpreter.unread(0).eq([60..100]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn unread(&self, buffer: usize) -> impl Iterator<Item = Range<u64>> + '_ {
        self.run.unread(self.schedule.view(), buffer)
    }

    /// Bounds the total payload that later calls send eagerly. Messages beyond the budget use the
    /// rendezvous protocol. Without a call, only [`Limits::eager_limit`] applies. Transports use
    /// the budget for flow control.
    pub fn set_eager_budget(&mut self, bytes: u64) {
        self.run.set_eager_budget(bytes);
    }

    /// Ends the run in any state, discards its messages and effects, and returns the buffers (none
    /// if the run was not started). The next run can start.
    pub fn reset(&mut self) -> Vec<Vec<u8>> {
        // Buffers for a start that did not happen. Those of a started run belong to its memory.
        self.borrowed.clear();
        self.run.reset(&self.initial)
    }
}
