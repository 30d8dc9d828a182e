//! The agent's side of the channels between nodes.

mod by_id;

use self::by_id::{Channels, Named};
use super::MOST_SLOTS;
use super::windows::{ServedWindows, frame, has_answers};
use crate::agent::channel_end::ChannelEnd;
use crate::agent::queues::Refusal;
use crate::agent::queues::table::PortTable;
use crate::agent::session::ProtocolViolation;
use crate::node_map::NodeMap;
use crate::transport::Transport;
use crate::transport::batches::Batches;
use crate::transport::records::channels::{
    self as record, ChannelId, Content, HEAD_BYTES, MAX_BYTES,
};
use queues::channel::{IncomingEnd, IncomingEndError, OutgoingEnd, Requested};
use queues::window::ServedWindow;
use shm::segment::{Offset, Segment};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Time between looks at the rings as long as no barrier has followed the requests.
const UNCERTAIN: Duration = shm::wait::UNCERTAIN_SLICE;

/// Channels of the ranks of one node.
#[derive(Debug)]
pub(crate) struct ChannelRouter {
    outgoing: Channels<Outgoing>,
    incoming: Channels<Incoming>,
    windows: ServedWindows,
    /// Number of slots of the open channels of each rank of this node.
    slots: HashMap<u32, u64>,
    batches: Batches,
    /// Values have arrived since the last look at this.
    has_delivered: bool,
    requests: Requests,
}

/// Certainty of the requested notifications: ranks store a value and then load the word with the
/// request, and a store may leave its processor after that load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Requests {
    /// A barrier has followed all of them.
    Certain,
    /// Some are new: the rings are looked at once more in the next turn.
    New,
    /// They were looked at, without a barrier, or the kernel has refused it.
    Uncertain,
}

/// A channel to a receiver on another node.
#[derive(Debug)]
struct Outgoing {
    id: ChannelId,
    node: u32,
    ring: OutgoingEnd,
    /// Values that were sent and still occupy their slots.
    in_flight: u64,
    /// Its sender has exited, and puts nothing more into the ring.
    is_orphaned: bool,
}

/// A channel from a sender on another node.
#[derive(Debug)]
struct Incoming {
    id: ChannelId,
    node: u32,
    ring: IncomingEnd,
    /// Number of released slots that were reported.
    reported: u64,
    /// Its ring or its sender's agent cannot be trusted.
    has_failed: bool,
}

/// Result of an attempt to send from a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Some,
    Nothing,
    /// The last values were sent before.
    Ended,
}

impl Outgoing {
    fn can_send(&self, transport: &dyn Transport, limit: u64) -> bool {
        self.in_flight < self.ring.slots() && transport.queued(self.node) < limit
    }

    fn send(&mut self, batches: &mut Batches, transport: &mut dyn Transport, limit: u64) -> Sent {
        if self.ring.is_requested() || !self.can_send(transport, limit) {
            return Sent::Nothing;
        }
        let batch = batches.of(self.node);
        let start = batch.len();
        batch.extend(self.id.head_of_values(0));
        let credit = self.ring.slots() - self.in_flight;
        let most = credit.min(MAX_BYTES as u64 / self.ring.value_bytes());
        let taken = self.ring.take(most, batch);
        let bytes = batch.len() - start - HEAD_BYTES;
        match taken {
            Ok(values) if values > 0 => {
                batch[start..start + HEAD_BYTES].copy_from_slice(&self.id.head_of_values(bytes));
                self.in_flight += values;
                batches.send_long(self.node, transport, frame);
                Sent::Some
            }
            // An orphan's stores precede its exit, so nothing follows.
            Ok(_) if !self.is_orphaned => {
                batch.truncate(start);
                Sent::Nothing
            }
            _ => {
                batch.truncate(start);
                batch.extend(self.id.head(Content::SenderClosed));
                batches.send_long(self.node, transport, frame);
                Sent::Ended
            }
        }
    }
}

impl Incoming {
    /// Reports the slots that the receiver has released. Returns true if there are any.
    fn report(&mut self, batches: &mut Batches) -> Result<bool, IncomingEndError> {
        // First: what is released after the next load is notified of by another request.
        self.ring.is_requested();
        let released = self.ring.released()?;
        let credit = released.checked_sub(self.reported).ok_or(IncomingEndError::Corrupt)?;
        if self.has_failed {
            return Err(IncomingEndError::Corrupt);
        }
        if credit > 0 {
            self.reported = released;
            batches.of(self.node).extend(self.id.head(Content::Credit(credit)));
        }
        Ok(credit > 0)
    }

    fn awaits_release(&self) -> bool {
        self.ring.position() > self.reported
    }
}

impl ChannelRouter {
    /// A router of the transport's node.
    pub(crate) fn new(nodes: NodeMap, transport: &dyn Transport) -> Self {
        ChannelRouter {
            outgoing: Channels::new(),
            incoming: Channels::new(),
            windows: ServedWindows::new(nodes, transport.node()),
            slots: HashMap::new(),
            batches: Batches::new(transport.nodes()),
            has_delivered: false,
            requests: Requests::Certain,
        }
    }

    /// Opens an end of a rank of this node, with its ring at an offset. The other end is on `node`.
    pub(crate) fn open(
        &mut self,
        (rank, port, end): (u32, u64, ChannelEnd),
        segment: &Arc<Segment>,
        at: Offset,
        node: u32,
        transport: &mut dyn Transport,
    ) -> Result<(), ProtocolViolation> {
        if node == transport.node() {
            return Err(ProtocolViolation);
        }
        let of_rank = self.slots.entry(rank).or_default();
        let invalid = |_| ProtocolViolation;
        match end {
            ChannelEnd::SendsTo(receiver) => {
                let id = ChannelId { sender: rank, receiver, port };
                let ring = OutgoingEnd::connect(segment, at, MOST_SLOTS - *of_rank);
                let ring = ring.map_err(invalid)?;
                *of_rank += ring.slots();
                let channel = Outgoing { id, node, ring, in_flight: 0, is_orphaned: false };
                self.outgoing.insert(channel)?;
            }
            ChannelEnd::ReceivesFrom(sender) => {
                let id = ChannelId { sender, receiver: rank, port };
                let ring = IncomingEnd::connect(segment, at, MOST_SLOTS - *of_rank);
                let ring = ring.map_err(invalid)?;
                *of_rank += ring.slots();
                self.incoming.insert(Incoming {
                    id,
                    node,
                    ring,
                    reported: 0,
                    has_failed: false,
                })?;
            }
        }
        // The end of the node must be noticed.
        transport.require(node);
        Ok(())
    }

    /// Opens a window of a rank of this node, which has this name, for those ranks of a table that are
    /// on other nodes.
    pub(crate) fn open_window(
        &mut self,
        (owner, port): (u32, u64),
        window: ServedWindow,
        table: &PortTable,
        nodes: &NodeMap,
        transport: &mut dyn Transport,
    ) -> Result<(), Refusal> {
        let node_of = |(rank, _): &(u32, Offset)| Some((*rank, nodes.of(*rank)?));
        let origins = table.ranks.iter().filter_map(node_of);
        let origins: HashMap<u32, u32> =
            origins.filter(|(_, node)| *node != transport.node()).collect();
        let of_rank = self.slots.entry(owner).or_default();
        let slots = slots_of_window(origins.len() as u64);
        if slots > MOST_SLOTS - *of_rank {
            return Err(Refusal::Memory);
        }
        let nodes: Vec<u32> = origins.values().copied().collect();
        self.windows.open((owner, port), window, origins)?;
        *of_rank += slots;
        // The ends of the nodes must be noticed.
        nodes.into_iter().for_each(|node| transport.require(node));
        Ok(())
    }

    /// Closes a window of a rank of this node.
    pub(crate) fn close_window(&mut self, owner: u32, port: u64) {
        if let Some(origins) = self.windows.close((owner, port), &mut self.batches) {
            release(&mut self.slots, owner, slots_of_window(origins));
        }
    }

    /// Sends what the rings contain, as far as there is credit, and nothing to a node with `limit`
    /// bytes in its queue; and the credit of what receivers have taken. Executes commands on windows.
    /// Returns true if anything was sent.
    pub(crate) fn serve(&mut self, transport: &mut dyn Transport, limit: u64) -> bool {
        let ChannelRouter { outgoing, incoming, windows, slots, batches, .. } = self;
        outgoing.retain(|channel| {
            // Ends: credit bounds what is sent.
            let stopped = loop {
                match channel.send(batches, transport, limit) {
                    Sent::Some => {}
                    other => break other,
                }
            };
            let remains = stopped != Sent::Ended;
            if !remains {
                release(slots, channel.id.sender, channel.ring.slots());
            }
            remains
        });
        incoming.retain(|channel| {
            let reported = channel.report(batches);
            if reported.is_err() {
                batches.of(channel.node).extend(channel.id.head(Content::ReceiverClosed));
                release(slots, channel.id.receiver, channel.ring.slots());
            }
            batches.send_long(channel.node, transport, frame);
            reported.is_ok()
        });
        windows.serve(batches, transport, limit);
        batches.send_all(transport, frame)
    }

    /// Processes the records of a frame of a node. Returns the number of refused ones.
    pub(crate) fn receive(&mut self, node: u32, mut records: &[u8]) -> u64 {
        let mut refused = 0;
        // The decoder of frames has checked that these are whole records.
        while let Some((id, content, rest)) = record::split_first(records) {
            records = rest;
            refused += u64::from(!self.receive_one(node, id, content));
        }
        refused
    }

    /// Processes a record; false if its sender may not send it. A channel that is not open has been
    /// closed at this end, and its last records may still arrive.
    fn receive_one(&mut self, node: u32, id: ChannelId, content: Content<'_>) -> bool {
        match content {
            Content::Values(bytes) => {
                let Some(channel) = self.incoming.get(id) else {
                    return self.windows.receive(node, id, bytes, &mut self.batches);
                };
                if channel.node != node {
                    return false;
                }
                self.has_delivered = true;
                match channel.ring.put(bytes) {
                    Ok(()) => true,
                    // The next turn finds it closed, and reports it.
                    Err(IncomingEndError::Closed) => true,
                    Err(why) => {
                        channel.has_failed = true;
                        why == IncomingEndError::Corrupt
                    }
                }
            }
            Content::SenderClosed => {
                let Some(channel) = self.incoming.get(id) else {
                    return self.windows.end_commands(node, id);
                };
                let is_valid = channel.node == node;
                if is_valid {
                    self.end_incoming(id);
                }
                is_valid
            }
            Content::Credit(values) => {
                let Some(channel) = self.outgoing.get(id) else {
                    return self.windows.credit(node, id, values);
                };
                let is_valid = channel.node == node && values <= channel.in_flight;
                if is_valid {
                    channel.in_flight -= values;
                }
                is_valid
            }
            Content::ReceiverClosed => {
                let Some(channel) = self.outgoing.get(id) else {
                    return self.windows.end_answers(node, id);
                };
                let is_valid = channel.node == node;
                if is_valid {
                    self.end_outgoing(id);
                }
                is_valid
            }
        }
    }

    fn end_incoming(&mut self, id: ChannelId) {
        if let Some(channel) = self.incoming.remove(id) {
            release(&mut self.slots, id.receiver, channel.ring.slots());
        }
    }

    fn end_outgoing(&mut self, id: ChannelId) {
        if let Some(channel) = self.outgoing.remove(id) {
            release(&mut self.slots, id.sender, channel.ring.slots());
        }
    }

    /// Returns true if values have arrived since the last call.
    pub(crate) fn take_delivered(&mut self) -> bool {
        std::mem::take(&mut self.has_delivered)
    }

    /// Returns true if there is something to do. What was stored before its end could find the
    /// request is not announced, so the request is withdrawn.
    fn is_ready(&mut self, transport: &dyn Transport, limit: u64) -> bool {
        let mut is_ready = false;
        for channel in &mut self.outgoing.all {
            if channel.can_send(transport, limit) && channel.ring.is_ready() {
                channel.ring.withdraw();
                is_ready = true;
            }
        }
        let is_released = |channel: &Incoming| {
            channel.has_failed || channel.ring.released() != Ok(channel.reported)
        };
        is_ready
            || self.incoming.all.iter().any(is_released)
            || self.windows.is_ready(transport, limit)
            // An end that was closed since the last turn.
            || self.batches.has_records()
    }

    /// Requests notifications before the agent sleeps. Returns false if there is something to do, or
    /// if the requests are new: another turn comes first.
    pub(crate) fn arm(&mut self, transport: &dyn Transport, limit: u64) -> bool {
        if self.is_ready(transport, limit) {
            return false;
        }
        let (mut is_new, mut is_refused) = (false, false);
        let mut count = |requested| {
            is_new |= requested == Requested::Now;
            is_refused |= requested == Requested::Refused;
        };
        let sending = |channel: &&mut Outgoing| channel.can_send(transport, limit);
        self.outgoing.all.iter_mut().filter(sending).for_each(|one| count(one.ring.request()));
        let receiving = |channel: &&mut Incoming| channel.awaits_release();
        self.incoming.all.iter_mut().filter(receiving).for_each(|one| count(one.ring.request()));
        self.windows.request(&mut count);
        // Ranks store values and positions, pass their light half of the barrier and load the word.
        // The heavy half interrupts all processors, so it waits for a sleep after which nothing was
        // requested anew: values that follow each other quickly do without. A rank may have loaded
        // the word before the request while its store has not left its processor. That store is
        // visible a turn later, because it takes less time than the system calls of a turn. No
        // processor promises that, so the sleep behind that turn is short.
        self.requests = match self.requests {
            _ if is_new => Requests::New,
            _ if is_refused => Requests::Uncertain,
            Requests::New => Requests::Uncertain,
            Requests::Uncertain if shm::fence::heavy() => Requests::Certain,
            unchanged => unchanged,
        };
        !is_new && !self.is_ready(transport, limit)
    }

    /// Time after which the rings are to be looked at again without a notification.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        let is_empty = self.outgoing.all.is_empty()
            && self.incoming.all.is_empty()
            && !self.windows.is_awaited();
        (self.requests == Requests::Uncertain && !is_empty).then_some(UNCERTAIN)
    }

    /// Ends the channels of a rank of this node that has exited. What it has sent is sent to the
    /// other nodes first, as far as there is credit.
    pub(crate) fn close(&mut self, rank: u32) {
        let ChannelRouter { outgoing, incoming, windows, slots, batches, .. } = self;
        windows.close_all(rank, batches);
        // The report of the exit ends them on the other nodes.
        incoming.retain(|channel| channel.id.receiver != rank);
        for channel in outgoing.all.iter_mut().filter(|channel| channel.id.sender == rank) {
            channel.is_orphaned = true;
            // A rank that was killed may have stored a value without a notification.
            channel.ring.withdraw();
        }
        slots.remove(&rank);
    }

    /// Ends the channels to a rank of another node that takes nothing any more, and those of
    /// answers from its windows: its agent has sent the answers before it has reported the exit.
    /// Values of other channels may follow.
    pub(crate) fn end(&mut self, rank: u32) {
        let ChannelRouter { outgoing, incoming, windows, slots, .. } = self;
        windows.orphan(rank);
        // A command may lie in the ring to the rank when that is closed. It waits for its answer.
        incoming.retain(|channel| {
            let remains = channel.id.sender != rank || !has_answers(channel.id);
            if !remains {
                release(slots, channel.id.receiver, channel.ring.slots());
            }
            remains
        });
        outgoing.retain(|channel| {
            let remains = channel.id.receiver != rank;
            if !remains {
                release(slots, channel.id.sender, channel.ring.slots());
            }
            remains
        });
    }

    /// Ends the channels from a rank of a node that was lost.
    pub(crate) fn lose(&mut self, rank: u32) {
        let ChannelRouter { incoming, windows, slots, .. } = self;
        windows.lose(rank);
        incoming.retain(|channel| {
            let remains = channel.id.sender != rank;
            if !remains {
                release(slots, channel.id.receiver, channel.ring.slots());
            }
            remains
        });
    }

    /// Returns true if values of ranks that have exited, or ends, wait to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.outgoing.all.iter().any(|channel| channel.is_orphaned) || self.batches.has_records()
    }
}

/// Number of slots that a window for so many ranks counts as. One for none takes memory, too.
const fn slots_of_window(origins: u64) -> u64 {
    queues::window::SLOTS * (origins + 1)
}

/// Counts the slots of a channel of a rank as free.
fn release(slots: &mut HashMap<u32, u64>, rank: u32, count: u64) {
    if let Some(slots) = slots.get_mut(&rank) {
        *slots = slots.saturating_sub(count);
    }
}

impl Named for Outgoing {
    fn id(&self) -> ChannelId {
        self.id
    }
}

impl Named for Incoming {
    fn id(&self) -> ChannelId {
        self.id
    }
}

#[cfg(test)]
mod tests;
