//! What changes during a run, and the execution of operations.

mod exchange;

use crate::effect::{Effect, Event, Handle, Packet};
use crate::error::{EventError, Failure};
use crate::external::Lent;
use crate::machine::Limits;
use crate::memory::Memory;
use crate::named::NamedReceives;
use crate::unexpected::{Allowance, Content, Envelope, Message, UnexpectedNamed};
use crate::wildcards::Wildcards;
use goal::graph::JoinMode;
use goal::schedule::{JoinKind, Kind, OperationRecord, ScheduleView};
use std::collections::{HashMap, VecDeque};

/// How far an operation is. Operations that complete as soon as they start stay `Waiting`.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not started; for a receive, no message has arrived either.
    Waiting,
    /// Receive: not posted, but its message has arrived.
    Arrived,
    /// Send: announced. Receive: posted. Calc: begun. Join: entered.
    Running,
    /// Receive: posted, its message has arrived, its payload was requested.
    Fetching,
    /// Complete.
    Complete,
}

/// How far the run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not started; messages may arrive.
    Idle,
    Running,
    /// The last effect has been queued.
    Over,
}

/// Payload buffers that are kept for reuse: how many, and how large they may be.
const SPARE_PAYLOADS: usize = 64;
const SPARE_BYTES: usize = 64 << 10;

/// Everything that changes. Every method that takes a schedule takes the same one.
#[derive(Debug)]
pub(crate) struct Run {
    rank: u32,
    eager_limit: u64,
    /// Bytes that may still be sent eagerly.
    eager_budget: u64,
    stage: Stage,
    /// What each operation still waits for.
    counters: Vec<u32>,
    phases: Vec<Phase>,
    /// Operations in the order in which they start; those from `next` on have not started yet. An
    /// operation is listed once a run, so that the list never outgrows the schedule.
    work: Vec<u32>,
    next: usize,
    /// Operations that are not complete.
    remaining: u32,
    memory: Memory,
    /// The scratchpad between runs.
    scratchpad: Vec<u8>,
    allowance: Allowance,
    unexpected: UnexpectedNamed,
    wildcards: Wildcards,
    /// The sources of messages that wildcard receives wait for the payload of.
    fetching: HashMap<u32, u32>,
    effects: VecDeque<Effect>,
    /// The first division by zero.
    failure: Option<Failure>,
    spare: Vec<Vec<u8>>,
}

impl Run {
    /// A run that has not started.
    pub(crate) fn new(view: &ScheduleView<'_>, limits: Limits, scratchpad: Vec<u8>) -> Self {
        let counters: Vec<u32> =
            view.operations().iter().map(|record| record.dependencies).collect();
        Run {
            rank: view.header().rank,
            eager_limit: limits.eager_limit,
            eager_budget: u64::MAX,
            stage: Stage::Idle,
            phases: vec![Phase::Waiting; counters.len()],
            work: Vec::with_capacity(counters.len()),
            next: 0,
            remaining: counters.len() as u32,
            counters,
            memory: Memory::default(),
            scratchpad,
            allowance: Allowance::new(limits.unexpected_bytes, limits.unexpected_messages),
            unexpected: UnexpectedNamed::new(),
            wildcards: Wildcards::of(view),
            fetching: HashMap::new(),
            effects: VecDeque::new(),
            failure: None,
            spare: Vec::new(),
        }
    }

    pub(crate) fn set_eager_budget(&mut self, bytes: u64) {
        self.eager_budget = bytes;
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Starts the run with buffers that are as the schedule declares.
    pub(crate) fn start(
        &mut self,
        view: &ScheduleView<'_>,
        buffers: Vec<Vec<u8>>,
        external: Lent,
        now: u64,
    ) {
        self.scratchpad.fill(0);
        self.memory = Memory::new(buffers, std::mem::take(&mut self.scratchpad), external);
        self.stage = Stage::Running;
        self.work.extend(0..view.header().independent_count);
        self.advance(view, now);
    }

    /// Takes in an event and executes what it enables.
    pub(crate) fn handle(
        &mut self,
        view: &ScheduleView<'_>,
        named: &NamedReceives,
        event: Event,
        now: u64,
    ) -> Result<(), EventError> {
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
                    Phase::Running,
                    "a computation that has begun",
                )?;
                self.complete(view, operation.0);
            }
            Event::JoinFinished { operation, result, divided_by_zero } => {
                self.joined(view, operation, result, divided_by_zero)?;
            }
        }
        self.advance(view, now);
        Ok(())
    }

    #[inline]
    pub(crate) fn poll(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The indices of the operations that have started and wait for something outside.
    pub(crate) fn outstanding(&self) -> impl Iterator<Item = usize> + '_ {
        let waiting = |phase: &Phase| matches!(phase, Phase::Running | Phase::Fetching);
        self.phases
            .iter()
            .enumerate()
            .filter(move |(_, phase)| waiting(phase))
            .map(|(index, _)| index)
    }

    /// Forgets the run and gives the buffers back, if it has started. Nothing is allocated or
    /// freed.
    pub(crate) fn reset(&mut self, dependencies: &[u32]) -> Vec<Vec<u8>> {
        self.counters.copy_from_slice(dependencies);
        self.phases.fill(Phase::Waiting);
        self.work.clear();
        self.next = 0;
        self.remaining = dependencies.len() as u32;
        self.allowance.reset();
        self.unexpected.clear();
        self.wildcards.reset();
        self.fetching.clear();
        self.effects.clear();
        self.failure = None;
        if std::mem::replace(&mut self.stage, Stage::Idle) == Stage::Idle {
            return Vec::new();
        }
        let (buffers, scratchpad) = std::mem::take(&mut self.memory).into_parts();
        self.scratchpad = scratchpad;
        buffers
    }

    /// Starts everything on the work list, which grows meanwhile.
    fn advance(&mut self, view: &ScheduleView<'_>, now: u64) {
        while let Some(operation) = self.work.get(self.next).copied() {
            self.next += 1;
            self.execute(view, operation, now);
        }
        if self.remaining == 0 && self.stage == Stage::Running {
            let outcome = self.failure.take().map_or(Ok(()), Err);
            self.end(outcome);
        }
    }

    fn end(&mut self, outcome: Result<(), Failure>) {
        self.stage = Stage::Over;
        self.work.truncate(self.next);
        self.effects.push_back(Effect::Completed(outcome));
    }

    #[inline(always)]
    fn execute(&mut self, view: &ScheduleView<'_>, operation: u32, now: u64) {
        let record = &view.operations()[operation as usize];
        for target in view.start_successors(record) {
            self.satisfy(target);
        }
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
                self.phases[operation as usize] = Phase::Running;
                let (operation, nanoseconds, cpu) = (Handle(operation), record.bytes, record.cpu);
                return self.effects.push_back(Effect::Calc { operation, nanoseconds, cpu });
            }
            Kind::Join => return self.enter(view, record, operation),
        }
        self.complete(view, operation);
    }

    /// One thing an operation waits for has happened.
    #[inline(always)]
    fn satisfy(&mut self, operation: u32) {
        let counter = &mut self.counters[operation as usize];
        *counter -= 1;
        if *counter == 0 {
            self.work.push(operation);
        }
    }

    #[inline(always)]
    fn complete(&mut self, view: &ScheduleView<'_>, operation: u32) {
        self.phases[operation as usize] = Phase::Complete;
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

    /// Notes the first division by zero. The run goes on, since other ranks wait for its messages.
    #[cold]
    fn divided_by_zero(&mut self, record: &OperationRecord, element: u64) {
        if let (None, Some((operation, data_type))) = (&self.failure, record.arithmetic()) {
            let (rank, vertex) = (self.rank, record.vertex);
            self.failure =
                Some(Failure::DivisionByZero { rank, vertex, operation, data_type, element });
        }
    }

    /// Hands this rank's contribution to a join out.
    fn enter(&mut self, view: &ScheduleView<'_>, record: &OperationRecord, operation: u32) {
        let mut contribution = Vec::with_capacity(record.bytes as usize);
        self.memory.gather(view.left(record), &mut contribution);
        self.phases[operation as usize] = Phase::Running;
        let (operation, ordinal, mode) = (Handle(operation), record.ordinal, join_mode(record));
        self.effects.push_back(Effect::Join { operation, ordinal, mode, contribution });
    }

    fn joined(
        &mut self,
        view: &ScheduleView<'_>,
        operation: Handle,
        result: Vec<u8>,
        divided_by_zero: Option<u64>,
    ) -> Result<(), EventError> {
        let record =
            self.expect(view, operation, Kind::Join, Phase::Running, "a join that was entered")?;
        let destination = view.destination(record);
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

    /// The operation of a handle, if it is of this kind and in this phase.
    fn expect<'a>(
        &self,
        view: &ScheduleView<'a>,
        handle: Handle,
        kind: Kind,
        phase: Phase,
        expected: &'static str,
    ) -> Result<&'a OperationRecord, EventError> {
        let record = view.operations().get(handle.0 as usize);
        let (rank, operation) = (self.rank, handle.0);
        record
            .filter(|record| record.kind() == kind && self.phases[operation as usize] == phase)
            .ok_or(EventError::UnknownHandle { rank, operation, expected })
    }

    fn expect_peer(&self, handle: Handle, expected: u32, found: u32) -> Result<(), EventError> {
        let (rank, operation) = (self.rank, handle.0);
        if expected == found {
            Ok(())
        } else {
            Err(EventError::WrongPeer { rank, operation, expected, found })
        }
    }

    fn expect_length(
        &self,
        handle: Handle,
        expected: u64,
        payload: &[u8],
    ) -> Result<(), EventError> {
        let (rank, operation, found) = (self.rank, handle.0, payload.len() as u64);
        if expected == found {
            Ok(())
        } else {
            Err(EventError::Length { rank, operation, expected, found })
        }
    }
}

/// The mode of a join. The record is from a validated schedule, whose codes are known.
fn join_mode(record: &OperationRecord) -> JoinMode {
    match (JoinKind::from_u8(record.join_mode), record.arithmetic()) {
        (Some(JoinKind::Reduce), Some((operation, data_type))) => {
            JoinMode::Reduce { operation, data_type }
        }
        (Some(JoinKind::Gather), _) => JoinMode::Gather,
        (Some(JoinKind::Exchange), _) => JoinMode::Exchange,
        (Some(JoinKind::Broadcast), _) => JoinMode::Broadcast { root: record.peer },
        _ => JoinMode::Barrier,
    }
}
