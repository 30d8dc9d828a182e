//! Receive queues of all ranks, and senders to them, on one node or several.

use super::ranks::{JobRanks, Ranks};
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::internode::group::InternodeGroup;
use crate::internode::waits::AgentWaits;
use engine::signature::{CallKind, Signature};
use network::agent::queues::table::OutgoingTable;
use queues::one_poll::PollSet;
use queues::queue::{Queue, QueueKind, Receiver, Sender};
use shm::liveness::RankLiveness;
use shm::segment::Offset;
use std::sync::Arc;

/// A queue of this rank, and senders to the queues of all ranks in their order.
pub(super) type Ends<K> = (Receiver<K>, Vec<Sender<K>>);

/// Objects of this rank for a port between nodes: its queue, and on the first rank of a node the
/// table of the outgoing queues.
struct Created<K: QueueKind> {
    queue: Queue<K>,
    table: Option<Offset>,
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
        let made = Queue::<K>::create(self.arena(), capacity, member);
        let call = Signature::new(CallKind::Queues, capacity as u64, number);
        if let Some(internode) = self.internode() {
            return self.open_between_nodes(internode, call, capacity, made.map_err(Into::into));
        }
        let (queue, places) = self.share("a queue", call, made, Queue::offset)?;
        let open = |(place, rank)| self.local_sender(place, Ranks::one(self.group(), rank));
        let senders = places.into_iter().zip(0..).map(open).collect::<Result<_>>()?;
        Ok((queue.receiver()?.watching(Ranks::all(self.group())), senders))
    }

    fn local_sender<K: QueueKind>(
        &self,
        at: Offset,
        receiver: Arc<dyn RankLiveness>,
    ) -> Result<Sender<K>> {
        Ok(Queue::<K>::connect(self.segment(), at)?.sender().watching(receiver))
    }

    fn open_between_nodes<K: QueueKind>(
        &self,
        internode: &Arc<InternodeGroup>,
        call: Signature,
        capacity: usize,
        made: Result<Queue<K>>,
    ) -> Result<Ends<K>> {
        let port = u64::from(internode.context().number) << 32 | self.next_port();
        let agent = internode.job().agent();
        let places = Places::of(internode);
        let created = made.and_then(|queue| {
            let is_first = self.group().rank() == 0;
            let table = is_first.then(|| self.create_outgoing::<K>(&places, capacity)).transpose();
            Ok(Created { queue, table: table? })
        });
        let mine = match &created {
            Ok(Created { queue, table }) => [queue.offset().0, table.map_or(0, |at| at.0)],
            // No object lies at offset 0.
            Err(_) => [0, 0],
        };
        let on_node = self.group().exchange_words([mine[0], mine[1], 0, 0, 0, 0], call)?;
        let registered = created.and_then(|Created { queue, table }| {
            agent.open_incoming_queue(port, queue.offset())?;
            if let Some(at) = table {
                agent.open_outgoing_queues(port, at)?;
            }
            // The next collective may run in the ranks: it must not overtake the agent, which
            // discards messages to queues that it does not have.
            agent.flush()?;
            Ok(queue)
        });
        // Once a rank has returned, the queues of all ranks are open.
        let failed = u64::from(registered.is_err());
        let all = self.allgather_words([failed, 0, 0, 0, 0, 0], call)?;
        let queue = registered?;
        if let Some(rank) = all.iter().position(|words| words[0] != 0) {
            return Err(Error::CreationFailed { rank: rank as u32, what: "a queue" });
        }
        let table = on_node.first().map_or(0, |words| words[1]);
        let table = OutgoingTable::read(self.segment(), Offset(table), internode.ranks())?;
        let event = agent.event()?;
        let mut outgoing = table.queues.into_iter();
        let open = |(rank, place): (u32, &Place)| match *place {
            Place::Here(member) => {
                let at = Offset(on_node[member as usize][0]);
                self.local_sender(at, JobRanks::of(internode, Some(rank)))
            }
            Place::Elsewhere(_) => {
                let at = outgoing.next().map_or(Offset(0), |(_, at)| at);
                let sender = self.local_sender(at, JobRanks::of(internode, Some(rank)))?;
                Ok(sender.with_event(event.clone()))
            }
        };
        let senders = (0..).zip(&places.0).map(open).collect::<Result<_>>()?;
        let waits = Arc::new(AgentWaits(agent.wait_mark()));
        let receiver = queue.receiver()?.watching(JobRanks::of(internode, None));
        Ok((receiver.with_remote_senders(event, waits), senders))
    }

    /// Creates the queues of this node that lead to those of ranks on other nodes.
    fn create_outgoing<K: QueueKind>(&self, places: &Places, capacity: usize) -> Result<Offset> {
        let owners = places.0.iter().filter_map(|place| match place {
            Place::Here(_) => None,
            Place::Elsewhere(owner) => Some(*owner),
        });
        let owners: Vec<u32> = owners.collect();
        let set = PollSet::create(self.arena(), owners.len())?;
        let create = |(index, owner)| {
            let queue = Queue::<K>::create(self.arena(), capacity, Some((&set, index)))?;
            Ok((owner, queue.offset()))
        };
        let queues = owners.into_iter().enumerate().map(create).collect::<Result<_>>()?;
        Ok(OutgoingTable { set: set.offset(), queues }.publish(self.arena())?)
    }
}

/// Places of the ranks of a communicator.
struct Places(Vec<Place>);

#[derive(Clone, Copy)]
enum Place {
    /// On this node, by the number in the communicator of the node.
    Here(u32),
    /// On another node, by the number in the job.
    Elsewhere(u32),
}

impl Places {
    fn of(internode: &InternodeGroup) -> Self {
        let nodes = &internode.job().nodes;
        let members = &internode.context().members;
        let own = internode.node_of(internode.rank());
        let on_node: Vec<u32> = own.into_iter().flat_map(|own| nodes.members(own)).collect();
        let place = |member: &u32| {
            // The ranks of a node are in order.
            let Ok(local) = on_node.binary_search(member) else {
                return Place::Elsewhere(*member);
            };
            let mut group = internode.group().members().iter();
            let found = group.position(|other| *other == local as u32);
            // A rank of the communicator on this node is one of the node's communicator.
            found.map_or(Place::Elsewhere(*member), |found| Place::Here(found as u32))
        };
        Places(members.iter().map(place).collect())
    }
}
