//! Receive queues of all ranks, and senders to them, on one node or several.

use super::internode::Internode;
use super::port::{PortMemory, PortUse, QueueEnd, ReceiverEnd, SendersEnd};
use super::ranks::{Place, PortRanks, ReceivingRank, SendingRanks};
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::internode::group::InternodeGroup;
use engine::signature::{CallKind, Signature};
use network::flows::table::PortTable;
use queues::one_poll::PollSet;
use queues::queue::{Queue, QueueKind, Receiver, Sender};
use shm::segment::Offset;
use std::sync::Arc;

/// Name of the created objects in error messages.
const WHAT: &str = "a queue";

/// A queue of this rank, and senders to the queues of all ranks in their order.
pub(super) type Ends<K> = (Receiver<K>, Vec<Sender<K>>);

/// Objects of this rank for a port: its queue, and on the first rank of a node the table of the
/// port's ranks, if they are on several nodes.
struct Created<K: QueueKind> {
    queue: Queue<K>,
    table: Option<Offset>,
    memory: PortMemory,
}

/// The objects of a rank, as the other ranks of the node get them. Offset 0 is none.
#[derive(Clone, Copy, Default)]
pub(super) struct Offered {
    pub(super) queue: Offset,
    pub(super) table: Offset,
    pub(super) uses: Offset,
}

impl Communicator {
    /// Creates a receive queue on every rank, optionally as the member of a poll set, and senders
    /// to all of them. `number` distinguishes the kinds.
    pub(super) fn open_queues<K: QueueKind>(
        &self,
        capacity: usize,
        number: u64,
        member: Option<(&PollSet, usize)>,
    ) -> Result<Ends<K>> {
        self.deferred().sweep();
        let call = Signature::new(CallKind::Queues, capacity as u64, number);
        let (internode, ranks) = self.next_port_ranks();
        let created = self.create_queue::<K>(capacity, member, &ranks);
        let own = match &created {
            Ok(Created { queue, table, memory }) => {
                let table = table.unwrap_or_default();
                Offered { queue: queue.offset(), table, uses: memory.uses() }
            }
            Err(_) => Offered::default(),
        };
        self.agree_on_port(call, own, |offered| {
            self.open_ends(created, offered, &ranks, internode.as_ref())
        })
    }

    /// Exchanges the objects for a port within each node, opens this rank's ends of it, and fails on
    /// all ranks if one rank has failed.
    pub(super) fn agree_on_port<E>(
        &self,
        call: Signature,
        own: Offered,
        open: impl FnOnce(&[Offered]) -> Result<E>,
    ) -> Result<E> {
        let own = [own.queue.0, own.table.0, own.uses.0, 0, 0, 0];
        let all = self.group().exchange_words(own, call)?;
        let offer = |words: &[u64; 6]| {
            let [queue, table, uses, ..] = words.map(Offset);
            Offered { queue, table, uses }
        };
        let opened = open(&all.iter().map(offer).collect::<Vec<_>>());
        self.opened_by_all(WHAT, call, opened)
    }

    /// The next port, and its ranks.
    pub(super) fn next_port_ranks(&self) -> (Option<Internode<'_>>, Arc<PortRanks>) {
        let port = self.next_port();
        let ranks = match &port {
            None => PortRanks::on_node(self.group()),
            Some(Internode { group, port }) => PortRanks::of(self.group(), group, *port),
        };
        (port, ranks)
    }

    /// Creates the objects of this rank.
    fn create_queue<K: QueueKind>(
        &self,
        capacity: usize,
        member: Option<(&PollSet, usize)>,
        ranks: &PortRanks,
    ) -> Result<Created<K>> {
        let on_node = u64::from(self.group().size());
        let is_opener = self.internode().is_some_and(|group| is_opener(group, ranks));
        // The agent uses what it receives from, and what it sends to.
        let agent = if self.internode().is_some() { 1 + u64::from(is_opener) } else { 0 };
        let mut memory = PortMemory::create(self.arena(), on_node + agent)?;
        let queue = Queue::<K>::create(self.arena(), capacity, member)?;
        memory.add(queue.offset());
        let table = is_opener.then(|| self.create_outgoing::<K>(ranks, capacity, &mut memory));
        Ok(Created { queue, table: table.transpose()?, memory })
    }

    /// Creates the queues of this node that lead to those of ranks on other nodes.
    fn create_outgoing<K: QueueKind>(
        &self,
        ranks: &PortRanks,
        capacity: usize,
        memory: &mut PortMemory,
    ) -> Result<Offset> {
        let members = self.internode().map(|group| &group.context().members);
        let members = members.into_iter().flat_map(|members| members.iter().copied());
        let remote = ranks.places().iter().filter(|place| matches!(place, Place::Elsewhere(_)));
        let set = PollSet::create(self.arena(), remote.count())?;
        memory.add(set.offset());
        let mut index = 0;
        let mut create = |(member, place): (u32, &Place)| {
            let Place::Elsewhere(_) = place else { return Ok((member, Offset(0))) };
            let queue = Queue::<K>::create(self.arena(), capacity, Some((&set, index)))?;
            index += 1;
            memory.add(queue.offset());
            Ok((member, queue.offset()))
        };
        let entries = members.zip(ranks.places()).map(&mut create).collect::<Result<_>>()?;
        let at = PortTable { set: set.offset(), lines: 0, ranks: entries }.publish(self.arena())?;
        memory.add(at);
        Ok(at)
    }

    /// Opens this rank's ends of the queues that the ranks of the node have created.
    fn open_ends<K: QueueKind>(
        &self,
        created: Result<Created<K>>,
        offered: &[Offered],
        ranks: &Arc<PortRanks>,
        internode: Option<&Internode<'_>>,
    ) -> Result<Ends<K>> {
        let counts = offered.iter().map(|one| one.uses);
        let mut uses = PortUse::begin(self.segment(), counts, self.deferred())?;
        let Created { queue, memory, .. } = created?;
        let table = offered.iter().map(|one| one.table).find(|at| *at != Offset(0));
        let is_missing = |place: &Place| match *place {
            Place::Here(member) => offered[member as usize].queue == Offset(0),
            Place::Elsewhere(_) => false,
        };
        let users = internode.map_or(0, |one| 1 + u64::from(is_opener(one.group, ranks)));
        let opened = match (ranks.places().iter().position(is_missing), internode) {
            (Some(rank), _) => {
                memory.release(users);
                Err(creation_failed(rank))
            }
            (None, None) => Ok(()),
            (None, Some(internode)) => {
                let at = [queue.offset(), table.unwrap_or_default(), memory.uses()];
                internode.open(at, &memory, users)
            }
        };
        uses.own(memory);
        opened?;
        let uses = Arc::new(uses);
        self.connect_ends(queue, uses, table.unwrap_or_default(), offered, ranks, internode)
    }

    /// Connects a receiver to the queue of this rank, and senders to those of all.
    fn connect_ends<K: QueueKind>(
        &self,
        queue: Queue<K>,
        uses: Arc<PortUse>,
        table: Offset,
        offered: &[Offered],
        ranks: &Arc<PortRanks>,
        internode: Option<&Internode<'_>>,
    ) -> Result<Ends<K>> {
        let agent = internode.map(Internode::agent);
        // From here on the drop of an end closes it, also in an error.
        let end = ReceiverEnd { agent: agent.clone(), _use: Arc::clone(&uses) };
        let end = QueueEnd { queue: queue.clone(), _end: end };
        let senders_of = SendingRanks { ranks: Arc::clone(ranks), only: None, _end: end };
        let receiver = queue.receiver()?.watching(Arc::new(senders_of));
        let end = Arc::new(SendersEnd { agent, _use: uses });
        let remote = internode.map(|one| {
            let outgoing = PortTable::read(self.segment(), table, one.group.ranks())?;
            Ok::<_, Error>((one, one.event()?, outgoing.ranks))
        });
        let remote = remote.transpose()?;
        let open = |(rank, place): (u32, &Place)| match (*place, &remote) {
            (Place::Here(member), _) => {
                self.queue_sender(offered[member as usize].queue, ranks, rank, &end)
            }
            (Place::Elsewhere(_), remote) => {
                let (_, event, outgoing) =
                    remote.as_ref().ok_or_else(|| creation_failed(rank as usize))?;
                let at = outgoing.get(rank as usize).map_or(Offset(0), |(_, at)| *at);
                Ok(self.queue_sender(at, ranks, rank, &end)?.to_node_service(event.clone()))
            }
        };
        let senders = (0..).zip(ranks.places()).map(open).collect::<Result<_>>()?;
        let Some((one, event, _)) = remote else { return Ok((receiver, senders)) };
        Ok((receiver.with_remote_senders(event, one.waits()), senders))
    }

    /// Opens a sender to the queue at an offset, which leads to a rank.
    fn queue_sender<K: QueueKind>(
        &self,
        at: Offset,
        ranks: &Arc<PortRanks>,
        rank: u32,
        end: &Arc<SendersEnd>,
    ) -> Result<Sender<K>> {
        // The first generation: the receiver may have closed the queue by now.
        let sender = Queue::<K>::connect(self.segment(), at)?.sender_of(0);
        let receiver = ReceivingRank { ranks: Arc::clone(ranks), rank, _end: Arc::clone(end) };
        Ok(sender.watching(Arc::new(receiver)))
    }
}

fn creation_failed(rank: usize) -> Error {
    Error::CreationFailed { rank: rank as u32, what: WHAT }
}

/// Returns true if this rank creates the queues that lead to the other nodes: of the communicator's
/// ranks on this node it has the lowest number in the job.
pub(super) fn is_opener(group: &InternodeGroup, ranks: &PortRanks) -> bool {
    let members = &group.context().members;
    let here =
        members.iter().zip(ranks.places()).filter(|(_, place)| matches!(place, Place::Here(_)));
    here.map(|(member, _)| *member).min() == members.get(group.rank() as usize).copied()
}
