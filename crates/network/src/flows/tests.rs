//! Flows without a node service, their ends and their transport in one thread.

/// Lets a node with ends in its field `node` be used as that node.
macro_rules! derefs_to_node {
    ($type:ident) => {
        impl std::ops::Deref for $type {
            type Target = Node;

            fn deref(&self) -> &Node {
                &self.node
            }
        }

        impl std::ops::DerefMut for $type {
            fn deref_mut(&mut self) -> &mut Node {
                &mut self.node
            }
        }
    };
}

mod channels;
mod kinds;
mod ports;
mod rest;
mod windows;

use super::ports::PortRequest;
use super::table::PortTable;
use super::{ChannelEnd, Flows, Refusal};
use crate::node_map::NodeMap;
use crate::transport::frame::Frame;
use crate::transport::payloads::NoPayloads;
use crate::transport::records::flows::{self as record, Content, FlowId};
use crate::transport::{Arrival, Transport, memory};
use queues::window::ServedWindow;
use shm::arena::Arena;
use shm::segment::{Backing, Offset, Segment};
use std::collections::BTreeSet;
use std::sync::Arc;

const LIMIT: u64 = 1 << 20;
const PORT: u64 = 5;

/// A record that was sent: its flow, its class, and its number of words, its rank or its credit.
type Sent = (FlowId, &'static str, u64);

/// The flows of node 0 with ranks 0 and 3. Ranks 1 and 4 are on node 1, rank 2 is on node 2.
struct Node {
    flows: Flows,
    transport: memory::Memory,
    /// Nodes 1 and 2.
    others: Vec<memory::Memory>,
    arena: Arc<Arena>,
    /// Ranks that had exited when a port is opened.
    exited: BTreeSet<u32>,
}

/// Returns the node of a rank.
fn nodes() -> NodeMap {
    NodeMap::new(["a", "b", "c", "a", "b"])
}

/// Returns a record.
fn of(id: FlowId, content: Content<'_>) -> Vec<u8> {
    let mut record = Vec::new();
    id.append(content, &mut record);
    record
}

/// Returns the records of a frame.
fn records(mut frame: &[u8]) -> impl Iterator<Item = (FlowId, Content<'_>)> {
    std::iter::from_fn(move || {
        let (id, content, rest) = record::split_first(frame)?;
        frame = rest;
        Some((id, content))
    })
}

impl Node {
    fn new() -> Node {
        Node::with_memory(8 << 20)
    }

    /// A node with so many bytes for the ends of its ranks.
    fn with_memory(bytes: u64) -> Node {
        let mut others = memory::connect(3).expect("descriptors");
        let transport = others.remove(0);
        let segment = Arc::new(Segment::create(bytes, Backing::Memory).expect("memory"));
        let arena = Arc::new(Arena::new(segment, 128..bytes).expect("inside"));
        let flows = Flows::new(nodes(), &transport);
        Node { flows, transport, others, arena, exited: BTreeSet::new() }
    }

    fn segment(&self) -> Arc<Segment> {
        Arc::clone(self.arena.segment())
    }

    /// Opens a port of these ranks, each with the outgoing queue to it. The outgoing queues are the
    /// members of the set. `lines` are those of Basic rings.
    fn open_port(
        &mut self,
        (rank, port, queue): (u32, u64, Offset),
        (set, lines): (Offset, u64),
        ranks: &[(u32, Offset)],
    ) -> Result<(), Refusal> {
        let table = PortTable { set, lines, ranks: ranks.to_vec() };
        let at = table.publish(&self.arena).expect("memory");
        assert_eq!(PortTable::read(self.arena.segment(), at, 5), Ok(table));
        let uses = self.arena.allocate_zeroed(8, 64).expect("memory");
        let request = PortRequest { port, queue, table: at, uses };
        let Node { flows, transport, arena, exited, .. } = self;
        flows.open_port(rank, request, arena.segment(), transport, exited)
    }

    /// Opens an end of a channel of rank 0.
    fn open_channel(&mut self, port: u64, end: ChannelEnd, at: Offset) -> Result<(), Refusal> {
        let Node { flows, transport, arena, .. } = self;
        flows.open_channel((0, port, end), arena.segment(), at, transport)
    }

    /// Opens a window of rank 0 for these ranks.
    fn open_window(&mut self, port: u64, at: Offset, ranks: &[u32]) -> Result<(), Refusal> {
        let Node { flows, transport, arena, .. } = self;
        let window = ServedWindow::connect(arena.segment(), at).expect("a window");
        let ranks = ranks.iter().map(|rank| (*rank, Offset(0))).collect();
        let table = PortTable { set: Offset(0), lines: 0, ranks };
        flows.open_window((0, port), window, &table, transport)
    }

    /// Receives a record. Returns the number of refused ones.
    fn receive(&mut self, from: u32, id: FlowId, content: Content<'_>) -> u64 {
        self.flows.receive(from, &of(id, content))
    }

    /// Takes a turn of the node service. Returns true if there was anything to do.
    fn turn(&mut self) -> bool {
        let had_any = self.flows.advance();
        self.flows.serve(&mut self.transport, LIMIT) || had_any
    }

    fn arm(&mut self) -> bool {
        self.flows.arm(&mut self.transport, LIMIT)
    }

    /// Returns true if the node service sleeps after at most one turn without anything to do.
    fn sleeps(&mut self) -> bool {
        self.arm() || self.arm()
    }

    /// Takes a turn, and returns the records that were sent to node 1.
    fn sent(&mut self) -> Vec<Sent> {
        self.turn();
        let frame = self.sent_to(1);
        let sent = records(&frame).map(|(id, content)| match content {
            Content::Data(bytes) => (id, "data", bytes.len() as u64 / 8),
            Content::Exit(rank) => (id, "exit", rank.into()),
            Content::Credit(bytes) => (id, "credit", bytes),
            Content::SenderClosed => (id, "sender closed", 0),
            Content::ReceiverClosed => (id, "receiver closed", 0),
        });
        sent.collect()
    }

    /// Returns the records that another node has got.
    fn sent_to(&mut self, node: u32) -> Vec<u8> {
        self.transport.flush(&mut NoPayloads);
        let mut arrivals = Vec::new();
        let other = &mut self.others[node as usize - 1];
        other.poll(&mut NoPayloads, &mut arrivals).expect("it works");
        let records = arrivals.into_iter().map(|arrival| match arrival {
            Arrival::Frame { frame: Frame::Flows { records }, .. } => records,
            other => panic!("{other:?}"),
        });
        records.collect::<Vec<_>>().concat()
    }
}
