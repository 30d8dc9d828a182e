//! Append buffers: records of all ranks for one of them.

use super::AppendEnds;
use super::internode::Internode;
use super::port::{PortMemory, PortUse, ReceiverEnd, SendersEnd};
use super::queues::{Offered, is_opener};
use super::ranks::{Place, PortRanks, ReceivingRank, SendingRanks};
use crate::communicator::Communicator;
use crate::error::{Error, Result, argument};
use engine::signature::{CallKind, Signature};
use network::flows::table::PortTable;
use queues::append::{Receiver, Sender, create_outgoing};
use queues::internode::MAX_RECORD_BYTES;
use queues::one_poll::PollSet;
use shm::segment::Offset;
use std::sync::Arc;

/// A buffer, as all ranks describe it.
#[derive(Clone, Copy)]
struct Buffer {
    to: u32,
    records: u64,
    record_bytes: u64,
}

/// Objects of a rank for a buffer: on its receiver the buffer, and between nodes the one that leads
/// to it, which one rank of each other node creates.
struct Created {
    receiver: Option<Receiver>,
    queue: Offset,
    table: Offset,
    memory: PortMemory,
}

impl Communicator {
    /// Creates a buffer for `records` records of up to `record_bytes` bytes each, to which all
    /// ranks append and from which rank `to` takes them. A collective call.
    ///
    /// A record is in the buffer as a whole or not at all, and the records of a rank keep their
    /// order. Appending needs no action of the receiver: it may compute, sleep or be stopped.
    ///
    /// The ranks may be on several nodes. The senders of a node then share a buffer of the same
    /// size on their node, from which the node services carry the records; these have at most
    /// 32,760 bytes. Ends are reported as those of [`express`](Self::express).
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local_nodes(&[1, 2], |world| {
    ///     let ends = world.append_buffer(0, 64, 100)?;
    ///     ends.sender.send(&vec![7; world.rank() as usize])?;
    ///     if let Some(mut receiver) = ends.receiver {
    ///         let (mut record, mut bytes) = (Vec::new(), 0);
    ///         for _ in 0..world.size() {
    ///             receiver.recv(&mut record)?;
    ///             bytes += record.len();
    ///         }
    ///         assert_eq!(bytes, 0 + 1 + 2);
    ///     }
    ///     world.barrier()
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if there is no rank `to`, the buffer has no records or more than 16,777,216, a record
    /// has more than 2³⁰ bytes, or more than 32,760 between nodes, a rank has no memory left, is
    /// gone or in another collective.
    pub fn append_buffer(&self, to: u32, records: u64, record_bytes: u64) -> Result<AppendEnds> {
        let size = self.size();
        if to >= size {
            let expected = format!("a rank below {size}");
            return Err(argument("the receiving rank", to.to_string(), expected));
        }
        self.deferred().sweep();
        let (internode, ranks) = self.next_port_ranks();
        if internode.is_some() && record_bytes > MAX_RECORD_BYTES {
            let most = format!("at most {MAX_RECORD_BYTES} between nodes");
            return Err(argument("the bytes of a record", record_bytes.to_string(), most));
        }
        let buffer = Buffer { to, records, record_bytes };
        // Apart from the numbers of the kinds of queues, and from Basic rings.
        let call =
            Signature::new(CallKind::Queues, records, 1 << 62 | record_bytes << 32 | u64::from(to));
        let created = self.create_append(buffer, &ranks, internode.as_ref());
        let own = match &created {
            Ok(Some(Created { queue, table, memory, .. })) => {
                Offered { queue: *queue, table: *table, uses: memory.uses() }
            }
            _ => Offered::default(),
        };
        self.agree_on_port(call, own, |offered| {
            self.open_append(created, buffer, offered, &ranks, internode.as_ref())
        })
    }

    /// Creates the objects of this rank, if it has any.
    fn create_append(
        &self,
        buffer: Buffer,
        ranks: &PortRanks,
        internode: Option<&Internode<'_>>,
    ) -> Result<Option<Created>> {
        let Buffer { to, records, record_bytes } = buffer;
        let receives = self.rank() == to;
        let leads = |port: &Internode<'_>| is_remote(ranks, to) && is_opener(port.group, ranks);
        if !receives && !internode.is_some_and(leads) {
            return Ok(None);
        }
        let users = u64::from(self.group().size()) + u64::from(internode.is_some());
        let mut memory = PortMemory::create(self.arena(), users)?;
        let receiver =
            receives.then(|| Receiver::create(self.arena(), records, record_bytes)).transpose()?;
        let mut queue = receiver.as_ref().map_or(Offset(0), Receiver::offset);
        let mut table = Offset(0);
        if let Some(Internode { group, .. }) = internode {
            let mut set = Offset(0);
            if !receives {
                queue = create_outgoing(self.arena(), records, record_bytes)?;
                memory.add(queue);
                set = PollSet::create(self.arena(), 1)?.offset();
                memory.add(set);
            }
            let outgoing = if receives { Offset(0) } else { queue };
            let at = |rank: u32| if rank == to { outgoing } else { Offset(0) };
            let members = group.context().members.iter();
            let ranks = (0..).zip(members).map(|(rank, member)| (*member, at(rank))).collect();
            table = PortTable { set, lines: 0, ranks }.publish(self.arena())?;
            memory.add(table);
        }
        Ok(Some(Created { receiver, queue, table, memory }))
    }

    /// Opens this rank's ends.
    fn open_append(
        &self,
        created: Result<Option<Created>>,
        buffer: Buffer,
        offered: &[Offered],
        ranks: &Arc<PortRanks>,
        internode: Option<&Internode<'_>>,
    ) -> Result<AppendEnds> {
        let to = buffer.to;
        let counts = offered.iter().map(|one| one.uses);
        let mut uses = PortUse::begin(self.segment(), counts, self.deferred())?;
        let mut receiver = None;
        if let Some(created) = created? {
            let Created { receiver: own, table, memory, .. } = created;
            let queue = own.as_ref().map_or(Offset(0), Receiver::offset);
            let opened = internode.map_or(Ok(()), |internode| {
                internode.open([queue, table, memory.uses()], &memory, 1)
            });
            uses.own(memory);
            opened?;
            receiver = own;
        }
        let uses = Arc::new(uses);
        let agent = internode.map(Internode::agent);
        // From here on the drop of an end closes it, also in an error.
        let receiver = receiver.map(|receiver| {
            let _end = ReceiverEnd { agent: agent.clone(), _use: Arc::clone(&uses) };
            receiver.watching(Arc::new(SendingRanks { ranks: Arc::clone(ranks), only: None, _end }))
        });
        let is_remote = is_remote(ranks, to);
        let _end = Arc::new(SendersEnd { agent: agent.filter(|_| is_remote), _use: uses });
        let watched = ReceivingRank { ranks: Arc::clone(ranks), rank: to, _end };
        // The buffer of this node.
        let there = offered.iter().find(|one| one.queue != Offset(0));
        let there = there.ok_or(Error::CreationFailed { rank: to, what: "an append buffer" })?;
        let sender = Sender::connect(self.segment(), there.queue)?.watching(Arc::new(watched));
        let Some(internode) = internode else { return Ok(AppendEnds { receiver, sender }) };
        let event = internode.event()?;
        if !is_remote {
            let waits = internode.waits();
            let receiver = receiver.map(|receiver| receiver.with_remote_senders(event, waits));
            return Ok(AppendEnds { receiver, sender });
        }
        let table = PortTable::read(self.segment(), there.table, internode.group.ranks())?;
        let set = PollSet::connect(self.segment(), table.set)?;
        Ok(AppendEnds { receiver, sender: sender.to_node_service((&set, 0), event)? })
    }
}

/// Returns true if a rank is on another node.
fn is_remote(ranks: &PortRanks, rank: u32) -> bool {
    matches!(ranks.places().get(rank as usize), Some(Place::Elsewhere(_)))
}
