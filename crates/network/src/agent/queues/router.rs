//! The agent's side of the queues between nodes.

use super::CREDIT;
use super::record::{self, BATCH_BYTES, Content, HEAD_BYTES, MAX_BYTES, QueueId};
use super::table::OutgoingTable;
use crate::agent::session::ProtocolViolation;
use crate::node_map::NodeMap;
use crate::transport::Transport;
use crate::transport::frame::Frame;
use queues::internode::{IncomingQueue, MAX_MESSAGE, OutgoingQueue, incoming, outgoing};
use queues::one_poll::{Members, OnePoll, PollSet};
use shm::segment::{Offset, Segment};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Credit that is returned at once: at least one message always has some.
const RETURNED: u64 = CREDIT / 4;
/// Largest number of queues of a rank: more than it can create, and few enough for this process.
const MOST_QUEUES: usize = 1 << 20;
/// Time after which messages that wait for space are tried again, should other senders take all
/// that a receiver frees.
const RETRY: Duration = Duration::from_millis(1);

/// Queues of the ranks of one node.
#[derive(Debug)]
pub(crate) struct QueueRouter {
    outgoing: Vec<Outgoing>,
    /// Places of the outgoing queues.
    places: HashMap<QueueId, usize>,
    sets: Vec<OutgoingSet>,
    incoming: HashMap<QueueId, Incoming>,
    /// Outgoing queues with messages that wait for credit, for a shorter queue of their node, or
    /// behind an unpublished slot.
    waiting: Vec<usize>,
    /// Queues with messages that wait for space.
    full: Vec<QueueId>,
    batches: Batches,
}

/// A queue that leads to another node.
#[derive(Debug)]
struct Outgoing {
    id: QueueId,
    node: u32,
    queue: Box<dyn OutgoingQueue>,
    /// Bytes that were sent and not taken yet.
    in_flight: u64,
    is_waiting: bool,
    /// Its owner takes nothing any more, or its memory is damaged.
    has_ended: bool,
}

/// The outgoing queues of one port: `count` of them from `first` on.
#[derive(Debug)]
struct OutgoingSet {
    poll: OnePoll,
    first: usize,
    count: usize,
}

/// A queue of a rank of this node.
#[derive(Debug)]
struct Incoming {
    queue: Box<dyn IncomingQueue>,
    senders: BTreeMap<u32, SenderNode>,
    /// Node that is served first.
    next: u32,
    /// Messages of a node wait for space.
    is_full: bool,
}

/// Messages of a node for a queue, and their credit.
#[derive(Debug, Default)]
struct SenderNode {
    /// Bytes for which credit was not returned: those kept and those owed.
    held: u64,
    /// Messages that wait for space, from `start` on.
    kept: Vec<u8>,
    start: usize,
}

/// Records for each node, until they are sent.
#[derive(Debug)]
struct Batches {
    by_node: Vec<Vec<u8>>,
    /// Nodes with records.
    begun: Vec<u32>,
    /// A frame was sent since the last call of `send_all`.
    had_any: bool,
}

impl Batches {
    fn of(&mut self, node: u32) -> &mut Vec<u8> {
        let batch = &mut self.by_node[node as usize];
        if batch.is_empty() && !self.begun.contains(&node) {
            self.begun.push(node);
        }
        batch
    }

    /// Sends the batch of a node if it is long enough.
    fn send_long(&mut self, node: u32, transport: &mut dyn Transport) {
        let batch = &mut self.by_node[node as usize];
        if batch.len() >= BATCH_BYTES {
            self.had_any = true;
            transport.send(node, Frame::Queues { records: std::mem::take(batch) });
        }
    }

    fn send_all(&mut self, transport: &mut dyn Transport) -> bool {
        let mut had_any = std::mem::take(&mut self.had_any);
        for node in self.begun.drain(..) {
            let records = std::mem::take(&mut self.by_node[node as usize]);
            if !records.is_empty() {
                had_any = true;
                transport.send(node, Frame::Queues { records });
            }
        }
        had_any
    }
}

/// Result of an attempt to send from an outgoing queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Some,
    Nothing,
    /// There are messages, and they wait for credit or a shorter queue of the node.
    Blocked,
    /// There are messages behind an unpublished slot, which further attempts void.
    Unpublished,
}

impl Outgoing {
    fn can_send(&self, transport: &dyn Transport, limit: u64) -> bool {
        !self.has_ended
            && CREDIT - self.in_flight >= MAX_MESSAGE as u64
            && transport.queued(self.node) < limit
    }

    fn send(&mut self, batches: &mut Batches, transport: &mut dyn Transport, limit: u64) -> Sent {
        if self.has_ended || !self.queue.is_ready() {
            return Sent::Nothing;
        }
        if !self.can_send(transport, limit) {
            return Sent::Blocked;
        }
        let batch = batches.of(self.node);
        let start = batch.len();
        batch.extend(self.id.head(0));
        let most = (CREDIT - self.in_flight).min(MAX_BYTES as u64) as usize;
        // A queue that is closed or damaged has no messages any more.
        self.has_ended |= self.queue.take(most, batch).is_err();
        let bytes = batch.len() - start - HEAD_BYTES;
        if bytes == 0 {
            batch.truncate(start);
            let is_ready = !self.has_ended && self.queue.is_ready();
            return if is_ready { Sent::Unpublished } else { Sent::Nothing };
        }
        batch[start..start + HEAD_BYTES].copy_from_slice(&self.id.head(bytes));
        self.in_flight += bytes as u64;
        batches.send_long(self.node, transport);
        Sent::Some
    }
}

/// The members of a set, while their messages are sent.
struct Serving<'a> {
    outgoing: &'a mut [Outgoing],
    first: usize,
    waiting: &'a mut Vec<usize>,
    batches: &'a mut Batches,
    transport: &'a mut dyn Transport,
    limit: u64,
}

impl Members for Serving<'_> {
    type Item = ();

    fn take(&mut self, index: usize) -> Option<()> {
        let outgoing = self.outgoing.get_mut(index)?;
        match outgoing.send(self.batches, self.transport, self.limit) {
            Sent::Some => Some(()),
            Sent::Nothing => None,
            Sent::Blocked | Sent::Unpublished => {
                self.wait(index);
                None
            }
        }
    }

    fn is_ready(&mut self, index: usize) -> bool {
        // A queue that waits is served without its bit.
        let Some(one) = self.outgoing.get(index).filter(|one| !one.is_waiting) else {
            return false;
        };
        if one.has_ended || !one.queue.is_ready() {
            return false;
        }
        let can_send = one.can_send(self.transport, self.limit);
        if !can_send {
            // Its bit stays clear after this, and its senders may have found it set.
            self.wait(index);
        }
        can_send
    }
}

impl Serving<'_> {
    /// Has a queue served without its bit.
    fn wait(&mut self, index: usize) {
        if !std::mem::replace(&mut self.outgoing[index].is_waiting, true) {
            self.waiting.push(self.first + index);
        }
    }
}

impl QueueRouter {
    pub(crate) fn new(nodes: u32) -> Self {
        let by_node = (0..nodes).map(|_| Vec::new()).collect();
        QueueRouter {
            outgoing: Vec::new(),
            places: HashMap::new(),
            sets: Vec::new(),
            incoming: HashMap::new(),
            waiting: Vec::new(),
            full: Vec::new(),
            batches: Batches { by_node, begun: Vec::new(), had_any: false },
        }
    }

    /// Opens the queue of a rank of this node to other nodes.
    pub(crate) fn open_incoming(
        &mut self,
        id: QueueId,
        segment: &Arc<Segment>,
        at: Offset,
    ) -> Result<(), ProtocolViolation> {
        if self.incoming.contains_key(&id) || self.incoming.len() >= MOST_QUEUES {
            return Err(ProtocolViolation);
        }
        let queue = incoming(segment, at).map_err(|_| ProtocolViolation)?;
        let opened = Incoming { queue, senders: BTreeMap::new(), next: 0, is_full: false };
        self.incoming.insert(id, opened);
        Ok(())
    }

    /// Opens the outgoing queues in the table at an offset, all for `port`.
    pub(crate) fn open_outgoing(
        &mut self,
        port: u64,
        segment: &Arc<Segment>,
        at: Offset,
        nodes: &NodeMap,
        transport: &mut dyn Transport,
    ) -> Result<(), ProtocolViolation> {
        let invalid = |_| ProtocolViolation;
        let table = OutgoingTable::read(segment, at, nodes.ranks()).map_err(invalid)?;
        if self.outgoing.len() + table.queues.len() > MOST_QUEUES {
            return Err(ProtocolViolation);
        }
        let set = PollSet::connect(segment, table.set).map_err(|_| ProtocolViolation)?;
        let first = self.outgoing.len();
        let own = transport.node();
        for (owner, at) in table.queues {
            let id = QueueId { owner, port };
            let node = nodes.of(owner).filter(|node| *node != own).ok_or(ProtocolViolation)?;
            if self.places.contains_key(&id) {
                return Err(ProtocolViolation);
            }
            let queue = outgoing(segment, at).map_err(|_| ProtocolViolation)?;
            self.places.insert(id, self.outgoing.len());
            self.outgoing.push(Outgoing {
                id,
                node,
                queue,
                in_flight: 0,
                is_waiting: false,
                has_ended: false,
            });
            // The end of the node must be noticed.
            transport.require(node);
        }
        let count = self.outgoing.len() - first;
        self.sets.push(OutgoingSet { poll: OnePoll::new(&set), first, count });
        Ok(())
    }

    /// Sends what the outgoing queues contain, as far as there is credit, and nothing to a node
    /// with `limit` bytes in its queue. Returns true if anything was sent.
    pub(crate) fn serve(&mut self, transport: &mut dyn Transport, limit: u64) -> bool {
        let QueueRouter { outgoing, sets, waiting, batches, .. } = self;
        for place in std::mem::take(waiting) {
            let one = &mut outgoing[place];
            // Ends: credit bounds what is sent.
            let stopped = loop {
                match one.send(batches, transport, limit) {
                    Sent::Some => {}
                    other => break other,
                }
            };
            one.is_waiting = stopped != Sent::Nothing;
            if one.is_waiting {
                waiting.push(place);
            }
        }
        for OutgoingSet { poll, first, count } in sets {
            let outgoing = &mut outgoing[*first..*first + *count];
            let mut members =
                Serving { outgoing, first: *first, waiting, batches, transport, limit };
            while poll.poll(&mut members).is_some() {}
        }
        batches.send_all(transport)
    }

    /// Looks at every outgoing queue in the next turn: a rank that was killed may have sent without
    /// a notification.
    pub(crate) fn check_all(&mut self) {
        for (place, one) in self.outgoing.iter_mut().enumerate() {
            if !std::mem::replace(&mut one.is_waiting, true) {
                self.waiting.push(place);
            }
        }
    }

    /// Processes the records of a frame of a node. Returns the number of refused ones.
    pub(crate) fn receive(&mut self, node: u32, mut records: &[u8]) -> u64 {
        let mut refused = 0;
        // The decoder of frames has checked that these are whole records.
        while let Some((id, content, rest)) = record::split_first(records) {
            records = rest;
            let is_valid = match content {
                Content::Messages(bytes) => self.deliver(node, id, bytes),
                Content::Credit(bytes) => self.add_credit(node, id, bytes),
            };
            refused += u64::from(!is_valid);
        }
        refused
    }

    fn add_credit(&mut self, node: u32, id: QueueId, bytes: u64) -> bool {
        let Some(place) = self.places.get(&id) else { return false };
        let one = &mut self.outgoing[*place];
        let is_valid = one.node == node && bytes <= one.in_flight;
        if is_valid {
            one.in_flight -= bytes;
        }
        is_valid
    }

    fn deliver(&mut self, node: u32, id: QueueId, bytes: &[u8]) -> bool {
        // None of the queues of a rank that has exited is left.
        let Some(queue) = self.incoming.get_mut(&id) else { return false };
        let sender = queue.senders.entry(node).or_default();
        if sender.held + bytes.len() as u64 > CREDIT {
            return false;
        }
        sender.held += bytes.len() as u64;
        // The messages of other nodes that wait come first, too.
        if queue.is_full {
            if sender.start as u64 >= CREDIT {
                sender.kept.drain(..std::mem::take(&mut sender.start));
            }
            sender.kept.extend_from_slice(bytes);
            return true;
        }
        // A queue that takes nothing any more loses its messages, as one does whose rank has exited.
        let Ok(taken) = queue.queue.put(bytes) else {
            sender.return_credit(node, id, &mut self.batches);
            return false;
        };
        if taken < bytes.len() {
            sender.kept.extend_from_slice(&bytes[taken..]);
            if !std::mem::replace(&mut queue.is_full, true) {
                self.full.push(id);
            }
        }
        sender.return_credit(node, id, &mut self.batches);
        true
    }

    /// Sends kept messages to their queues, as far as these have space. Returns true if there was
    /// any space.
    pub(crate) fn retry(&mut self) -> bool {
        let mut had_any = false;
        let QueueRouter { full, incoming, batches, .. } = self;
        full.retain(|id| {
            let Some(queue) = incoming.get_mut(id) else { return false };
            let Incoming { queue, senders, next, is_full } = queue;
            *is_full = false;
            let (before, after): (Vec<_>, Vec<_>) = senders
                .iter_mut()
                .filter(|(_, sender)| !sender.kept.is_empty())
                .partition(|(node, _)| **node < *next);
            for (node, sender) in after.into_iter().chain(before) {
                let Ok(taken) = queue.put(&sender.kept[sender.start..]) else {
                    sender.kept.clear();
                    sender.start = 0;
                    sender.return_credit(*node, *id, batches);
                    continue;
                };
                if taken > 0 {
                    // The others come first next time.
                    *next = *node + 1;
                }
                had_any |= taken > 0;
                sender.start += taken;
                if sender.start == sender.kept.len() {
                    sender.kept.clear();
                    sender.start = 0;
                } else {
                    *is_full = true;
                }
                sender.return_credit(*node, *id, batches);
            }
            *is_full
        });
        had_any
    }

    /// Requests notifications before the agent sleeps. Returns false if there is something to do.
    pub(crate) fn arm(&mut self, transport: &mut dyn Transport, limit: u64) -> bool {
        for id in &self.full {
            if let Some(incoming) = self.incoming.get(id) {
                incoming.queue.request_space();
            }
        }
        if self.retry() {
            return false;
        }
        let QueueRouter { outgoing, sets, waiting, batches, .. } = self;
        let must_wait = |place: &usize| {
            !outgoing[*place].can_send(transport, limit) || !outgoing[*place].queue.is_ready()
        };
        if !waiting.iter().all(must_wait) {
            return false;
        }
        sets.iter_mut().all(|OutgoingSet { poll, first, count }| {
            let outgoing = &mut outgoing[*first..*first + *count];
            let mut members =
                Serving { outgoing, first: *first, waiting, batches, transport, limit };
            !poll.ask_for_event(&mut members)
        })
    }

    /// Time after which messages that wait for space are to be tried again.
    pub(crate) fn next_retry(&self) -> Option<Duration> {
        (!self.full.is_empty()).then_some(RETRY)
    }

    /// Closes the queues of a rank of this node that has exited.
    pub(crate) fn close(&mut self, rank: u32) {
        self.incoming.retain(|id, _| id.owner != rank);
    }

    /// Ends the way to the queues of a rank of another node that takes nothing any more.
    pub(crate) fn end(&mut self, rank: u32) {
        let to_it = self.outgoing.iter_mut().filter(|one| one.id.owner == rank);
        to_it.for_each(|one| one.has_ended = true);
    }

    /// Returns true if an outgoing queue has messages for a rank that may take them.
    pub(crate) fn has_unsent(&self) -> bool {
        self.outgoing.iter().any(|one| !one.has_ended && one.queue.is_ready())
    }
}

impl SenderNode {
    /// Returns credit for what the queue has taken, as soon as there is enough of it.
    fn return_credit(&mut self, node: u32, id: QueueId, batches: &mut Batches) {
        let owed = self.held - (self.kept.len() - self.start) as u64;
        if owed >= RETURNED {
            self.held -= owed;
            batches.of(node).extend(id.credit(owed));
        }
    }
}

#[cfg(test)]
mod tests;
