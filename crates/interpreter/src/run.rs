//! State of a run, and the execution of operations.

mod messages;
mod payload_pool;

use crate::effect::{Effect, Event, Handle, Packet};
use crate::error::{EventError, Failure};
use crate::external::{BorrowedBuffers, Incoming, Outgoing};
use crate::limits::Limits;
use crate::matching::{
    ArrivedMessage, MessageEnvelope, NamedReceives, PayloadLocation, UnexpectedMemory,
    UnexpectedNamed, WildcardMatching, WildcardRefusal,
};
use crate::memory::RunMemory;
use goal::schedule::{Kind, OperationRecord, ScheduleView};
use payload_pool::PayloadPool;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

/// Progress of an operation. An operation that completes as soon as it starts goes from `Waiting` to
/// `Complete`.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OperationPhase {
    /// Not started; for a receive, no message has arrived either.
    Waiting,
    /// Receive: not posted, but its message has arrived.
    Arrived,
    /// Send: request to send emitted. Receive: posted. Calc: begun. Join: entered.
    Running,
    /// Receive: posted and matched; its payload has been requested.
    Fetching,
    /// Send: its payload is being sent in place.
    Sending,
    /// Receive: its payload arrives in place.
    Arriving,
    /// Complete.
    Complete,
}

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunStage {
    /// Not started; messages may arrive.
    Idle,
    Running,
    /// The last effect has been queued.
    Over,
}

/// All state that changes during a run. Every method must be called with the same schedule.
#[derive(Debug)]
pub(crate) struct ScheduleRun {
    rank: u32,
    eager_limit: u64,
    /// Shortest message that is sent in place.
    in_place: u64,
    /// Bytes that can still be sent eagerly.
    eager_budget: u64,
    stage: RunStage,
    /// Number of unsatisfied dependencies of each operation.
    counters: Vec<u32>,
    phases: Vec<OperationPhase>,
    /// Operations in the order of their start; those from `next` on have not started. Every
    /// operation is listed once a run, so the list never exceeds the schedule's length and never
    /// reallocates.
    work: Vec<u32>,
    next: usize,
    /// Operations that are not complete.
    remaining: u32,
    memory: RunMemory,
    /// The scratchpad between runs.
    scratchpad: Vec<u8>,
    unexpected_memory: UnexpectedMemory,
    unexpected: UnexpectedNamed,
    wildcards: WildcardMatching,
    /// For each wildcard receive in `Fetching`, the source of its message.
    fetching: HashMap<u32, u32>,
    effects: VecDeque<Effect>,
    /// The first division by zero.
    failure: Option<Failure>,
    payloads: PayloadPool,
}

impl ScheduleRun {
    /// Creates a run that has not started.
    pub(crate) fn new(view: &ScheduleView<'_>, limits: Limits, scratchpad: Vec<u8>) -> Self {
        let counters: Vec<u32> =
            view.operations().iter().map(|record| record.dependencies).collect();
        ScheduleRun {
            rank: view.header().rank,
            eager_limit: limits.eager_limit,
            in_place: limits.in_place,
            eager_budget: u64::MAX,
            stage: RunStage::Idle,
            phases: vec![OperationPhase::Waiting; counters.len()],
            work: Vec::with_capacity(counters.len()),
            next: 0,
            remaining: counters.len() as u32,
            counters,
            memory: RunMemory::default(),
            scratchpad,
            unexpected_memory: UnexpectedMemory::new(
                limits.unexpected_bytes,
                limits.unexpected_messages,
            ),
            unexpected: UnexpectedNamed::new(),
            wildcards: WildcardMatching::of(view),
            fetching: HashMap::new(),
            effects: VecDeque::new(),
            failure: None,
            payloads: PayloadPool::of(view, limits.in_place),
        }
    }

    pub(crate) fn set_eager_budget(&mut self, bytes: u64) {
        self.eager_budget = bytes;
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.stage == RunStage::Idle
    }

    pub(crate) fn is_over(&self) -> bool {
        self.stage == RunStage::Over
    }

    /// Starts the run. The caller has checked the buffers against the schedule's declaration.
    pub(crate) fn start(
        &mut self,
        view: &ScheduleView<'_>,
        buffers: Vec<Vec<u8>>,
        external: BorrowedBuffers,
        now: u64,
    ) {
        // `reset` keeps the allocation, with the bytes of the former run in it.
        self.scratchpad.fill(0);
        self.memory = RunMemory::new(buffers, std::mem::take(&mut self.scratchpad), external);
        self.stage = RunStage::Running;
        // Exactly these operations have a dependency counter of 0: validation checks that they come
        // first. So `satisfy` lists none of them a second time.
        self.work.extend(0..view.header().independent_count);
        self.advance(view, now);
    }

    /// Processes an event and executes every operation it enables.
    pub(crate) fn handle(
        &mut self,
        view: &ScheduleView<'_>,
        named: &NamedReceives,
        event: Event,
        now: u64,
    ) -> Result<(), EventError> {
        // Packets and completions may be on their way when a run ends early. They change nothing.
        if self.is_over() {
            return Err(EventError::Over { rank: self.rank });
        }
        match event {
            Event::Packet { source, packet } => self.packet(view, named, source, packet)?,
            Event::CalcFinished { operation } => {
                self.expect(
                    view,
                    operation,
                    Kind::Calc,
                    OperationPhase::Running,
                    "a computation that has begun",
                )?;
                self.complete(view, operation.0);
            }
            Event::JoinFinished { operation, result, divided_by_zero } => {
                self.joined(view, operation, result, divided_by_zero)?;
            }
            // Each of these phases is left by one event only: a second `Sent` or `Received` for the
            // same handle finds `Complete` and is refused.
            Event::Sent { send } => {
                let sending = OperationPhase::Sending;
                self.expect(view, send, Kind::Send, sending, "a send in place")?;
                self.complete(view, send.0);
            }
            Event::Received { receive } => {
                let arriving = OperationPhase::Arriving;
                self.expect(view, receive, Kind::Receive, arriving, "a receive in place")?;
                self.complete(view, receive.0);
            }
        }
        self.advance(view, now);
        Ok(())
    }

    #[inline]
    pub(crate) fn poll(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Returns the indices of the operations that have started and wait for an event, each with
    /// whether it is a send with its payload on its way.
    pub(crate) fn outstanding(&self) -> impl Iterator<Item = (usize, bool)> + '_ {
        self.phases.iter().enumerate().filter_map(|(index, phase)| match phase {
            OperationPhase::Running | OperationPhase::Fetching | OperationPhase::Arriving => {
                Some((index, false))
            }
            OperationPhase::Sending => Some((index, true)),
            OperationPhase::Waiting | OperationPhase::Arrived | OperationPhase::Complete => None,
        })
    }

    /// Returns the ranges of a buffer that operations read which are not complete.
    pub(crate) fn unread<'a>(
        &'a self,
        view: ScheduleView<'a>,
        buffer: usize,
    ) -> impl Iterator<Item = Range<u64>> + 'a {
        let records = view.operations().iter().zip(&self.phases);
        let incomplete = records.filter(|(_, phase)| **phase != OperationPhase::Complete);
        let read = incomplete.flat_map(move |(record, _)| match record.kind() {
            Kind::Send => [view.destination(record), &[][..]],
            Kind::Copy | Kind::Local | Kind::Join => [view.left(record), view.right(record)],
            Kind::Receive | Kind::Calc | Kind::Timestamp => [&[][..]; 2],
        });
        let blocks = read.flatten().filter(move |block| block.memory as usize == buffer);
        blocks.map(|block| block.offset..block.offset + block.length)
    }

    /// Discards the run and returns the buffers if it has started. Allocates and frees nothing.
    pub(crate) fn reset(&mut self, dependencies: &[u32]) -> Vec<Vec<u8>> {
        self.counters.copy_from_slice(dependencies);
        self.phases.fill(OperationPhase::Waiting);
        self.work.clear();
        self.next = 0;
        self.remaining = dependencies.len() as u32;
        self.unexpected_memory.reset();
        self.unexpected.clear();
        self.wildcards.reset();
        self.fetching.clear();
        self.effects.clear();
        self.failure = None;
        // Before a start, `memory` is empty and the scratchpad lies in `scratchpad`: `into_parts`
        // would replace it by an empty one.
        if std::mem::replace(&mut self.stage, RunStage::Idle) == RunStage::Idle {
            return Vec::new();
        }
        let (buffers, scratchpad) = std::mem::take(&mut self.memory).into_parts();
        self.scratchpad = scratchpad;
        buffers
    }

    /// Starts every operation on the work list, which grows meanwhile.
    fn advance(&mut self, view: &ScheduleView<'_>, now: u64) {
        // A list instead of recursion: a chain of operations may be as long as the schedule.
        while let Some(operation) = self.work.get(self.next).copied() {
            self.next += 1;
            self.execute(view, operation, now);
        }
        // A failed length check ends the run early; then `Completed` has already been emitted.
        if self.remaining == 0 && self.stage == RunStage::Running {
            let outcome = self.failure.take().map_or(Ok(()), Err);
            self.end(outcome);
        }
    }

    fn end(&mut self, outcome: Result<(), Failure>) {
        self.stage = RunStage::Over;
        // Operations that have not started must not start any more.
        self.work.truncate(self.next);
        // Behind all packets that the run has emitted. Other ranks need these also after a failure.
        self.effects.push_back(Effect::Completed(outcome));
    }

    #[inline(always)]
    fn execute(&mut self, view: &ScheduleView<'_>, operation: u32, now: u64) {
        let record = &view.operations()[operation as usize];
        // Operations that depend on the start alone run even if this one never completes.
        for target in view.start_successors(record) {
            self.satisfy(target);
        }
        // Operations that wait for an event return here, and the event completes them. `post` also
        // completes a receive if its payload has arrived already.
        match record.kind() {
            Kind::Local => self.local(view, record),
            Kind::Copy => self.memory.copy(view.left(record), view.destination(record)),
            Kind::Timestamp => self.memory.scatter(view.destination(record), &now.to_le_bytes()),
            Kind::Send => {
                if !self.send(view, record, operation) {
                    return;
                }
            }
            Kind::Receive => return self.post(view, record, operation),
            Kind::Calc => {
                self.phases[operation as usize] = OperationPhase::Running;
                return self.effects.push_back(Effect::Calc {
                    operation: Handle(operation),
                    nanoseconds: record.bytes,
                    cpu: record.cpu,
                });
            }
            Kind::Join => return self.enter(view, record, operation),
        }
        self.complete(view, operation);
    }

    /// Counts one satisfied dependency of an operation. The operation is enabled by the last one.
    #[inline(always)]
    fn satisfy(&mut self, operation: u32) {
        let counter = &mut self.counters[operation as usize];
        // Does not underflow: validation counts the edges that lead to an operation, and each edge
        // is followed once, because its origin starts and completes once.
        *counter -= 1;
        if *counter == 0 {
            self.work.push(operation);
        }
    }

    #[inline(always)]
    fn complete(&mut self, view: &ScheduleView<'_>, operation: u32) {
        self.phases[operation as usize] = OperationPhase::Complete;
        // Once for each operation: the callers have checked its phase, or have taken it from the
        // work list, where it occurs once.
        self.remaining -= 1;
        for target in view.successors(&view.operations()[operation as usize]) {
            self.satisfy(target);
        }
    }

    #[inline(always)]
    fn local(&mut self, view: &ScheduleView<'_>, record: &OperationRecord) {
        if let Some((arithmetic, data_type)) = record.arithmetic() {
            let lists = [view.left(record), view.right(record), view.destination(record)];
            if let Some(element) = self.memory.local(arithmetic, data_type, lists) {
                self.divided_by_zero(record, element);
            }
        }
    }

    /// Records the first division by zero. The run continues, since other ranks wait for its
    /// messages.
    #[cold]
    fn divided_by_zero(&mut self, record: &OperationRecord, element: u64) {
        if let (None, Some((operation, data_type))) = (&self.failure, record.arithmetic()) {
            self.failure = Some(Failure::DivisionByZero {
                rank: self.rank,
                vertex: record.vertex,
                operation,
                data_type,
                element,
            });
        }
    }

    /// Emits this rank's contribution to a join.
    fn enter(&mut self, view: &ScheduleView<'_>, record: &OperationRecord, operation: u32) {
        let mut contribution = Vec::with_capacity(record.bytes as usize);
        self.memory.gather(view.left(record), &mut contribution);
        self.phases[operation as usize] = OperationPhase::Running;
        self.effects.push_back(Effect::Join {
            operation: Handle(operation),
            ordinal: record.ordinal,
            mode: record.join_mode(),
            contribution,
        });
    }

    fn joined(
        &mut self,
        view: &ScheduleView<'_>,
        operation: Handle,
        result: Vec<u8>,
        divided_by_zero: Option<u64>,
    ) -> Result<(), EventError> {
        let record = self.expect(
            view,
            operation,
            Kind::Join,
            OperationPhase::Running,
            "a join that was entered",
        )?;
        let destination = view.destination(record);
        // A rank without a destination contributes only; it gets the event without regard to the
        // length of the result.
        if !destination.is_empty() {
            self.expect_length(
                operation,
                destination.iter().map(|block| block.length).sum(),
                &result,
            )?;
            self.memory.scatter(destination, &result);
        }
        if let Some(element) = divided_by_zero {
            self.divided_by_zero(record, element);
        }
        self.complete(view, operation.0);
        Ok(())
    }

    /// Returns the operation of a handle if it is of this kind and in this phase. Handles come from
    /// other ranks, so every use goes through this check.
    fn expect<'a>(
        &self,
        view: &ScheduleView<'a>,
        handle: Handle,
        kind: Kind,
        phase: OperationPhase,
        expected: &'static str,
    ) -> Result<&'a OperationRecord, EventError> {
        let record = view.operations().get(handle.0 as usize);
        let rank = self.rank;
        let operation = handle.0;
        record
            .filter(|record| record.kind() == kind && self.phases[operation as usize] == phase)
            .ok_or(EventError::UnknownHandle { rank, operation, expected })
    }

    fn expect_peer(&self, handle: Handle, expected: u32, found: u32) -> Result<(), EventError> {
        if expected == found {
            return Ok(());
        }
        Err(EventError::WrongPeer { rank: self.rank, operation: handle.0, expected, found })
    }

    fn expect_length(
        &self,
        handle: Handle,
        expected: u64,
        payload: &[u8],
    ) -> Result<(), EventError> {
        let found = payload.len() as u64;
        if expected == found {
            return Ok(());
        }
        Err(EventError::Length { rank: self.rank, operation: handle.0, expected, found })
    }
}
