//! One rank's run under way, and the effects of its interpreter. `payloads` has the transfers of its
//! memory.

mod payloads;

use super::run_context::{MessageOrigin, RunContext, RunInput, RunKey, transmit};
use super::schedule::{IdleRun, RegisteredSchedule};
use super::zero_copy::BorrowedMemory;
use crate::error::{Error, RankExit, system};
use crate::transport::frame::Route;
use crate::transport::payloads::PayloadLocation;
use goal::graph::JoinMode;
use goal::join;
use goal::schedule::Kind;
use interpreter::{Effect, Event, EventError, Failure, Handle, Interpreter, Packet};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A run that can start: its interpreter, its buffers, and those that it borrows instead.
#[derive(Debug)]
pub(crate) struct PreparedRun {
    pub(crate) interpreter: Interpreter,
    pub(crate) buffers: Vec<Vec<u8>>,
    borrowed: Vec<(usize, BorrowedMemory)>,
}

impl PreparedRun {
    pub(crate) fn of((interpreter, buffers): IdleRun) -> Self {
        PreparedRun { interpreter, buffers, borrowed: Vec::new() }
    }

    /// Makes the run use this memory in place of a buffer, which is as long.
    pub(crate) fn borrow_buffer(
        &mut self,
        buffer: usize,
        memory: BorrowedMemory,
    ) -> Result<(), Error> {
        self.interpreter
            .borrow_buffer(buffer, Box::new(memory.clone()))
            .map_err(|error| Error::Operation(error.to_string()))?;
        self.borrowed.push((buffer, memory));
        Ok(())
    }
}

/// One rank's run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) key: RunKey,
    pub(crate) schedule: Arc<RegisteredSchedule>,
    pub(crate) interpreter: Interpreter,
    /// Borrowed buffers, by number.
    borrowed: Vec<(usize, BorrowedMemory)>,
    /// Unexpected payloads for which the interpreter had no memory, by source, tag and ordinal.
    held: HashMap<(u32, u32, u32), Vec<u8>>,
    joins: BTreeMap<u32, JoinState>,
    /// Number of messages and contributions that have not been handed to the transport yet.
    unsent: u32,
}

/// A join: the contributions that have arrived, and this rank's operation once it has started.
#[derive(Debug, Default)]
struct JoinState {
    contributions: BTreeMap<u32, Vec<u8>>,
    operation: Option<(Handle, JoinMode)>,
}

/// Outcome of a run.
pub(crate) type RunOutcome = Result<(), Error>;

impl Run {
    /// A run that has not started, and its buffers.
    pub(crate) fn new(
        key: RunKey,
        schedule: Arc<RegisteredSchedule>,
        prepared: PreparedRun,
    ) -> (Run, Vec<Vec<u8>>) {
        let PreparedRun { interpreter, buffers, borrowed } = prepared;
        let unsent = schedule.sends;
        let held = HashMap::new();
        let joins = BTreeMap::new();
        (Run { key, schedule, interpreter, borrowed, held, joins, unsent }, buffers)
    }

    /// Starts the run. Returns its outcome if it is over at once.
    pub(crate) fn start(
        &mut self,
        buffers: Vec<Vec<u8>>,
        context: &mut RunContext,
    ) -> Option<RunOutcome> {
        self.interpreter.set_eager_budget(context.credits.budget());
        match self.interpreter.start(buffers, context.now) {
            Ok(()) => self.effects(context),
            Err(error) => Some(Err(Error::Operation(error.to_string()))),
        }
    }

    /// The error of a message from a rank in another collective.
    pub(crate) fn mismatch(&self, origin: MessageOrigin) -> Option<Error> {
        let ours = self.schedule.signature;
        let theirs = origin.signature;
        let rank = self.schedule.members.get(origin.source as usize).copied().unwrap_or_default();
        (ours != theirs).then_some(Error::Mismatch {
            sequence: self.key.sequence,
            ours,
            rank,
            theirs,
        })
    }

    /// Processes a message of a rank of the communicator. Returns the run's outcome if it is over.
    pub(crate) fn receive(
        &mut self,
        source: u32,
        input: RunInput,
        context: &mut RunContext,
    ) -> Option<RunOutcome> {
        match input {
            RunInput::Packet(packet) => {
                // Assumes that the message meets its receive. If it does not, the interpreter emits
                // `StoreUnexpected`, which withholds the credit again.
                if let Packet::Eager { payload, .. } = &packet {
                    self.count_consumed(source, payload.len() as u64, context);
                }
                self.event(Event::Packet { source, packet }, context)
            }
            // Without this check a node could make the run keep contributions to any number of
            // joins.
            RunInput::Join { ordinal, .. } if ordinal >= self.schedule.joins => {
                let rank = self.schedule.members.get(source as usize).copied().unwrap_or_default();
                Some(Err(Error::Operation(format!(
                    "rank {rank} contributes to join {ordinal} of a run with {}",
                    self.schedule.joins
                ))))
            }
            RunInput::Join { ordinal, contribution } => {
                self.joins.entry(ordinal).or_default().contributions.insert(source, contribution);
                self.try_join(ordinal, context)
            }
            RunInput::Fail(error) => Some(Err(error)),
            RunInput::Waits => None,
            RunInput::Unreadable => {
                let rank = self.schedule.members.get(source as usize).copied().unwrap_or_default();
                Some(Err(unreadable(&format!("receive a message of rank {rank}"))))
            }
            RunInput::Unanswered => {
                let rank = self.schedule.members.get(source as usize).copied().unwrap_or_default();
                // Where failures are reported, this node has left in order.
                let how = match context.has_exit_reports {
                    true => RankExit::Left,
                    false => RankExit::Failed(
                        "does not answer any more: its connection has ended".into(),
                    ),
                };
                Some(Err(Error::RankFailed { rank, how }))
            }
            RunInput::Unserved => {
                let rank = self.schedule.members.get(source as usize).copied().unwrap_or_default();
                Some(Err(Error::Operation(format!(
                    "rank {rank} requested a message of run {} when as many requests of its node \
                     as are kept waited for space in the connection with it: \
                     let fewer collectives be under way at once",
                    self.key.sequence
                ))))
            }
            RunInput::Sent(send) => self.event(Event::Sent { send }, context),
        }
    }

    /// Assigns a message the memory of its receive.
    pub(crate) fn admit(
        &mut self,
        origin: MessageOrigin,
        packet: &Packet,
        bytes: u64,
    ) -> Option<PayloadLocation> {
        let MessageOrigin { node, source, signature } = origin;
        // As in `RunTable::deliver`, which reports what is wrong with other messages.
        let is_from_there = self.schedule.nodes.get(source as usize) == Some(&node)
            && self.schedule.signature == signature;
        if !is_from_there {
            return None;
        }
        let receive = self.interpreter.admit(source, packet, bytes)?;
        Some(self.key.payload(receive))
    }

    /// Processes an event. Returns the run's outcome if it is over.
    pub(crate) fn event(&mut self, event: Event, context: &mut RunContext) -> Option<RunOutcome> {
        self.interpreter.set_eager_budget(context.credits.budget());
        match self.interpreter.handle(event, context.now) {
            Ok(()) => self.effects(context),
            // The run does not need what arrives after its end.
            Err(EventError::Over { .. }) => None,
            Err(error) => Some(Err(Error::Operation(error.to_string()))),
        }
    }

    /// Ranks of the job that the run waits for at this moment.
    pub(crate) fn waiting_for(&self) -> BTreeSet<u32> {
        let members = &self.schedule.members;
        let own = members.get(self.schedule.rank as usize);
        let mut ranks = BTreeSet::new();
        for outstanding in self.interpreter.outstanding() {
            match (outstanding.kind, outstanding.peer) {
                (Kind::Calc, _) => {}
                (Kind::Join, _) => ranks.extend(self.missing_contributors()),
                (_, Some(peer)) => ranks.extend(members.get(peer as usize)),
                (_, None) => ranks.extend(members.iter().filter(|member| Some(*member) != own)),
            }
        }
        ranks
    }

    /// Sends the ranks that the run waits for a sign that this rank executes it.
    pub(crate) fn announce_wait(&self, context: &mut RunContext) {
        let awaited = self.waiting_for();
        for (peer, member) in (0..).zip(self.schedule.members.iter()) {
            if awaited.contains(member) {
                self.transmit(peer, RunInput::Waits, context);
            }
        }
    }

    /// Ranks of the job that have not contributed to joins that have started.
    fn missing_contributors(&self) -> impl Iterator<Item = u32> + '_ {
        let started = self.joins.values().filter(|join| join.operation.is_some());
        started.flat_map(|join| {
            (0..)
                .zip(self.schedule.members.iter().copied())
                .filter(|(rank, _)| !join.contributions.contains_key(rank))
                .map(|(_, member)| member)
        })
    }

    /// Returns true if a message of this run has not been handed to the transport yet.
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent > 0
    }

    /// A rank of the job on this node to which the run has sent a request to send that has not been
    /// answered.
    pub(crate) fn unanswered_by(&self, node: u32) -> Option<u32> {
        self.interpreter.outstanding().find_map(|outstanding| {
            let is_request = outstanding.kind == Kind::Send && !outstanding.is_on_its_way;
            let peer = outstanding.peer.filter(|_| is_request)? as usize;
            let is_there = self.schedule.nodes.get(peer) == Some(&node);
            self.schedule.members.get(peer).copied().filter(|_| is_there)
        })
    }

    /// Returns the credit for payloads that the run still holds.
    pub(crate) fn release_held(&mut self, context: &mut RunContext) {
        for ((source, ..), payload) in std::mem::take(&mut self.held) {
            self.count_consumed(source, payload.len() as u64, context);
        }
    }

    /// Executes the interpreter's effects. Returns the run's outcome if it is over.
    fn effects(&mut self, context: &mut RunContext) -> Option<RunOutcome> {
        while let Some(effect) = self.interpreter.poll() {
            let outcome = match effect {
                Effect::Transmit { peer, packet } => {
                    // Each send hands its payload over once, in one of these packets.
                    if matches!(packet, Packet::Eager { .. } | Packet::Data { .. }) {
                        self.unsent = self.unsent.saturating_sub(1);
                    }
                    self.transmit(peer, RunInput::Packet(packet), context);
                    None
                }
                Effect::TransmitInPlace { peer, packet, send, bytes } => {
                    self.unsent = self.unsent.saturating_sub(1);
                    self.transmit_in_place(peer, packet, send, bytes, context)
                }
                Effect::StoreUnexpected { source, tag, ordinal, payload } => {
                    // The payload stays in memory until its receive is posted, and so does its
                    // credit. `release` returns it, or `release_held` at the end of the run.
                    if let Some(node) = self.schedule.nodes.get(source as usize) {
                        context.credits.withhold(*node, payload.len() as u64);
                    }
                    self.held.insert((source, tag, ordinal), payload);
                    None
                }
                Effect::LoadUnexpected { source, tag, ordinal, receive } => {
                    self.release(source, (tag, ordinal), receive, context);
                    None
                }
                Effect::Calc { operation, nanoseconds, cpu } => {
                    context.timers.begin(self.key, operation, nanoseconds, cpu, context.now);
                    None
                }
                Effect::Join { operation, ordinal, mode, contribution } => {
                    self.unsent = self.unsent.saturating_sub(1);
                    self.start_join(operation, ordinal, mode, contribution, context)
                }
                Effect::Completed(outcome) => Some(outcome.map_err(|failure| error_of(&failure))),
            };
            if outcome.is_some() {
                return outcome;
            }
        }
        None
    }

    /// Hands a held payload back to the interpreter, as a message of the rank that sent it.
    fn release(
        &mut self,
        source: u32,
        (tag, ordinal): (u32, u32),
        receive: Handle,
        context: &mut RunContext,
    ) {
        let payload = self.held.remove(&(source, tag, ordinal)).unwrap_or_default();
        self.count_consumed(source, payload.len() as u64, context);
        let node = self.schedule.nodes.get(source as usize).copied().unwrap_or_default();
        let origin = MessageOrigin { node, source, signature: self.schedule.signature };
        // Through the queue: the interpreter takes no event while it has effects.
        let packet = Packet::Data { receive, payload };
        context.local.push_back((self.key, origin, RunInput::Packet(packet)));
    }

    fn count_consumed(&self, source: u32, bytes: u64, context: &mut RunContext) {
        if let (1.., Some(node)) = (bytes, self.schedule.nodes.get(source as usize)) {
            context.credits.consumed(*node, bytes);
        }
    }

    /// Sends a message from the memory of the run. One to a rank of this node is copied. Returns
    /// the run's outcome if its memory cannot be read.
    fn transmit_in_place(
        &mut self,
        peer: u32,
        packet: Packet,
        send: Handle,
        bytes: u64,
        context: &mut RunContext,
    ) -> Option<RunOutcome> {
        let own = context.transport.node();
        let node = self.schedule.nodes.get(peer as usize).copied().unwrap_or(own);
        let RegisteredSchedule { rank: source, signature, .. } = *self.schedule;
        if node == own {
            let Ok(payload) = self.copy_payload(send) else {
                return Some(Err(unreadable_buffer(self.key.rank)));
            };
            let packet = match packet {
                Packet::Eager { tag, ordinal, .. } => Packet::Eager { tag, ordinal, payload },
                Packet::Data { receive, .. } => Packet::Data { receive, payload },
                other => other,
            };
            self.transmit(peer, RunInput::Packet(packet), context);
            let origin = MessageOrigin { node: own, source, signature };
            context.local.push_back((self.key, origin, RunInput::Sent(send)));
            return None;
        }
        // The schedule was validated: its peers are ranks of the communicator.
        let destination = self.schedule.members.get(peer as usize).copied()?;
        if matches!(packet, Packet::Eager { .. }) {
            context.credits.sent(node, bytes);
        }
        let RunKey { communicator, sequence, .. } = self.key;
        let route = Route { destination, communicator, source, sequence, signature };
        context.transport.send_in_place(node, route, packet, self.key.payload(send), bytes);
        None
    }

    fn transmit(&self, peer: u32, input: RunInput, context: &mut RunContext) {
        transmit(self.key, &self.schedule, peer, input, context);
    }

    /// Sends this rank's contribution to every rank that reads it.
    fn start_join(
        &mut self,
        operation: Handle,
        ordinal: u32,
        mode: JoinMode,
        contribution: Vec<u8>,
        context: &mut RunContext,
    ) -> Option<RunOutcome> {
        let rank = self.schedule.rank;
        let is_read = !matches!(mode, JoinMode::Broadcast { root } if root != rank);
        let ranks = self.schedule.members.len() as u32;
        for peer in (0..ranks).filter(|peer| is_read && *peer != rank) {
            let contribution = contribution.clone();
            self.transmit(peer, RunInput::Join { ordinal, contribution }, context);
        }
        // The entry may exist: contributions of faster ranks arrive before this rank reaches the
        // join.
        let join = self.joins.entry(ordinal).or_default();
        join.contributions.insert(rank, contribution);
        join.operation = Some((operation, mode));
        self.try_join(ordinal, context)
    }

    /// Completes a join if all its contributions are there.
    fn try_join(&mut self, ordinal: u32, context: &mut RunContext) -> Option<RunOutcome> {
        let ranks = self.schedule.members.len();
        let join = self.joins.get(&ordinal)?;
        let (operation, mode) = join.operation?;
        // A broadcast needs the contribution of its root only, so it does not wait for slower
        // ranks.
        let is_ready = match mode {
            JoinMode::Broadcast { root } => join.contributions.contains_key(&root),
            _ => join.contributions.len() == ranks,
        };
        if !is_ready {
            return None;
        }
        let contribution = |rank| join.contributions.get(&rank).map_or(&[][..], Vec::as_slice);
        let all: Vec<&[u8]> = (0..ranks as u32).map(contribution).collect();
        let joined = match join::combine(mode, self.schedule.rank, &all) {
            Ok(joined) => joined,
            Err(error) => return Some(Err(Error::Operation(error.to_string()))),
        };
        // Removed before the event: its effects may change the table.
        self.joins.remove(&ordinal);
        let event = Event::JoinFinished {
            operation,
            result: joined.bytes,
            divided_by_zero: joined.divided_by_zero,
        };
        self.event(event, context)
    }
}

/// The failure of a run of which a message cannot be read.
pub(super) fn unreadable_buffer(rank: u32) -> Error {
    unreadable(&format!("send a message from a buffer of rank {rank}"))
}

fn unreadable(what: &str) -> Error {
    let why = "the memory of the rank's buffer cannot be read: it was unmapped or protected \
               before the collective had ended, or the node has no memory left for it";
    system(what, why)
}

fn error_of(failure: &Failure) -> Error {
    let why = failure.to_string();
    match failure {
        Failure::DivisionByZero { rank, vertex, .. } => {
            Error::DivisionByZero { rank: *rank, vertex: *vertex, why }
        }
        Failure::SizesDiffer { .. } => Error::SizesDiffer(why),
    }
}
