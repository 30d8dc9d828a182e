//! Basic rings: messages of any length up to a quarter of a ring, from one rank to another.

use super::internode::Internode;
use super::port::{PortMemory, PortUse, ReceiverEnd, SendersEnd};
use super::queues::Offered;
use super::ranks::{Place, PortRanks, ReceivingRank, SendingRanks};
use super::{BasicEnd, pair};
use crate::communicator::Communicator;
use crate::error::{Error, Result, argument};
use engine::signature::{CallKind, Signature};
use network::flows::table::PortTable;
use queues::basic::{Receiver, Sender, bytes_for};
use queues::error::CreateError;
use queues::internode::MAX_BASIC_LINES;
use queues::one_poll::PollSet;
use shm::segment::Offset;
use std::sync::Arc;

/// The two ranks of a ring.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) lines: u64,
}

/// Objects of a rank for a ring.
struct Created {
    ring: Offset,
    /// Table of the port, if the ranks are on two nodes.
    table: Offset,
    memory: PortMemory,
}

impl Communicator {
    /// Opens a Basic ring of `lines` cache lines from rank `from` to rank `to`; `None` on the other
    /// ranks. A message has at most a quarter of the ring's lines, less 8 bytes. A collective call.
    ///
    /// The ranks may be on two nodes. The sender then composes in a ring of its own node, from which
    /// the node services carry the messages; it has at most 2048 lines.
    ///
    /// ```
    /// use tradewind::messages::{BasicEnd, BasicHeader};
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local_nodes(&[1, 1], |world| {
    ///     match world.basic(0, 1, 64)? {
    ///         Some(BasicEnd::Sender(mut sender)) => {
    ///             sender.send(BasicHeader::default(), b"a message of any length")?;
    ///         }
    ///         Some(BasicEnd::Receiver(mut receiver)) => {
    ///             assert_eq!(receiver.recv()?.as_slice(), b"a message of any length");
    ///         }
    ///         None => {}
    ///     }
    ///     world.barrier()
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the ranks are equal or do not exist, `lines` is not a power of two from 4 to 65,536,
    /// or to 2048 between nodes, a rank has no memory left, is gone or in another collective.
    pub fn basic(&self, from: u32, to: u32, lines: u64) -> Result<Option<BasicEnd>> {
        self.check_pair(from, to)?;
        // Apart from the numbers of the kinds of queues.
        let call = Signature::new(CallKind::Queues, lines, 1 << 63 | pair(from, to));
        let (internode, ranks) = self.next_port_ranks();
        let end = self.open_basic(call, Pair { from, to, lines }, internode, ranks)?;
        Ok(end.map(|(end, _)| end))
    }

    /// Opens a ring for the call with this signature, by this port. Returns this rank's end, with
    /// the offset of its ring.
    pub(super) fn open_basic(
        &self,
        call: Signature,
        ends: Pair,
        internode: Option<Internode<'_>>,
        ranks: Arc<PortRanks>,
    ) -> Result<Option<(BasicEnd, Offset)>> {
        self.deferred().sweep();
        let Pair { from, to, .. } = ends;
        let internode = internode.filter(|one| one.group.node_of(from) != one.group.node_of(to));
        let created = self.create_ring(ends, internode.as_ref());
        let own = match &created {
            Ok(Some(Created { ring, table, memory })) => {
                Offered { queue: *ring, table: *table, uses: memory.uses() }
            }
            _ => Offered::default(),
        };
        self.agree_on_port(call, own, |offered| {
            self.open_ring(created?, ends, offered, &ranks, internode.as_ref())
        })
    }

    /// Creates the ring at its receiver, and between nodes one that leads to it at its sender.
    fn create_ring(
        &self,
        ends: Pair,
        internode: Option<&Internode<'_>>,
    ) -> Result<Option<Created>> {
        let Pair { from, to, lines } = ends;
        let sends = internode.is_some() && self.rank() == from;
        if !sends && self.rank() != to {
            return Ok(None);
        }
        let bytes = bytes_for(lines)?;
        // This rank, and the other end of its ring: a rank of the node, or the agent.
        let mut memory = PortMemory::create(self.arena(), 2)?;
        let ring = self.arena().allocate_zeroed(bytes, 128).map_err(CreateError::from)?;
        memory.add(ring);
        let mut table = Offset(0);
        if let Some(Internode { group, .. }) = internode {
            if lines > MAX_BASIC_LINES {
                let most = format!("at most {MAX_BASIC_LINES} between nodes");
                return Err(argument("the lines of a Basic ring", lines.to_string(), most));
            }
            let mut set = Offset(0);
            if sends {
                set = PollSet::create(self.arena(), 1)?.offset();
                memory.add(set);
            }
            let members = &group.context().members;
            let outgoing = if sends { ring } else { Offset(0) };
            let entry = |rank: u32, at| (members[rank as usize], at);
            let ranks = vec![entry(from, Offset(0)), entry(to, outgoing)];
            table = PortTable { set, lines, ranks }.publish(self.arena())?;
            memory.add(table);
        }
        Ok(Some(Created { ring, table, memory }))
    }

    /// Opens this rank's end.
    fn open_ring(
        &self,
        created: Option<Created>,
        ends: Pair,
        offered: &[Offered],
        ranks: &Arc<PortRanks>,
        internode: Option<&Internode<'_>>,
    ) -> Result<Option<(BasicEnd, Offset)>> {
        let Pair { from, to, lines } = ends;
        let rank = self.rank();
        if rank != from && rank != to {
            return Ok(None);
        }
        // Within a node the receiver alone has created a ring, between nodes each end one.
        let end = if internode.is_some() { rank } else { to };
        let ring = match ranks.places().get(end as usize) {
            Some(Place::Here(member)) => offered.get(*member as usize).copied(),
            _ => None,
        };
        let ring = ring.filter(|ring| ring.queue != Offset(0));
        let failed = || Error::CreationFailed { rank: end, what: "a Basic ring" };
        let ring = ring.ok_or_else(failed)?;
        let mut uses = PortUse::begin(self.segment(), std::iter::once(ring.uses), self.deferred())?;
        if let Some(Created { memory, table, .. }) = created {
            let queue = if rank == to { ring.queue } else { Offset(0) };
            let opened = internode.map_or(Ok(()), |internode| {
                internode.open([queue, table, memory.uses()], &memory, 1)
            });
            uses.own(memory);
            opened?;
        }
        let agent = internode.map(Internode::agent);
        let service =
            internode.map(|one| Ok::<_, Error>((one.event()?, one.waits()))).transpose()?;
        let ranks = Arc::clone(ranks);
        let uses = Arc::new(uses);
        if rank == from {
            let _end = Arc::new(SendersEnd { agent, _use: uses });
            let receiver = ReceivingRank { ranks, rank: to, _end };
            let sender = Sender::connect(self.segment(), ring.queue, lines)?;
            let sender = sender.watching_rank(Arc::new(receiver));
            let sender = match service {
                None => sender,
                Some((event, _)) => sender.to_node_service(event),
            };
            return Ok(Some((BasicEnd::Sender(sender), ring.queue)));
        }
        let _end = ReceiverEnd { agent, _use: uses };
        let senders = SendingRanks { ranks, only: Some(from), _end };
        let receiver = Receiver::connect(self.segment(), ring.queue, lines)?;
        let receiver = receiver.watching_rank(Arc::new(senders));
        let receiver = match service {
            None => receiver,
            Some((event, waits)) => receiver.with_remote_sender(event, waits),
        };
        Ok(Some((BasicEnd::Receiver(receiver), ring.queue)))
    }
}
