//! The flows of one node.

use super::channel_end::{ANSWERS, COMMANDS, ChannelEnd};
use super::inbound::{Inbound, InboundFlows};
use super::marks::{AtRest, EndNumber, MarkLine, Resting};
use super::memory::{Charge, Purpose, RankMemory, Refusal};
use super::outbound::{Outbound, OutboundFlows, frame};
use super::table::PortTable;
use super::windows::{FirstCommand, ServedWindows, answers_to};
use crate::node_map::NodeMap;
use crate::transport::Transport;
use crate::transport::batches::Batches;
use crate::transport::records::flows::{self as record, Content, FlowId, FlowKind};
use queues::channel::{ChannelSink, ChannelSource};
use queues::internode::Requested;
use queues::window::{SLOTS, ServedWindow};
use shm::mapped::Mapped;
use shm::segment::{Offset, Segment};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Time between looks at the ends as long as no barrier has followed the requests.
pub(super) const UNCERTAIN: Duration = shm::wait::UNCERTAIN_SLICE;

/// Turns between two looks for ends without traffic.
pub(super) const TURNS: u32 = 1024;

/// Memory of a slot of a channel.
pub(super) const SLOT_BYTES: u64 = 8;

/// Certainty of the requested notifications: ranks store a value and then load the word with the
/// request, and a store may leave its processor after that load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Requests {
    /// A barrier has followed all of them.
    Certain,
    /// Some are new: the ends are looked at once more in the next turn.
    New,
    /// They were looked at, without a barrier, or the kernel has refused it.
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
    at_rest: AtRest,
    pub(super) batches: Batches,
    /// Ranks of this node that have exited.
    exited: BTreeSet<u32>,
    /// Values have arrived since the last look at this.
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

    /// Opens an end of a channel of a rank of this node, with its ring at an offset.
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
        if self.outbound.contains(&id) || self.inbound.contains(&id) {
            return Err(Refusal::Taken);
        }
        // A ring is mapped and its state allocated only if the rank has memory for it.
        let most = self.memory.free(rank, Purpose::Rings) / SLOT_BYTES;
        match end {
            ChannelEnd::SendsTo(_) => {
                let ring = ChannelSource::connect(segment, at, most);
                let ring = ring.map_err(|_| Refusal::Invalid)?;
                let charge = self.charge_ring(rank, ring.slots())?;
                self.outbound.open(Outbound::new((id, node), Box::new(ring)).charged(charge));
            }
            ChannelEnd::ReceivesFrom(_) => {
                let ring = ChannelSink::connect(segment, at, most);
                let ring = ring.map_err(|_| Refusal::Invalid)?;
                let charge = self.charge_ring(rank, ring.slots())?;
                let none = BTreeSet::new();
                self.inbound.open(Inbound::new(Box::new(ring), [(id, node)], none, Some(charge)));
            }
        }
        // The end of the node must be noticed.
        transport.require(node);
        Ok(())
    }

    /// Accounts for the slots of a ring.
    fn charge_ring(&mut self, rank: u32, slots: u64) -> Result<Charge, Refusal> {
        self.memory.charge(rank, Purpose::Rings, SLOT_BYTES * slots)
    }

    /// Opens a window of a rank of this node, which has this name, for those ranks of a table that are
    /// on other nodes. Their flows begin with their first commands.
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
        let charge = self.charge_ring(owner, SLOTS * (origins.len() as u64 + 1))?;
        // The ends of the nodes must be noticed.
        origins.values().for_each(|node| transport.require(*node));
        self.windows.open(name, window, origins, charge)
    }

    /// Closes a window of a rank of this node, and the flows of the ranks that use it.
    pub(crate) fn close_window(&mut self, owner: u32, port: u64) {
        for commands in self.windows.close((owner, port)) {
            // The node of the rank ends the answers, too.
            self.inbound.close_flow(&commands, &mut self.batches);
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
        for (node, late) in &mut windows.late {
            if transport.queued(*node) < limit {
                for commands in late.drain() {
                    commands.append(Content::ReceiverClosed, batches.of(*node));
                }
            }
        }
        outbound.serve(batches, transport, limit);
        self.inbound.advance(&mut self.batches);
        self.turns = (self.turns + 1) % TURNS;
        if self.turns == 0 {
            self.rest(true);
        }
        self.batches.send_all(transport, frame)
    }

    /// Looks at every queue in the next turn: a rank that was killed may have sent without a
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
                let was_open = self.outbound.contains(&id);
                let is_valid = self.outbound.close(node, &id);
                if is_valid && was_open && id.kind == FlowKind::Commands {
                    // Without commands no answers follow.
                    self.inbound.remove_flow(&answers_to(id));
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
        self.has_delivered |= id.kind != FlowKind::Queue && matches!(content, Content::Data(_));
        self.inbound.receive(node, id, content, &mut self.batches)
    }

    /// Processes a record with commands on a window of this node, or the end behind them.
    fn receive_command(&mut self, node: u32, id: FlowId, content: Content<'_>) -> bool {
        let mut was_open = self.inbound.contains(&id);
        if let Content::Data(_) = content
            && !was_open
        {
            match self.windows.first_command(node, id) {
                FirstCommand::Opens(link) => {
                    let none = BTreeSet::new();
                    let sink = Inbound::new(Box::new(link.clone()), [(id, node)], none, None);
                    self.inbound.open(sink);
                    let answers = answers_to(id);
                    if !self.outbound.contains(&answers) {
                        self.outbound.open(Outbound::new((answers, node), Box::new(link)));
                    }
                    was_open = true;
                }
                FirstCommand::Ignored => return true,
                FirstCommand::Refused => return false,
                FirstCommand::Late => return self.receive_late(node, id),
            }
        }
        let is_valid = self.inbound.receive(node, id, content, &mut self.batches);
        if self.inbound.contains(&id) {
            self.outbound.activate_flow(&answers_to(id));
        } else if was_open {
            if !is_valid {
                self.windows.distrust(id);
            }
            // The rank has dropped its handle, was killed or is not trusted, and takes no answers.
            self.outbound.remove_flow(&answers_to(id));
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
        let mut late = self.windows.late.iter().filter(|(_, late)| !late.is_empty());
        late.any(|(node, _)| transport.queued(*node) < limit)
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
        let [mut is_new, mut is_refused, mut is_repeated] = [false; 3];
        let mut count = |requested| match requested {
            Requested::Now => is_new = true,
            Requested::Refused => is_refused = true,
            Requested::Again => is_repeated = true,
            Requested::Before => {}
        };
        self.outbound.request(transport, limit, &mut count);
        self.inbound.request(&mut count);
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
            Requests::Uncertain if self.rest(false) => Requests::Certain,
            unchanged => unchanged,
        };
        if is_repeated {
            // Receivers release slots by plain stores. Pairs with their light fence.
            shm::fence::heavy();
        }
        !is_new
            && !self.is_ready(transport, limit)
            && self.outbound.request_of_sets(&mut self.batches, transport, limit)
    }

    /// Passes a barrier, after which ends with nothing to do rest. Returns true if it was passed.
    /// `unused`: only for the sake of ends without traffic since the last call with it.
    fn rest(&mut self, unused: bool) -> bool {
        let Flows { at_rest, outbound, inbound, batches, requests, .. } = self;
        let mut resting = outbound.may_rest(unused);
        resting.extend(inbound.may_rest(unused));
        resting.retain(|one| {
            at_rest.clear(*one, |end| wake(outbound, inbound, end))
                && match one.end {
                    EndNumber::Source(number) => outbound.request_of(number),
                    EndNumber::Sink(number) => inbound.request_of(number),
                }
        });
        if unused && resting.is_empty() {
            return false;
        }
        if !shm::fence::heavy() {
            *requests = Requests::Uncertain;
            for one in resting.iter().filter(|_| unused) {
                if let EndNumber::Source(number) = one.end {
                    outbound.withdraw(number);
                }
            }
            return false;
        }
        inbound.advance(batches);
        for one @ Resting { end, .. } in resting {
            let rests = match end {
                EndNumber::Source(number) => outbound.rest(number),
                EndNumber::Sink(number) => inbound.rest(number),
            };
            if rests {
                at_rest.rest(one);
            }
        }
        outbound.sort_out();
        inbound.sort_out();
        true
    }

    /// Time after which the ends are to be looked at again without a notification.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        let is_watching = self.outbound.is_watching() || self.inbound.is_watching();
        (self.requests == Requests::Uncertain && is_watching).then_some(UNCERTAIN)
    }

    /// Ends the flows of a rank of this node that has exited. What it has sent is sent to the other
    /// nodes first, as far as there is credit.
    pub(crate) fn exit(&mut self, rank: u32) {
        for (owner, port) in self.windows.of_rank(rank) {
            self.close_window(owner, port);
        }
        // The report of the exit ends them on the other nodes.
        self.inbound.exit(rank);
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
        self.outbound.remove_where(|id, _| id.receiver == rank);
        // A command may lie in the ring to the rank when that is closed. It waits for its answer.
        self.inbound.remove_where(|id| id.sender == rank && id.kind == FlowKind::Answers);
    }

    /// Ends the flows from and to a node that has ended.
    pub(crate) fn lose(&mut self, node: u32) {
        self.windows.lose(node);
        self.outbound.remove_where(|_, other| other == node);
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

/// Looks at an end that has rested.
fn wake(outbound: &mut OutboundFlows, inbound: &mut InboundFlows, end: EndNumber) {
    match end {
        EndNumber::Source(number) => outbound.activate(number),
        EndNumber::Sink(number) => inbound.activate(number),
    }
}
