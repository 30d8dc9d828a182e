//! The agent's side of the queues between nodes.

use super::incoming::IncomingQueues;
use super::outgoing::{Outgoing, OutgoingQueues};
use super::table::PortTable;
use super::{CREDIT, Charge, MEMORY, QUEUE_BYTES, Refusal};
use crate::node_map::NodeMap;
use crate::transport::Transport;
use crate::transport::batches::Batches;
use crate::transport::frame::Frame;
use crate::transport::records::queues::{self as record, Content, Link, QueueId};
use queues::internode::{incoming, incoming_basic, outgoing, outgoing_basic};
use queues::one_poll::PollSet;
use shm::mapped::Mapped;
use shm::segment::{Offset, Segment};
use shm::sync::AtomicU64;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Queues of the ranks of one node.
#[derive(Debug)]
pub(crate) struct QueueRouter {
    outgoing: OutgoingQueues,
    incoming: IncomingQueues,
    batches: Batches,
    /// Bytes of this process that the queues of a rank take.
    memory: HashMap<u32, u64>,
    /// Ranks that have ended their sends to a port before its opener on this node has opened it, if
    /// it ever does. Each is part of the rank's memory.
    left: BTreeSet<(u64, u32)>,
}

/// Offset that stands for no queue.
const NONE: Offset = Offset(0);

/// A port, as a rank opens it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortRequest {
    pub(crate) port: u64,
    /// The rank's receive queue, or [`NONE`].
    pub(crate) queue: Offset,
    /// The [`PortTable`] of the node.
    pub(crate) table: Offset,
    /// Count of the users of the rank's objects.
    pub(crate) uses: Offset,
}

/// The ranks of a port as one node sees them.
struct PortRanks {
    /// Those of this node; the first opens the links to others.
    local: Vec<u32>,
    /// The openers of the other nodes, by node.
    openers: BTreeMap<u32, u32>,
    /// Those of other nodes, with the node and the outgoing queue.
    remote: Vec<(u32, u32, Offset)>,
}

impl PortRanks {
    fn of(table: &PortTable, own: u32, nodes: &NodeMap) -> Option<PortRanks> {
        let mut local = Vec::new();
        let mut openers = BTreeMap::new();
        let mut remote = Vec::new();
        let mut seen = HashSet::new();
        for &(rank, at) in &table.ranks {
            let node = nodes.of(rank)?;
            // A repeated rank would take memory that is not accounted for, and have two links of
            // one name.
            if !seen.insert(rank) {
                return None;
            }
            if node == own {
                local.push(rank);
                continue;
            }
            let opener = openers.entry(node).or_insert(rank);
            *opener = rank.min(*opener);
            remote.push((rank, node, at));
        }
        local.sort_unstable();
        Some(PortRanks { local, openers, remote })
    }
}

impl QueueRouter {
    pub(crate) fn new(nodes: u32) -> Self {
        QueueRouter {
            outgoing: OutgoingQueues::default(),
            incoming: IncomingQueues::default(),
            batches: Batches::new(nodes),
            memory: HashMap::new(),
            left: BTreeSet::new(),
        }
    }

    /// Opens a port of a rank of this node: its receive queue, and, if the rank opens the links to
    /// the other nodes, the outgoing queues of the node. `exited` are the ranks of the job that have
    /// exited: their exits are not processed a second time.
    pub(crate) fn open(
        &mut self,
        rank: u32,
        request: PortRequest,
        segment: &Arc<Segment>,
        nodes: &NodeMap,
        transport: &mut dyn Transport,
        exited: &BTreeSet<u32>,
    ) -> Result<(), Refusal> {
        let PortRequest { port, queue, table, uses } = request;
        let id = QueueId { owner: rank, port };
        if self.incoming.contains(id) || self.outgoing.contains(rank, port) {
            return Err(Refusal::Taken);
        }
        let invalid = |_| Refusal::Invalid;
        let table = PortTable::read(segment, table, nodes.ranks()).map_err(|_| Refusal::Invalid)?;
        let ranks = PortRanks::of(&table, transport.node(), nodes);
        let ranks = ranks.filter(|ranks| ranks.local.contains(&rank)).ok_or(Refusal::Invalid)?;
        // The other ranks of the node use the links that the first one opens.
        let is_opener = ranks.local.first() == Some(&rank);
        let links = ranks.remote.iter().filter(|(.., at)| is_opener && *at != NONE);
        let receives = queue != NONE;
        // Everything that a rank can make this process allocate is accounted for before.
        let for_queue = QUEUE_BYTES + ranks.openers.len() as u64 * (CREDIT + QUEUE_BYTES);
        let costs = [u64::from(receives) * for_queue, links.clone().count() as u64 * QUEUE_BYTES];
        let used = self.memory.get(&rank).copied().unwrap_or(0);
        if used + costs[0] + costs[1] > MEMORY {
            return Err(Refusal::Memory);
        }
        let uses = Mapped::<AtomicU64>::new(segment, uses).map_err(|_| Refusal::Invalid)?;
        let to_own = match table.lines {
            _ if !receives => None,
            0 => Some(incoming(segment, queue).map_err(invalid)?),
            lines => Some(incoming_basic(segment, queue, lines).map_err(invalid)?),
        };
        if costs[1] > 0 {
            let set = PollSet::connect(segment, table.set).map_err(invalid)?;
            let open = |(index, &(owner, node, at)): (usize, &(u32, u32, Offset))| {
                let link = Link { queue: QueueId { owner, port }, opener: rank };
                let queue = match table.lines {
                    0 => outgoing(segment, at),
                    lines => outgoing_basic(segment, at, lines, (&set, index)),
                };
                Ok(Outgoing::new(link, node, queue.map_err(invalid)?))
            };
            let queues = links.enumerate().map(open).collect::<Result<_, _>>()?;
            let charge = Charge::new(costs[1], uses.clone());
            let left = ranks.local.iter().copied().filter(|rank| self.forget_left(port, *rank));
            let left = left.collect();
            self.outgoing.open((rank, port), &set, queues, ranks.local, (exited, &left), charge);
        }
        if let Some(to_own) = to_own {
            let openers = ranks.openers.iter().map(|(node, opener)| (*opener, *node));
            // They have exited before this queue had a name for them. Their node may have reported
            // it here on this link already, before there was a queue.
            let before = ranks.remote.iter().map(|(rank, ..)| *rank);
            let before = before.filter(|rank| exited.contains(rank)).collect();
            self.incoming.open(id, to_own, openers, before, Charge::new(costs[0], uses));
        }
        *self.memory.entry(rank).or_default() += costs[0] + costs[1];
        // The loss of each of these nodes must be noticed.
        ranks.openers.keys().for_each(|node| transport.require(*node));
        Ok(())
    }

    /// Closes the receive queue of a rank for a port.
    pub(crate) fn close_receiver(&mut self, rank: u32, port: u64) {
        let charge = self.incoming.close(QueueId { owner: rank, port }, &mut self.batches);
        self.release_memory(rank, charge.map_or(0, |charge| charge.bytes));
    }

    /// Ends the sends of a rank to the queues of a port, also of one that is opened later.
    pub(crate) fn close_senders(&mut self, rank: u32, port: u64) {
        if self.outgoing.leave(rank, port) || self.left.contains(&(port, rank)) {
            return;
        }
        // A rank without memory for the note stays a sender until it exits.
        let used = self.memory.entry(rank).or_default();
        if *used + QUEUE_BYTES <= MEMORY {
            *used += QUEUE_BYTES;
            self.left.insert((port, rank));
        }
    }

    /// Returns true if a rank has ended its sends to a port before, and forgets that.
    fn forget_left(&mut self, port: u64, rank: u32) -> bool {
        let has_left = self.left.remove(&(port, rank));
        if has_left {
            self.release_memory(rank, QUEUE_BYTES);
        }
        has_left
    }

    /// Closes all queues of a rank of this node that has exited.
    pub(crate) fn exit(&mut self, rank: u32) {
        self.incoming.close_all(rank);
        self.outgoing.exit(rank);
        self.left.retain(|(_, other)| *other != rank);
        self.memory.remove(&rank);
    }

    fn release_memory(&mut self, rank: u32, bytes: u64) {
        if let Some(used) = self.memory.get_mut(&rank) {
            *used -= bytes;
        }
    }

    /// Sends what the outgoing queues contain, as far as there is credit, and nothing to a node
    /// with `limit` bytes in its queue. Returns true if anything was sent.
    pub(crate) fn serve(&mut self, transport: &mut dyn Transport, limit: u64) -> bool {
        self.outgoing.serve(&mut self.batches, transport, limit);
        for (opener, charge) in self.outgoing.close_unused(&mut self.batches) {
            self.release_memory(opener, charge.bytes);
        }
        self.batches.send_all(transport, |records| Frame::Queues { records })
    }

    /// Looks at every outgoing queue in the next turn: a rank that was killed may have sent without
    /// a notification.
    pub(crate) fn check_all(&mut self) {
        self.outgoing.check_all();
    }

    /// Processes the records of a frame of a node. Returns the number of refused ones; those with
    /// bytes that are found to be no messages later count in [`refused`](Self::refused).
    pub(crate) fn receive(&mut self, node: u32, mut records: &[u8], nodes: &NodeMap) -> u64 {
        let QueueRouter { outgoing, incoming, batches, .. } = self;
        let mut refused = 0;
        // The decoder of frames has checked that these are whole records.
        while let Some((link, content, rest)) = record::split_first(records) {
            records = rest;
            // The opener of a link is a rank of the node that sends on it, and the owner of its
            // queue one of the node that answers.
            let is_valid = match content {
                Content::Messages(bytes) => incoming.deliver(node, link, bytes, batches),
                Content::Exit(rank) => {
                    nodes.of(rank) == Some(node) && incoming.exit(node, link, rank)
                }
                Content::End => incoming.end(node, link),
                Content::Credit(bytes) => outgoing.add_credit(node, &link, bytes),
                Content::Closed => outgoing.close(node, &link),
            };
            refused += u64::from(!is_valid);
        }
        refused
    }

    /// Sends kept messages to their queues, as far as these have space. Returns true if there was
    /// any space.
    pub(crate) fn retry(&mut self) -> bool {
        self.incoming.retry(&mut self.batches)
    }

    /// Number of links that were ended because what was kept of them were no messages.
    pub(crate) fn refused(&self) -> u64 {
        self.incoming.refused
    }

    /// Requests notifications before the agent sleeps. Returns false if there is something to do.
    pub(crate) fn arm(&mut self, transport: &mut dyn Transport, limit: u64) -> bool {
        if self.incoming.request_space() && self.retry() {
            return false;
        }
        self.outgoing.arm(&mut self.batches, transport, limit)
    }

    /// Ends the links to the queues of a rank of another node that takes nothing any more.
    pub(crate) fn end(&mut self, rank: u32) {
        self.outgoing.end(rank);
    }

    /// Ends the links from and to a node that has ended.
    pub(crate) fn lose(&mut self, node: u32) {
        self.outgoing.lose(node);
        self.incoming.lose(node);
    }

    /// Returns true if nothing follows in a queue from a rank of a node that has exited: the
    /// queue's ring has everything that the rank had sent to it.
    pub(crate) fn has_last_of(&self, id: QueueId, node: u32, rank: u32) -> bool {
        self.incoming.has_last_of(id, node, rank)
    }

    /// Returns true if an outgoing queue has messages for a rank that may take them.
    pub(crate) fn has_unsent(&self) -> bool {
        self.outgoing.has_unsent()
    }
}

#[cfg(test)]
mod tests;
