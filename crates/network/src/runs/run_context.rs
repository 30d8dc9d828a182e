//! State that all runs of a host share: their keys, the messages between them, and the way out.

use super::credits::Credits;
use super::schedule::RegisteredSchedule;
use crate::error::Error;
use crate::node_map::NodeMap;
use crate::transport::Transport;
use crate::transport::frame::{Frame, Route};
use crate::transport::payloads::PayloadLocation;
use interpreter::{Handle, Packet};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

/// Identifies a run of a rank of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunKey {
    pub(crate) rank: u32,
    pub(crate) communicator: u32,
    pub(crate) sequence: u64,
}

impl RunKey {
    /// The run of a payload.
    pub(crate) fn of(location: PayloadLocation) -> Self {
        let PayloadLocation { rank, communicator, sequence, .. } = location;
        RunKey { rank, communicator, sequence }
    }

    /// The payload of a send or receive of the run.
    pub(crate) fn payload(self, operation: Handle) -> PayloadLocation {
        let RunKey { rank, communicator, sequence } = self;
        PayloadLocation { rank, communicator, sequence, operation: operation.0 }
    }
}

/// A message for a run from another rank.
#[derive(Debug)]
pub(crate) enum RunInput {
    Packet(Packet),
    Join {
        ordinal: u32,
        contribution: Vec<u8>,
    },
    Fail(Error),
    /// The source has waited long for this rank. It needs no answer: the message says that the source
    /// executes the run.
    Waits,
    /// A message that the source's node could not read.
    Unreadable,
    /// A request to send of the run itself is not answered: the connection has ended.
    Unanswered,
    /// A request of the source for a payload that is not answered: too many of its node wait.
    Unserved,
    /// The payload of a send of the run itself has been copied.
    Sent(Handle),
}

impl RunInput {
    /// Bytes of the payload.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            RunInput::Packet(Packet::Eager { payload, .. } | Packet::Data { payload, .. }) => {
                payload.len() as u64
            }
            RunInput::Join { contribution, .. } => contribution.len() as u64,
            RunInput::Packet(_)
            | RunInput::Fail(_)
            | RunInput::Waits
            | RunInput::Unreadable
            | RunInput::Unanswered
            | RunInput::Unserved
            | RunInput::Sent(_) => 0,
        }
    }
}

/// Source of a message for a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageOrigin {
    /// The node.
    pub(crate) node: u32,
    /// The rank of the communicator.
    pub(crate) source: u32,
    /// Signature of the source's call.
    pub(crate) signature: u32,
}

/// State of the host that all its runs use.
#[derive(Debug)]
pub(crate) struct RunContext {
    pub(crate) nodes: NodeMap,
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) credits: Credits,
    /// Messages between ranks of this node.
    pub(crate) local: VecDeque<(RunKey, MessageOrigin, RunInput)>,
    pub(crate) timers: Timers,
    /// By node: whether its connection has ended.
    pub(crate) lost: Vec<bool>,
    /// True if the exit of a rank is reported, to all ranks, before its connection ends. Otherwise
    /// an end says nothing about its reason, and is known here only.
    pub(crate) has_exit_reports: bool,
    /// Nanoseconds of the machine's monotonic clock, read once per wake-up.
    pub(crate) now: u64,
}

/// Simulated computations that end at a certain time.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: BinaryHeap<Reverse<(u64, RunKey, u32)>>,
    /// By rank and cpu: end of the last computation there.
    busy: HashMap<(u32, u8), u64>,
}

impl Timers {
    pub(super) fn begin(
        &mut self,
        key: RunKey,
        operation: Handle,
        nanoseconds: u64,
        cpu: u8,
        now: u64,
    ) {
        // Computations on one cpu follow each other: this one starts when the one before it ends.
        let busy = self.busy.entry((key.rank, cpu)).or_insert(0);
        *busy = (*busy).max(now).saturating_add(nanoseconds);
        self.due.push(Reverse((*busy, key, operation.0)));
    }

    /// End of the next computation.
    pub(crate) fn next(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((time, ..))| *time)
    }

    /// Removes and returns a computation that has ended by now.
    pub(crate) fn pop(&mut self, now: u64) -> Option<(RunKey, Handle)> {
        self.next().filter(|time| *time <= now)?;
        self.due.pop().map(|Reverse((_, key, operation))| (key, Handle(operation)))
    }
}

/// Sends a message of a run to a rank of the communicator.
pub(super) fn transmit(
    key: RunKey,
    schedule: &RegisteredSchedule,
    peer: u32,
    input: RunInput,
    context: &mut RunContext,
) {
    let RunKey { communicator, sequence, .. } = key;
    let RegisteredSchedule { rank: source, signature, .. } = *schedule;
    // The schedule was validated: its peers are ranks of the communicator.
    let Some(destination) = schedule.members.get(peer as usize).copied() else { return };
    let own = context.transport.node();
    let node = schedule.nodes.get(peer as usize).copied().unwrap_or(own);
    // This node included: messages between its ranks take memory of the same process.
    if let RunInput::Packet(Packet::Eager { payload, .. }) = &input {
        context.credits.sent(node, payload.len() as u64);
    }
    if node == own {
        // Through a queue, not by a call: the destination may be the run that has effects being
        // executed.
        let key = RunKey { rank: destination, communicator, sequence };
        let origin = MessageOrigin { node: own, source, signature };
        return context.local.push_back((key, origin, input));
    }
    // A node that has shut down in order does not fail the run, and does not answer a request to
    // send either: this run cannot end.
    if context.lost[node as usize]
        && matches!(input, RunInput::Packet(Packet::RequestToSend { .. }))
    {
        let origin = MessageOrigin { node, source: peer, signature };
        return context.local.push_back((key, origin, RunInput::Unanswered));
    }
    let route = Route { destination, communicator, source, sequence, signature };
    let frame = match input {
        RunInput::Packet(packet) => Frame::Packet(route, packet),
        RunInput::Join { ordinal, contribution } => Frame::Join { route, ordinal, contribution },
        RunInput::Fail(error) => Frame::Fail(route, error),
        RunInput::Waits => Frame::Waits(route),
        // A run reports the first two to itself only, the table and the transport the others.
        RunInput::Sent(_) | RunInput::Unanswered | RunInput::Unserved | RunInput::Unreadable => {
            return;
        }
    };
    context.transport.send(node, frame);
}

/// Reports to the other ranks of the communicator that this one's part of a run cannot end.
pub(crate) fn report_failure(
    key: RunKey,
    schedule: &RegisteredSchedule,
    error: &Error,
    context: &mut RunContext,
) {
    for peer in (0..schedule.members.len() as u32).filter(|peer| *peer != schedule.rank) {
        transmit(key, schedule, peer, RunInput::Fail(error.clone()), context);
    }
}
