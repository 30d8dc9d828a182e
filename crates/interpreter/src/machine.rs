//! One rank running one schedule.

use crate::effect::{Effect, Event, Handle, Packet};
use crate::error::{EventError, Failure, ScheduleRefused, StartError};
use crate::memory::Memory;
use crate::named::NamedReceives;
use crate::unexpected::{Allowance, Content, Envelope, Message, UnexpectedNamed};
use crate::wildcards::{Refusal, Wildcards};
use goal::graph::JoinMode;
use goal::schedule::{JoinKind, Kind, OperationRecord, Schedule, ScheduleView};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// What an interpreter may use; see the [crate](crate) for what happens beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Messages of up to this many bytes are sent with their payload at once, longer ones when they are requested.
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

/// Payload buffers that are kept for reuse: how many, and how large they may be.
const SPARE_PAYLOADS: usize = 64;
const SPARE_BYTES: usize = 64 << 10;

/// The state machine of one rank running one schedule; see the [crate](crate).
#[derive(Debug)]
pub struct Interpreter {
    schedule: Arc<Schedule>,
    named: NamedReceives,
    /// The dependency counters at the start of a run, one for each operation.
    initial: Vec<u32>,
    run: Run,
}

/// Everything that changes.
#[derive(Debug)]
struct Run {
    rank: u32,
    eager_limit: u64,
    stage: Stage,
    /// What each operation still waits for.
    counters: Vec<u32>,
    phases: Vec<Phase>,
    /// Operations in the order in which they start; those from `next` on have not started yet. An operation is listed
    /// once a run, so that the list never outgrows the schedule.
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

impl Interpreter {
    /// An interpreter without a run.
    ///
    /// # Errors
    /// A scratchpad that does not fit into memory, and ordinals that no compiler writes.
    pub fn new(schedule: Arc<Schedule>, limits: Limits) -> Result<Self, ScheduleRefused> {
        let view = schedule.view();
        let bytes = view.header().scratchpad_bytes;
        let mut scratchpad: Vec<u8> = Vec::new();
        let length = usize::try_from(bytes).map_err(|_| ScheduleRefused::Scratchpad { bytes })?;
        scratchpad.try_reserve_exact(length).map_err(|_| ScheduleRefused::Scratchpad { bytes })?;
        scratchpad.resize(length, 0);
        let named = NamedReceives::of(&view)?;
        let initial: Vec<u32> = view.operations().iter().map(|record| record.dependencies).collect();
        let run = Run {
            rank: view.header().rank,
            eager_limit: limits.eager_limit,
            stage: Stage::Idle,
            counters: initial.clone(),
            phases: vec![Phase::Waiting; initial.len()],
            work: Vec::with_capacity(initial.len()),
            next: 0,
            remaining: initial.len() as u32,
            memory: Memory::default(),
            scratchpad,
            allowance: Allowance::new(limits.unexpected_bytes, limits.unexpected_messages),
            unexpected: UnexpectedNamed::new(),
            wildcards: Wildcards::of(&view),
            fetching: HashMap::new(),
            effects: VecDeque::new(),
            failure: None,
            spare: Vec::new(),
        };
        Ok(Interpreter { schedule, named, initial, run })
    }

    /// The schedule it runs.
    pub fn schedule(&self) -> &Arc<Schedule> {
        &self.schedule
    }

    /// Starts the run: executes what depends on nothing, and what that enables. The buffers are those the schedule
    /// declares, in order; `now_nanoseconds` is what timestamps record.
    ///
    /// The scratchpad is cleared, so that no run can come to depend on what another left there.
    ///
    /// # Errors
    /// Buffers that are not as declared, and a run that was started before. The buffers are dropped then.
    pub fn start(&mut self, buffers: Vec<Vec<u8>>, now_nanoseconds: u64) -> Result<(), StartError> {
        if self.run.stage != Stage::Idle {
            return Err(StartError::Started);
        }
        let view = self.schedule.view();
        if buffers.len() != view.buffers().len() {
            return Err(StartError::BufferCount { expected: view.buffers().len(), found: buffers.len() });
        }
        for (buffer, (declared, given)) in view.buffers().iter().zip(&buffers).enumerate() {
            let (expected, found) = (declared.length, given.len() as u64);
            if expected != found {
                return Err(StartError::BufferLength { buffer, expected, found });
            }
        }
        let run = &mut self.run;
        run.scratchpad.fill(0);
        run.memory = Memory::new(buffers, std::mem::take(&mut run.scratchpad));
        run.stage = Stage::Running;
        run.work.extend(0..view.header().independent_count);
        run.advance(&view, now_nanoseconds);
        Ok(())
    }

    /// Takes in what happened outside, and executes what that enables.
    ///
    /// # Errors
    /// Events that cannot be: they are refused, and the run is as before.
    pub fn handle(&mut self, event: Event, now_nanoseconds: u64) -> Result<(), EventError> {
        if self.run.stage == Stage::Over {
            return Err(EventError::Over { rank: self.run.rank });
        }
        let view = self.schedule.view();
        let run = &mut self.run;
        match event {
            Event::Packet { source, packet } => {
                let ranks = view.header().ranks;
                if source >= ranks {
                    return Err(EventError::UnknownSource { source_rank: source, ranks });
                }
                match packet {
                    Packet::Eager { tag, ordinal, payload } => {
                        let envelope = Envelope { source, tag, ordinal, bytes: payload.len() as u64 };
                        run.arrive(&view, &self.named, Message { envelope, content: Content::Payload(payload) })?;
                    }
                    Packet::Announce { tag, ordinal, bytes, send } => {
                        let envelope = Envelope { source, tag, ordinal, bytes };
                        run.arrive(&view, &self.named, Message { envelope, content: Content::Announced(send) })?;
                    }
                    Packet::Request { send, receive } => run.requested(&view, source, send, receive)?,
                    Packet::Data { receive, payload } => run.data(&view, source, receive, payload)?,
                }
            }
            Event::CalcFinished { operation } => {
                run.expect(&view, operation, Kind::Calc, Phase::Running, "a computation that has begun")?;
                run.complete(&view, operation.0);
            }
            Event::JoinFinished { operation, result, divided_by_zero } => {
                run.joined(&view, operation, result, divided_by_zero)?;
            }
        }
        run.advance(&view, now_nanoseconds);
        Ok(())
    }

    /// The next effect; `None` when the interpreter waits for an event.
    #[inline]
    pub fn poll(&mut self) -> Option<Effect> {
        self.run.effects.pop_front()
    }

    /// Whether the run has completed; its last effect may still have to be polled.
    pub fn is_over(&self) -> bool {
        self.run.stage == Stage::Over
    }

    /// What the run waits for, to tell a person why it does not end.
    pub fn outstanding(&self) -> impl Iterator<Item = Outstanding> + '_ {
        let records = self.schedule.view().operations();
        let waiting = |phase: Phase| matches!(phase, Phase::Running | Phase::Fetching);
        self.run.phases.iter().zip(records).filter(move |(phase, _)| waiting(**phase)).map(|(_, record)| Outstanding {
            vertex: record.vertex,
            kind: record.kind(),
            peer: matches!(record.kind(), Kind::Send | Kind::Receive).then(|| record.peer()).flatten(),
        })
    }

    /// Hands over a payload buffer for reuse, so that sending need not allocate.
    pub fn recycle(&mut self, payload: Vec<u8>) {
        self.run.recycle(payload);
    }

    /// Ends the run wherever it is, forgets its messages and effects, and gives back the buffers (none if it was not
    /// started). The next run can start.
    pub fn reset(&mut self) -> Vec<Vec<u8>> {
        let run = &mut self.run;
        run.counters.copy_from_slice(&self.initial);
        run.phases.fill(Phase::Waiting);
        run.work.clear();
        run.next = 0;
        run.remaining = self.initial.len() as u32;
        run.allowance.reset();
        run.unexpected.clear();
        run.wildcards.reset();
        run.fetching.clear();
        run.effects.clear();
        run.failure = None;
        if std::mem::replace(&mut run.stage, Stage::Idle) == Stage::Idle {
            return Vec::new();
        }
        let (buffers, scratchpad) = std::mem::take(&mut run.memory).into_parts();
        run.scratchpad = scratchpad;
        buffers
    }
}

impl Run {
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
            self.failure = Some(Failure::DivisionByZero { rank, vertex, operation, data_type, element });
        }
    }

    /// Sends or announces a message; whether the send is complete with that.
    fn send(&mut self, view: &ScheduleView<'_>, record: &OperationRecord, operation: u32) -> bool {
        let (tag, ordinal, bytes) = (record.tag, record.ordinal, record.bytes);
        let eager = bytes <= self.eager_limit;
        let packet = if eager {
            Packet::Eager { tag, ordinal, payload: self.payload(view, record) }
        } else {
            self.phases[operation as usize] = Phase::Running;
            Packet::Announce { tag, ordinal, bytes, send: Handle(operation) }
        };
        self.effects.push_back(Effect::Transmit { peer: record.peer, packet });
        eager
    }

    /// A copy of what an operation sends.
    fn payload(&mut self, view: &ScheduleView<'_>, record: &OperationRecord) -> Vec<u8> {
        let mut payload = self.spare.pop().unwrap_or_default();
        payload.clear();
        payload.reserve_exact(record.bytes as usize);
        self.memory.gather(view.destination(record), &mut payload);
        payload
    }

    fn recycle(&mut self, payload: Vec<u8>) {
        if self.spare.len() < SPARE_PAYLOADS && (1..=SPARE_BYTES).contains(&payload.capacity()) {
            self.spare.push(payload);
        }
    }

    /// Posts a receive, or takes the message that has arrived for it.
    fn post(&mut self, view: &ScheduleView<'_>, record: &OperationRecord, operation: u32) {
        let (source, tag) = (record.peer(), record.tag());
        let arrived = if source.is_some() && tag.is_some() {
            self.unexpected.remove(&operation)
        } else {
            self.wildcards.take_message(source, tag)
        };
        if let Some(message) = arrived {
            self.allowance.give_back(&message);
            return self.accept(view, operation, message);
        }
        self.phases[operation as usize] = Phase::Running;
        if source.is_none() || tag.is_none() {
            self.wildcards.post(source, tag, record.vertex, operation);
        }
    }

    /// Matches a message with its receive, or keeps it until that is posted.
    fn arrive(&mut self, view: &ScheduleView<'_>, named: &NamedReceives, message: Message) -> Result<(), EventError> {
        let Envelope { source, tag, ordinal, .. } = message.envelope;
        let (rank, source_rank) = (self.rank, source);
        if let Some(operation) = named.find(source, tag, ordinal) {
            match self.phases[operation as usize] {
                Phase::Running => self.accept(view, operation, message),
                Phase::Waiting => {
                    let message = self.within_limits(message);
                    self.phases[operation as usize] = Phase::Arrived;
                    self.unexpected.insert(operation, message);
                }
                _ => return Err(EventError::Duplicate { source_rank, tag, ordinal }),
            }
            return Ok(());
        }
        self.wildcards.arrive(source, tag, ordinal).map_err(|refusal| match refusal {
            Refusal::NoReceive => EventError::NoReceive { rank, source_rank, tag, ordinal },
            Refusal::Duplicate => EventError::Duplicate { source_rank, tag, ordinal },
        })?;
        match self.wildcards.take_posted(source, tag) {
            Some(operation) => self.accept(view, operation, message),
            None => {
                let message = self.within_limits(message);
                self.wildcards.keep(message);
            }
        }
        Ok(())
    }

    /// Leaves the message its payload if the limits allow, and hands the payload back to the transport otherwise.
    fn within_limits(&mut self, message: Message) -> Message {
        let envelope = message.envelope;
        match message.content {
            Content::Payload(payload) if !self.allowance.take(envelope.bytes) => {
                let Envelope { source, tag, ordinal, .. } = envelope;
                self.effects.push_back(Effect::HoldBack { source, tag, ordinal, payload });
                Message { envelope, content: Content::Held }
            }
            content => Message { envelope, content },
        }
    }

    /// A posted receive has met its message: takes the payload, or asks for it.
    fn accept(&mut self, view: &ScheduleView<'_>, operation: u32, message: Message) {
        let record = &view.operations()[operation as usize];
        let Envelope { source, tag, ordinal, bytes } = message.envelope;
        if bytes != record.bytes {
            let (rank, vertex) = (self.rank, record.vertex);
            let (source_rank, sent, expected) = (source, bytes, record.bytes);
            return self.end(Err(Failure::SizesDiffer { source_rank, tag, ordinal, sent, rank, vertex, expected }));
        }
        let receive = Handle(operation);
        match message.content {
            Content::Payload(payload) => {
                self.memory.scatter(view.destination(record), &payload);
                self.recycle(payload);
                return self.complete(view, operation);
            }
            Content::Announced(send) => {
                let packet = Packet::Request { send, receive };
                self.effects.push_back(Effect::Transmit { peer: source, packet });
            }
            Content::Held => self.effects.push_back(Effect::Release { source, tag, ordinal, receive }),
        }
        self.phases[operation as usize] = Phase::Fetching;
        if record.peer().is_none() {
            self.fetching.insert(operation, source);
        }
    }

    /// A receiver asks for an announced message.
    fn requested(
        &mut self,
        view: &ScheduleView<'_>,
        source: u32,
        send: Handle,
        receive: Handle,
    ) -> Result<(), EventError> {
        let record = self.expect(view, send, Kind::Send, Phase::Running, "a send that was announced")?;
        self.expect_peer(send, record.peer, source)?;
        let packet = Packet::Data { receive, payload: self.payload(view, record) };
        self.effects.push_back(Effect::Transmit { peer: source, packet });
        self.complete(view, send.0);
        Ok(())
    }

    /// The payload of a message that was asked for.
    fn data(
        &mut self,
        view: &ScheduleView<'_>,
        source: u32,
        receive: Handle,
        payload: Vec<u8>,
    ) -> Result<(), EventError> {
        let record =
            self.expect(view, receive, Kind::Receive, Phase::Fetching, "a receive that requested its payload")?;
        let sender = record.peer().or_else(|| self.fetching.get(&receive.0).copied());
        self.expect_peer(receive, sender.unwrap_or(source), source)?;
        self.expect_length(receive, record.bytes, &payload)?;
        self.memory.scatter(view.destination(record), &payload);
        self.recycle(payload);
        self.complete(view, receive.0);
        Ok(())
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
        let record = self.expect(view, operation, Kind::Join, Phase::Running, "a join that was entered")?;
        let destination = view.destination(record);
        let root = join_mode(record) == JoinMode::Broadcast { root: self.rank };
        if !destination.is_empty() && !root {
            self.expect_length(operation, destination.iter().map(|block| block.length).sum(), &result)?;
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
        if expected == found { Ok(()) } else { Err(EventError::WrongPeer { rank, operation, expected, found }) }
    }

    fn expect_length(&self, handle: Handle, expected: u64, payload: &[u8]) -> Result<(), EventError> {
        let (rank, operation, found) = (self.rank, handle.0, payload.len() as u64);
        if expected == found { Ok(()) } else { Err(EventError::Length { rank, operation, expected, found }) }
    }
}

/// The mode of a join. The record is from a validated schedule, whose codes are known.
fn join_mode(record: &OperationRecord) -> JoinMode {
    match (JoinKind::from_u8(record.join_mode), record.arithmetic()) {
        (Some(JoinKind::Reduce), Some((operation, data_type))) => JoinMode::Reduce { operation, data_type },
        (Some(JoinKind::Gather), _) => JoinMode::Gather,
        (Some(JoinKind::Exchange), _) => JoinMode::Exchange,
        (Some(JoinKind::Broadcast), _) => JoinMode::Broadcast { root: record.peer },
        _ => JoinMode::Barrier,
    }
}
