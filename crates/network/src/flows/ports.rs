//! Ports of queues: what a rank opens, and the ranks that share it.

use super::inbound::{Inbound, queue_name};
use super::memory::{END_BYTES, Purpose, Refusal};
use super::outbound::Outbound;
use super::router::Flows;
use super::table::PortTable;
use crate::node_map::NodeMap;
use crate::transport::Transport;
use crate::transport::records::flows::{FlowId, FlowKind};
use queues::internode::{QUEUE_CREDIT, Sink, incoming, incoming_basic, outgoing, outgoing_basic};
use queues::one_poll::PollSet;
use shm::mapped::Mapped;
use shm::segment::{Offset, Segment};
use shm::sync::AtomicU64;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// Offset that stands for no queue.
pub(super) const NONE: Offset = Offset(0);

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
    /// Those of this node; the first opens the flows to others.
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
            // A repeated rank would take memory that is not accounted for, and have two flows of
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

    /// Returns the queues of ranks of other nodes, each as its owner, its node and the outgoing queue
    /// to it. Empty if another rank of this node opens the flows to them.
    fn remote_queues(&self, opener: u32) -> Vec<(u32, u32, Offset)> {
        if self.local.first() != Some(&opener) {
            return Vec::new();
        }
        self.remote.iter().copied().filter(|(.., at)| *at != NONE).collect()
    }
}

impl Flows {
    /// Opens a port of a rank of this node: its receive queue, and, if the rank opens the flows to
    /// the other nodes, the outgoing queues of the node. `exited` are the ranks of the job that have
    /// exited: their exits are not processed a second time.
    pub(crate) fn open_port(
        &mut self,
        rank: u32,
        request: PortRequest,
        segment: &Arc<Segment>,
        transport: &mut dyn Transport,
        exited: &BTreeSet<u32>,
    ) -> Result<(), Refusal> {
        let PortRequest { port, queue, table, uses } = request;
        if self.inbound.ends.contains(&queue_name(rank, port)) || self.outbound.has_set(rank, port)
        {
            return Err(Refusal::Taken);
        }
        let invalid = |_| Refusal::Invalid;
        let table = PortTable::read(segment, table, self.nodes.ranks());
        let table = table.map_err(|_| Refusal::Invalid)?;
        let ranks = PortRanks::of(&table, self.node, &self.nodes);
        let ranks = ranks.filter(|ranks| ranks.local.contains(&rank)).ok_or(Refusal::Invalid)?;
        let remote_queues = ranks.remote_queues(rank);
        let receives = queue != NONE;
        // Everything that a rank can make this process allocate is accounted for before.
        let for_queue = END_BYTES + ranks.openers.len() as u64 * (QUEUE_CREDIT + END_BYTES);
        let for_queue =
            self.memory.charge(rank, Purpose::Queues, u64::from(receives) * for_queue)?;
        let for_sources =
            self.memory.charge(rank, Purpose::Queues, remote_queues.len() as u64 * END_BYTES)?;
        let uses = Mapped::<AtomicU64>::new(segment, uses).map_err(|_| Refusal::Invalid)?;
        let to_own: Option<Box<dyn Sink>> = match table.lines {
            _ if !receives => None,
            0 => Some(incoming(segment, queue).map_err(invalid)?),
            lines => Some(incoming_basic(segment, queue, lines).map_err(invalid)?),
        };
        let flow = |sender, receiver| FlowId { kind: FlowKind::Queue, sender, receiver, port };
        if !remote_queues.is_empty() {
            let set = PollSet::connect(segment, table.set).map_err(invalid)?;
            let open = |(index, (owner, node, at)): (usize, (u32, u32, Offset))| {
                let source = match table.lines {
                    0 => outgoing(segment, at),
                    lines => outgoing_basic(segment, at, lines, (&set, index)),
                };
                Ok(Outbound::new(flow(rank, owner), node, source.map_err(invalid)?, None))
            };
            let sources =
                remote_queues.into_iter().enumerate().map(open).collect::<Result<_, _>>()?;
            let left = ranks.local.iter().copied();
            let left = left.filter(|rank| self.left.remove(&(port, *rank)).is_some()).collect();
            let charge = for_sources.of_objects(uses.clone());
            let name = (rank, port);
            self.outbound.open_set(name, &set, sources, ranks.local, (exited, &left), charge);
        }
        if let Some(to_own) = to_own {
            let flows = ranks.openers.iter().map(|(node, opener)| (flow(*opener, rank), *node));
            // They have exited before this queue had a name for them. Their node may have reported
            // it here on this flow already, before there was a queue.
            let before = ranks.remote.iter().map(|(rank, ..)| *rank);
            let before = before.filter(|rank| exited.contains(rank)).collect();
            let mut opened = Inbound::new(to_own, flows, Some(for_queue.of_objects(uses)));
            opened.queue = Some(queue_name(rank, port));
            opened.exited = before;
            self.inbound.open_queue(opened);
        }
        // The loss of each of these nodes must be noticed.
        ranks.openers.keys().for_each(|node| transport.require(*node));
        Ok(())
    }

    /// Closes the receive queue of a rank for a port.
    pub(crate) fn close_receiver(&mut self, rank: u32, port: u64) {
        self.inbound.close(&queue_name(rank, port), &mut self.batches);
    }

    /// Ends the sends of a rank to the queues of a port, also of one that is opened later.
    pub(crate) fn close_senders(&mut self, rank: u32, port: u64) {
        if self.outbound.leave(rank, port) || self.left.contains_key(&(port, rank)) {
            return;
        }
        // A rank without memory for the note stays a sender until it exits.
        if let Ok(charge) = self.memory.charge(rank, Purpose::Queues, END_BYTES) {
            self.left.insert((port, rank), charge);
        }
    }
}
