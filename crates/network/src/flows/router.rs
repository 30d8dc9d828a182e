//! The flows of one node.

use super::channel_end::{ANSWERS, COMMANDS, ChannelEnd};
use super::ends::{Candidates, End};
use super::inbound::{Inbound, InboundFlows};
use super::marks::{AtRest, EndNumber, MarkLine};
use super::memory::{Charge, END_BYTES, Purpose, RankMemory, Refusal};
use super::outbound::{Outbound, OutboundFlows, frame};
use super::table::PortTable;
use super::windows::{ServedWindows, answers_to, window_of};
use crate::node_map::NodeMap;
use crate::transport::Transport;
use crate::transport::batches::Batches;
use crate::transport::records::flows::{self as record, Content, FlowId, FlowKind};
use queues::channel::{ChannelSink, ChannelSource};
use queues::internode::{Requested, Sink, Source};
use queues::window::{LINE_BYTES, SLOTS, ServedWindow};
use shm::mapped::Mapped;
use shm::object::CreateError;
use shm::segment::{Offset, Segment};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Time between polls of the ends as long as no barrier has followed the requests.
pub(super) const UNCERTAIN: Duration = shm::wait::UNCERTAIN_SLICE;

/// Turns between two searches for ends without traffic.
pub(super) const TURNS: u32 = 1024;

/// Memory of the access of one rank to a window: the credit of its commands, which are kept while
/// there is none for the answers, and the ends of both flows.
pub(super) const ACCESS_BYTES: u64 = SLOTS * LINE_BYTES as u64 + 2 * END_BYTES;

/// Certainty of the requested notifications: ranks store a value and then load the word with the
/// request, and a store may leave its processor after that load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Requests {
    /// A barrier has followed all of them.
    Certain,
    /// Some are new: the ends are polled once more in the next turn.
    New,
    /// They were polled, without a barrier, or the kernel has refused it.
    Uncertain,
}

/// The flows of the ranks of one node.
#[derive(Debug)]
pub(crate) struct Flows {
    /// The nodes of the ranks, and this one.
    pub(super) nodes: NodeMap,
    pub(super) node: u32,
    pub(super) outbound: OutboundFlows,
    pub(super) inbound: InboundFlows,
    pub(super) windows: ServedWindows,
    pub(super) memory: RankMemory,
    /// Ranks that have ended their sends to a port before its opener on this node has opened it, if
    /// it ever does.
    pub(super) left: HashMap<(u64, u32), Charge>,
    pub(super) at_rest: AtRest,
    pub(super) batches: Batches,
    /// Ranks of this node that have exited.
    exited: BTreeSet<u32>,
    /// Values have arrived since the last [`take_delivered`](Self::take_delivered).
    has_delivered: bool,
    requests: Requests,
    turns: u32,
}

impl Flows {
    /// The flows of the transport's node.
    pub(crate) fn new(nodes: NodeMap, transport: &dyn Transport) -> Self {
        Flows {
            nodes,
            node: transport.node(),
            outbound: OutboundFlows::default(),
            inbound: InboundFlows::default(),
            windows: ServedWindows::default(),
            memory: RankMemory::default(),
            left: HashMap::new(),
            at_rest: AtRest::default(),
            batches: Batches::new(transport.nodes()),
            exited: BTreeSet::new(),
            has_delivered: false,
            requests: Requests::Certain,
            turns: 0,
        }
    }

    /// Adds a rank of this node with its marks. Without them its ends do not rest.
    pub(crate) fn join(&mut self, rank: u32, marks: Mapped<MarkLine>) {
        self.at_rest.open(rank, marks);
    }

    /// Opens an end of a channel for a rank of this node. `at` is the offset of its ring.
    pub(crate) fn open_channel(
        &mut self,
        (rank, port, end): (u32, u64, ChannelEnd),
        segment: &Arc<Segment>,
        at: Offset,
        transport: &mut dyn Transport,
    ) -> Result<(), Refusal> {
        let (id, peer) = end.flow(rank, port).ok_or(Refusal::Invalid)?;
        let node = self.nodes.of(peer).filter(|node| *node != self.node);
        let node = node.ok_or(Refusal::Invalid)?;
        if self.outbound.ends.contains(&id) || self.inbound.ends.contains(&id) {
            return Err(Refusal::Taken);
        }
        // A ring is connected only if the rank has memory for it: the other end finds it closed once
        // this one is dropped. The credit is at least the words for the slots in this process.
        let free = self.memory.free(rank, Purpose::Channels).saturating_sub(END_BYTES);
        let refusal = |error| match error {
            CreateError::Size { .. } => Refusal::Memory,
            _ => Refusal::Invalid,
        };
        match end {
            ChannelEnd::SendsTo(_) => {
                let source = ChannelSource::connect(segment, at, free).map_err(refusal)?;
                let bytes = source.credit() + END_BYTES;
                let charge = self.memory.charge(rank, Purpose::Channels, bytes)?;
                let opened = Outbound::new(id, node, Box::new(source), Some(charge));
                self.outbound.ends.insert(opened);
            }
            ChannelEnd::ReceivesFrom(_) => {
                let sink = ChannelSink::connect(segment, at, free).map_err(refusal)?;
                let bytes = sink.credit() + END_BYTES;
                let charge = self.memory.charge(rank, Purpose::Channels, bytes)?;
                let opened = Inbound::new(Box::new(sink), [(id, node)], Some(charge));
                self.inbound.ends.insert(opened);
            }
        }
        // The end of the node must be noticed.
        transport.require(node);
        Ok(())
    }

    /// Opens the window of an owner on this node and its port to the ranks of a table that are on other
    /// nodes. Their flows begin with their first commands.
    pub(crate) fn open_window(
        &mut self,
        (owner, port): (u32, u64),
        window: ServedWindow,
        table: &PortTable,
        transport: &mut dyn Transport,
    ) -> Result<(), Refusal> {
        let name = (owner, port);
        if port & (COMMANDS | ANSWERS) != 0 {
            return Err(Refusal::Invalid);
        }
        if self.windows.is_open(name) {
            return Err(Refusal::Taken);
        }
        let origins = table.on_other_nodes(self.node, &self.nodes);
        // One for no rank takes memory, too.
        let bytes = ACCESS_BYTES * (origins.len() as u64 + 1);
        let charge = self.memory.charge(owner, Purpose::Windows, bytes)?;
        // The ends of the nodes must be noticed.
        origins.values().for_each(|node| transport.require(*node));
        self.windows.open(name, window, origins, charge);
        Ok(())
    }

    /// Closes a window of a rank of this node, and the flows of the ranks that use it.
    pub(crate) fn close_window(&mut self, owner: u32, port: u64) {
        for commands in self.windows.close((owner, port)) {
            // The node of the rank ends the answers, too. What was not executed is lost.
            self.inbound.close(&commands, &mut self.batches);
            self.outbound.remove_flow(&answers_to(commands));
        }
    }

    /// Puts what has waited for space, and returns credit. Returns true if there was any.
    pub(crate) fn advance(&mut self) -> bool {
        let Flows { at_rest, outbound, inbound, batches, .. } = self;
        at_rest.wake(|end| wake(outbound, inbound, end));
        inbound.advance(batches)
    }

    /// Sends what the sources contain, as far as there is credit, and nothing to a node with `limit`
    /// bytes in its queue; and the credit of what was released. Returns true if anything was sent.
    pub(crate) fn serve(&mut self, transport: &mut dyn Transport, limit: u64) -> bool {
        let Flows { windows, batches, outbound, .. } = self;
        windows.late.retain(|node, late| {
            let is_delayed = transport.queued(*node) >= limit;
            if !is_delayed {
                let batch = batches.of(*node);
                late.iter().for_each(|commands| commands.append(Content::ReceiverClosed, batch));
            }
            is_delayed
        });
        outbound.serve(batches, transport, limit);
        // Commands were executed, and their flows have credit. A flow of commands that is removed
        // here has no answers left: it has failed in the execution, and the source of the answers has
        // ended then.
        self.inbound.advance_commands(&mut self.batches);
        self.turns = (self.turns + 1) % TURNS;
        if self.turns == 0 {
            self.rest(Candidates::Unused);
        }
        self.batches.send_all(transport, frame)
    }

    /// Polls every queue in the next turn: a rank that was killed may have sent without a
    /// notification.
    pub(crate) fn check_all(&mut self) {
        self.outbound.check_all();
    }

    /// Processes the records of a frame of a node. Returns the number of refused ones; those with
    /// bytes that are found to be no messages later count in [`refused`](Self::refused).
    pub(crate) fn receive(&mut self, node: u32, mut records: &[u8]) -> u64 {
        let mut refused = 0;
        // The decoder of frames has checked that these are whole records.
        while let Some((id, content, rest)) = record::split_first(records) {
            records = rest;
            refused += u64::from(!self.receive_one(node, id, content));
        }
        refused
    }

    /// Processes a record; false if its node may not send it. An end that is not open has been closed
    /// here, and the last records of its flow may still arrive.
    fn receive_one(&mut self, node: u32, id: FlowId, content: Content<'_>) -> bool {
        match content {
            Content::Credit(bytes) => return self.outbound.add_credit(node, &id, bytes),
            Content::ReceiverClosed => {
                let was_open = self.outbound.ends.contains(&id);
                let is_valid = self.outbound.close(node, &id);
                if is_valid && was_open && id.kind == FlowKind::Commands {
                    // Without commands no answers follow.
                    self.inbound.remove(&answers_to(id));
                }
                return is_valid;
            }
            Content::Exit(rank)
                if id.kind != FlowKind::Queue || self.nodes.of(rank) != Some(node) =>
            {
                return false;
            }
            Content::Exit(_) | Content::Data(_) | Content::SenderClosed => {}
        }
        if id.kind == FlowKind::Commands {
            return self.receive_command(node, id, content);
        }
        let is_valid = self.inbound.receive(node, id, content, &mut self.batches);
        let is_data = matches!(content, Content::Data(_));
        self.has_delivered |= is_valid && is_data && id.kind != FlowKind::Queue;
        is_valid
    }

    /// Processes a record with commands on a window of this node, or the end behind them.
    fn receive_command(&mut self, node: u32, id: FlowId, content: Content<'_>) -> bool {
        let mut was_open = self.inbound.ends.contains(&id);
        if let Content::Data(_) = content
            && !was_open
        {
            if !self.windows.is_open(window_of(id)) {
                return self.receive_late(node, id);
            }
            let Some(link) = self.windows.link(node, id) else { return false };
            if link.has_failed() {
                // What follows is ignored as long as the window is open.
                return true;
            }
            let answers = answers_to(id);
            if !self.outbound.ends.contains(&answers) {
                let source = Box::new(link.clone());
                self.outbound.ends.insert(Outbound::new(answers, node, source, None));
            }
            self.inbound.ends.insert(Inbound::new(Box::new(link), [(id, node)], None));
            was_open = true;
        }
        let is_valid = self.inbound.receive(node, id, content, &mut self.batches);
        let answers = answers_to(id);
        if !self.inbound.ends.contains(&id) && was_open {
            if !is_valid {
                self.windows.ignore(id);
            }
            // The rank has dropped its handle, was killed or is ignored, and takes no answers.
            self.outbound.remove_flow(&answers);
        } else if let Some(number) = self.outbound.ends.number(&answers) {
            self.outbound.ends.activate(number);
        }
        is_valid
    }

    /// Notes a command on a window that is not open; false if the node may not send it.
    fn receive_late(&mut self, node: u32, id: FlowId) -> bool {
        let is_between_these =
            self.nodes.of(id.sender) == Some(node) && self.nodes.of(id.receiver) == Some(self.node);
        if is_between_these && !self.exited.contains(&id.receiver) {
            self.windows.note_late(node, id);
        }
        is_between_these
    }

    /// Returns true if values have arrived since the last call.
    pub(crate) fn take_delivered(&mut self) -> bool {
        std::mem::take(&mut self.has_delivered)
    }

    /// Number of flows that were ended because what was kept of them were no messages.
    pub(crate) fn refused(&self) -> u64 {
        self.inbound.refused
    }

    /// Returns true if there is something to do.
    fn is_ready(&mut self, transport: &dyn Transport, limit: u64) -> bool {
        self.windows.late.keys().any(|node| transport.queued(*node) < limit)
            || self.outbound.is_ready(transport, limit)
            || self.inbound.advance(&mut self.batches)
            // An end that was closed since the last turn.
            || self.batches.has_records()
    }

    /// Requests notifications before the agent sleeps. Returns false if there is something to do, or
    /// if the requests are new: another turn comes first.
    pub(crate) fn arm(&mut self, transport: &mut dyn Transport, limit: u64) -> bool {
        if self.is_ready(transport, limit) {
            return false;
        }
        let [mut is_new, mut is_refused, mut is_renewed] = [false; 3];
        let mut count = |requested| match requested {
            Requested::Now => is_new = true,
            Requested::Refused => is_refused = true,
            Requested::Renewed => is_renewed = true,
            Requested::Before => {}
        };
        self.outbound.ends.for_active(|_, one| {
            if one.can_send(transport, limit) {
                count(one.request());
            }
        });
        self.inbound.ends.for_active(|_, one| count(one.request()));
        // Ranks store values and positions, pass their light half of the barrier and load the word.
        // The heavy half interrupts all processors, so it waits for a sleep after which nothing was
        // requested anew: values that follow each other quickly do without. A rank may have loaded
        // the word before the request while its store has not left its processor. That store is
        // visible a turn later, because it takes less time than the system calls of a turn. No
        // processor promises that, so the sleep behind that turn is short.
        let before = self.requests;
        self.requests = match before {
            _ if is_new => Requests::New,
            _ if is_refused => Requests::Uncertain,
            Requests::New => Requests::Uncertain,
            Requests::Uncertain if self.rest(Candidates::Idle) => Requests::Certain,
            unchanged => unchanged,
        };
        // Receivers release slots by plain stores. Pairs with their light fence.
        if is_renewed && !shm::fence::heavy() {
            self.requests = Requests::Uncertain;
        }
        !is_new
            && !self.is_ready(transport, limit)
            && self.outbound.request_of_sets(&mut self.batches, transport, limit)
    }

    /// Passes a barrier, after which the candidates with nothing to do rest. Returns true if it has
    /// followed all requests: for [unused](Candidates::Unused) ends only if there are any.
    fn rest(&mut self, which: Candidates) -> bool {
        let Flows { at_rest, outbound, inbound, batches, requests, .. } = self;
        let mut candidates = outbound.ends.resting_candidates(which, EndNumber::Source);
        candidates.extend(inbound.ends.resting_candidates(which, EndNumber::Sink));
        candidates.retain(|one| {
            at_rest.clear(*one, |end| wake(outbound, inbound, end))
                && end_of(outbound, inbound, one.end)
                    .is_some_and(|end| end.request() != Requested::Refused)
        });
        if which == Candidates::Unused && candidates.is_empty() {
            return false;
        }
        let has_passed = shm::fence::heavy();
        let mut is_certain = has_passed;
        if has_passed {
            inbound.advance(batches);
        }
        for one in candidates {
            let Some(end) = end_of(outbound, inbound, one.end) else { continue };
            if has_passed && end.may_rest() {
                end.activity().is_active = false;
                at_rest.rest(one);
            } else if has_passed || which == Candidates::Unused {
                // What was stored before its sender could find the request is not announced, and a
                // source with a request is not polled. No sleep follows that needs the request.
                end.withdraw();
                // A sink has renewed its own, which no barrier has followed.
                is_certain &= matches!(one.end, EndNumber::Source(_));
            }
        }
        if !is_certain {
            *requests = Requests::Uncertain;
        }
        outbound.ends.drop_inactive();
        inbound.ends.drop_inactive();
        is_certain
    }

    /// Time after which the ends are to be polled again without a notification.
    pub(crate) fn next_poll(&self) -> Option<Duration> {
        let is_watching = self.outbound.ends.is_watching() || self.inbound.ends.is_watching();
        (self.requests == Requests::Uncertain && is_watching).then_some(UNCERTAIN)
    }

    /// Ends the flows of a rank of this node that has exited. What it has sent is sent to the other
    /// nodes first, as far as there is credit.
    pub(crate) fn exit(&mut self, rank: u32) {
        for (owner, port) in self.windows.of_rank(rank) {
            self.close_window(owner, port);
        }
        // The report of the exit ends them on the other nodes.
        self.inbound.remove_where(|id| id.receiver == rank);
        self.outbound.exit(rank);
        self.windows.forget_late(rank);
        self.left.retain(|(_, other), _| *other != rank);
        self.memory.remove(rank);
        self.at_rest.close(rank);
        self.exited.insert(rank);
    }

    /// Ends the flows to a rank of another node that takes nothing any more, and those of answers
    /// from its windows: its agent has sent the answers before it has reported the exit. Bytes of
    /// other flows may follow.
    pub(crate) fn end(&mut self, rank: u32) {
        self.outbound.remove_where(|one| one.id.receiver == rank);
        // A command may lie in the ring to the rank when that is closed. It waits for its answer.
        self.inbound.remove_where(|id| id.sender == rank && id.kind == FlowKind::Answers);
    }

    /// Ends the flows from and to a node that has ended.
    pub(crate) fn lose(&mut self, node: u32) {
        self.windows.lose(node);
        self.outbound.remove_where(|one| one.node == node);
        self.inbound.lose(node);
    }

    /// Returns true if nothing follows in a queue of a rank from a rank of a node that has exited:
    /// the queue's ring has everything that the rank had sent to it.
    pub(crate) fn has_last_of(&self, queue: (u32, u64), node: u32, rank: u32) -> bool {
        self.inbound.has_last_of(queue, node, rank)
    }

    /// Returns true if bytes for a rank that may take them, or ends behind them, wait to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.outbound.has_unsent() || self.batches.has_records()
    }
}

/// Polls an end that has rested.
fn wake(outbound: &mut OutboundFlows, inbound: &mut InboundFlows, end: EndNumber) {
    match end {
        EndNumber::Source(number) => outbound.ends.activate(number),
        EndNumber::Sink(number) => inbound.ends.activate(number),
    }
}

fn end_of<'a>(
    outbound: &'a mut OutboundFlows,
    inbound: &'a mut InboundFlows,
    end: EndNumber,
) -> Option<&'a mut dyn End> {
    match end {
        EndNumber::Source(number) => Some(outbound.ends.get_mut(number)?),
        EndNumber::Sink(number) => Some(inbound.ends.get_mut(number)?),
    }
}
