//! One rank's run under way, and how what its interpreter asks for leaves it.

use super::desk::{Place, Taken};
use super::windows::Windows;
use crate::carrier::{Error, Exit};
use crate::nodes::Nodes;
use crate::transport::Transport;
use crate::transport::frame::{Frame, Route};
use goal::graph::JoinMode;
use goal::schedule::Kind;
use interpreter::{Effect, Event, EventError, Failure, Handle, Interpreter, Packet, join};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

/// Which run of which rank of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunKey {
    pub(crate) rank: u32,
    pub(crate) communicator: u32,
    pub(crate) sequence: u64,
}

/// What comes to a run from another rank.
#[derive(Debug)]
pub(crate) enum Incoming {
    Packet(Packet),
    Join { ordinal: u32, contribution: Vec<u8> },
    Fail(Error),
}

impl Incoming {
    /// Bytes that it has besides its envelope.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Incoming::Packet(Packet::Eager { payload, .. } | Packet::Data { payload, .. }) => {
                payload.len() as u64
            }
            Incoming::Join { contribution, .. } => contribution.len() as u64,
            Incoming::Packet(_) | Incoming::Fail(_) => 0,
        }
    }
}

/// Where something for a run comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// The node.
    pub(crate) node: u32,
    /// The rank of the communicator.
    pub(crate) source: u32,
    /// What that rank called.
    pub(crate) stamp: u32,
}

/// What a run touches outside of itself.
#[derive(Debug)]
pub(crate) struct Outside {
    pub(crate) nodes: Nodes,
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) windows: Windows,
    /// For ranks of this node.
    pub(crate) local: VecDeque<(RunKey, Origin, Incoming)>,
    pub(crate) timers: Timers,
    /// By node: whether its connection has ended.
    pub(crate) lost: Vec<bool>,
    /// Nanoseconds of the machine's monotonic clock, read once for what happens together.
    pub(crate) now: u64,
}

/// Computations that end at a certain time.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: BinaryHeap<Reverse<(u64, RunKey, u32)>>,
    /// By rank and cpu: when the last computation there ends.
    busy: HashMap<(u32, u8), u64>,
}

impl Timers {
    fn begin(&mut self, key: RunKey, operation: Handle, nanoseconds: u64, cpu: u8, now: u64) {
        let busy = self.busy.entry((key.rank, cpu)).or_insert(0);
        *busy = (*busy).max(now).saturating_add(nanoseconds);
        self.due.push(Reverse((*busy, key, operation.0)));
    }

    /// When the next computation ends.
    pub(crate) fn next(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((time, ..))| *time)
    }

    /// A computation that has ended by now.
    pub(crate) fn pop(&mut self, now: u64) -> Option<(RunKey, Handle)> {
        self.next().filter(|time| *time <= now)?;
        self.due.pop().map(|Reverse((_, key, operation))| (key, Handle(operation)))
    }
}

/// One rank's run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) key: RunKey,
    pub(crate) taken: Arc<Taken>,
    pub(crate) place: Place,
    pub(crate) interpreter: Interpreter,
    /// Payloads that arrived unexpectedly when the interpreter had no memory left for them: source,
    /// tag, ordinal.
    held: HashMap<(u32, u32, u32), Vec<u8>>,
    meetings: BTreeMap<u32, Meeting>,
    /// Messages and contributions that have not been handed to the transport yet.
    unsent: u32,
}

/// A join: what the ranks contribute, and this rank's operation once it has entered.
#[derive(Debug, Default)]
struct Meeting {
    contributions: BTreeMap<u32, Vec<u8>>,
    entered: Option<(Handle, JoinMode)>,
}

/// How a run ended.
pub(crate) type Outcome = Result<(), Error>;

impl Run {
    pub(crate) fn new(
        key: RunKey,
        taken: Arc<Taken>,
        place: Place,
        interpreter: Interpreter,
    ) -> Run {
        let (held, meetings) = (HashMap::new(), BTreeMap::new());
        let unsent = taken.sends;
        Run { key, taken, place, interpreter, held, meetings, unsent }
    }

    /// Starts it. `Some` when that is already its end.
    pub(crate) fn start(
        &mut self,
        buffers: Vec<Vec<u8>>,
        outside: &mut Outside,
    ) -> Option<Outcome> {
        self.interpreter.set_eager_budget(outside.windows.budget());
        match self.interpreter.start(buffers, outside.now) {
            Ok(()) => self.effects(outside),
            Err(error) => Some(Err(Error::Operation(error.to_string()))),
        }
    }

    /// What is wrong with something from there, if that rank is in another collective.
    pub(crate) fn mismatch(&self, origin: Origin) -> Option<Error> {
        let (ours, theirs) = (self.taken.stamp, origin.stamp);
        let rank = self.taken.members.get(origin.source as usize).copied().unwrap_or_default();
        (ours != theirs).then_some(Error::Mismatch {
            sequence: self.key.sequence,
            ours,
            rank,
            theirs,
        })
    }

    /// Takes in what came from a rank of the communicator. `Some` when the run has ended with it.
    pub(crate) fn take(
        &mut self,
        source: u32,
        incoming: Incoming,
        outside: &mut Outside,
    ) -> Option<Outcome> {
        match incoming {
            Incoming::Packet(packet) => {
                if let Packet::Eager { payload, .. } = &packet {
                    self.consumed(source, payload.len() as u64, outside);
                }
                self.event(Event::Packet { source, packet }, outside)
            }
            Incoming::Join { ordinal, contribution } => {
                self.meetings
                    .entry(ordinal)
                    .or_default()
                    .contributions
                    .insert(source, contribution);
                self.meet(ordinal, outside)
            }
            Incoming::Fail(error) => Some(Err(error)),
        }
    }

    /// Takes in an event. `Some` when the run has ended with it.
    pub(crate) fn event(&mut self, event: Event, outside: &mut Outside) -> Option<Outcome> {
        self.interpreter.set_eager_budget(outside.windows.budget());
        match self.interpreter.handle(event, outside.now) {
            Ok(()) => self.effects(outside),
            // What came too late was not needed.
            Err(EventError::Over { .. }) => None,
            Err(error) => Some(Err(Error::Operation(error.to_string()))),
        }
    }

    /// Ranks of the job that it waits for at this moment.
    pub(crate) fn awaited(&self) -> BTreeSet<u32> {
        let members = self.taken.members.iter().copied();
        let others = || {
            members
                .clone()
                .filter(|member| Some(member) != self.taken.members.get(self.taken.rank as usize))
        };
        let mut awaited = BTreeSet::new();
        for outstanding in self.interpreter.outstanding() {
            match (outstanding.kind, outstanding.peer) {
                (Kind::Calc, _) => {}
                (Kind::Join, _) => awaited.extend(
                    self.meetings
                        .values()
                        .filter(|meeting| meeting.entered.is_some())
                        .flat_map(|meeting| {
                            (0..)
                                .zip(members.clone())
                                .filter(|(rank, _)| !meeting.contributions.contains_key(rank))
                        })
                        .map(|(_, member)| member),
                ),
                (_, Some(peer)) => awaited.extend(self.taken.members.get(peer as usize)),
                (_, None) => awaited.extend(others()),
            }
        }
        awaited
    }

    /// Whether a message of this run has not been handed to the transport yet.
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent > 0
    }

    /// A rank of the job on this node to which the run has announced a message that has not been
    /// asked for.
    pub(crate) fn announced_to(&self, node: u32) -> Option<u32> {
        self.interpreter.outstanding().find_map(|outstanding| {
            let peer = outstanding.peer.filter(|_| outstanding.kind == Kind::Send)? as usize;
            let is_there = self.taken.nodes.get(peer) == Some(&node);
            self.taken.members.get(peer).copied().filter(|_| is_there)
        })
    }

    /// Gives the window back what the run still holds.
    pub(crate) fn let_go(&mut self, outside: &mut Outside) {
        for ((source, ..), payload) in std::mem::take(&mut self.held) {
            self.consumed(source, payload.len() as u64, outside);
        }
    }

    /// Does what the interpreter asks for. `Some` when it is over.
    fn effects(&mut self, outside: &mut Outside) -> Option<Outcome> {
        while let Some(effect) = self.interpreter.poll() {
            let ended = match effect {
                Effect::Transmit { peer, packet } => {
                    // Each send hands over its payload once, in one of these packets.
                    if matches!(packet, Packet::Eager { .. } | Packet::Data { .. }) {
                        self.unsent = self.unsent.saturating_sub(1);
                    }
                    self.transmit(peer, Incoming::Packet(packet), outside);
                    None
                }
                Effect::StoreUnexpected { source, tag, ordinal, payload } => {
                    if let Some(node) = self.taken.nodes.get(source as usize) {
                        outside.windows.withhold(*node, payload.len() as u64);
                    }
                    self.held.insert((source, tag, ordinal), payload);
                    None
                }
                Effect::LoadUnexpected { source, tag, ordinal, receive } => {
                    let payload = self.held.remove(&(source, tag, ordinal)).unwrap_or_default();
                    self.consumed(source, payload.len() as u64, outside);
                    let released = Packet::Data { receive, payload };
                    // It comes on behalf of the rank that sent it.
                    let node = self.taken.nodes.get(source as usize).copied().unwrap_or_default();
                    let origin = Origin { node, source, stamp: self.taken.stamp };
                    outside.local.push_back((self.key, origin, Incoming::Packet(released)));
                    None
                }
                Effect::Calc { operation, nanoseconds, cpu } => {
                    outside.timers.begin(self.key, operation, nanoseconds, cpu, outside.now);
                    None
                }
                Effect::Join { operation, ordinal, mode, contribution } => {
                    self.unsent = self.unsent.saturating_sub(1);
                    self.enter(operation, ordinal, mode, contribution, outside)
                }
                Effect::Completed(outcome) => {
                    Some(outcome.map_err(|failure| self.failure(&failure)))
                }
            };
            if ended.is_some() {
                return ended;
            }
        }
        None
    }

    fn failure(&self, failure: &Failure) -> Error {
        let why = failure.to_string();
        match failure {
            Failure::DivisionByZero { rank, vertex, .. } => {
                Error::DivisionByZero { rank: *rank, vertex: *vertex, why }
            }
            Failure::SizesDiffer { .. } => Error::SizesDiffer(why),
        }
    }

    fn consumed(&self, source: u32, bytes: u64, outside: &mut Outside) {
        if let (1.., Some(node)) = (bytes, self.taken.nodes.get(source as usize)) {
            outside.windows.consumed(*node, bytes);
        }
    }

    fn transmit(&self, peer: u32, what: Incoming, outside: &mut Outside) {
        transmit(self.key, &self.taken, peer, what, outside);
    }

    /// Hands this rank's contribution to everybody who looks at it.
    fn enter(
        &mut self,
        operation: Handle,
        ordinal: u32,
        mode: JoinMode,
        contribution: Vec<u8>,
        outside: &mut Outside,
    ) -> Option<Outcome> {
        let rank = self.taken.rank;
        let is_wanted = !matches!(mode, JoinMode::Broadcast { root } if root != rank);
        for peer in (0..self.taken.members.len() as u32).filter(|peer| is_wanted && *peer != rank) {
            self.transmit(
                peer,
                Incoming::Join { ordinal, contribution: contribution.clone() },
                outside,
            );
        }
        let meeting = self.meetings.entry(ordinal).or_default();
        meeting.contributions.insert(rank, contribution);
        meeting.entered = Some((operation, mode));
        self.meet(ordinal, outside)
    }

    /// Ends a join whose contributions are all there.
    fn meet(&mut self, ordinal: u32, outside: &mut Outside) -> Option<Outcome> {
        let ranks = self.taken.members.len();
        let meeting = self.meetings.get(&ordinal)?;
        let (operation, mode) = meeting.entered?;
        let is_ready = match mode {
            JoinMode::Broadcast { root } => meeting.contributions.contains_key(&root),
            _ => meeting.contributions.len() == ranks,
        };
        if !is_ready {
            return None;
        }
        let contribution = |rank| meeting.contributions.get(&rank).map_or(&[][..], Vec::as_slice);
        let all: Vec<&[u8]> = (0..ranks as u32).map(contribution).collect();
        let joined = match join::combine(mode, self.taken.rank, &all) {
            Ok(joined) => joined,
            Err(error) => return Some(Err(Error::Operation(error.to_string()))),
        };
        self.meetings.remove(&ordinal);
        let (result, divided_by_zero) = (joined.bytes, joined.divided_by_zero);
        self.event(Event::JoinFinished { operation, result, divided_by_zero }, outside)
    }
}

/// Sends something of a run to a rank of the communicator.
fn transmit(key: RunKey, taken: &Taken, peer: u32, what: Incoming, outside: &mut Outside) {
    let (communicator, sequence) = (key.communicator, key.sequence);
    let (source, stamp) = (taken.rank, taken.stamp);
    // The schedule was checked: its peers are ranks of the communicator.
    let Some(destination) = taken.members.get(peer as usize).copied() else { return };
    let own = outside.transport.node();
    let node = taken.nodes.get(peer as usize).copied().unwrap_or(own);
    if let Incoming::Packet(Packet::Eager { payload, .. }) = &what {
        outside.windows.sent(node, payload.len() as u64);
    }
    if node == own {
        let key = RunKey { rank: destination, communicator, sequence };
        let origin = Origin { node: own, source, stamp };
        return outside.local.push_back((key, origin, what));
    }
    // A node that has ended in order is no failure, and takes no announced message either.
    if outside.lost[node as usize] && matches!(what, Incoming::Packet(Packet::RequestToSend { .. }))
    {
        let origin = Origin { node, source: peer, stamp };
        let left = Error::RankFailed { rank: destination, how: Exit::Left };
        return outside.local.push_back((key, origin, Incoming::Fail(left)));
    }
    let route = Route { destination, communicator, source, sequence, stamp };
    let frame = match what {
        Incoming::Packet(packet) => Frame::Packet(route, packet),
        Incoming::Join { ordinal, contribution } => Frame::Join { route, ordinal, contribution },
        Incoming::Fail(error) => Frame::Fail(route, error),
    };
    outside.transport.send(node, frame);
}

/// Tells the other ranks of the communicator that this one's part of a run cannot end.
pub(crate) fn tell_others(key: RunKey, taken: &Taken, error: &Error, outside: &mut Outside) {
    for peer in (0..taken.members.len() as u32).filter(|peer| *peer != taken.rank) {
        transmit(key, taken, peer, Incoming::Fail(error.clone()), outside);
    }
}
