//! Channels between ranks of one node or of two.

use super::ranks::ChannelPeer;
use super::with_memory::{ChannelReceiver, WithMemory};
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::internode::group::InternodeGroup;
use crate::internode::waits::AgentWaits;
use engine::signature::Signature;
use network::agent::channels::ChannelEnd;
use queues::channel::{Channel, OtherNode, Receiver, Sender, Value};
use queues::error::CreateError;
use shm::segment::Offset;
use std::sync::Arc;

/// Bytes of the ring of a channel between nodes, if its capacity needs no more: it holds what is
/// sent while credit returns from the other node.
const RING_BYTES: usize = 64 << 10;
/// What the ranks create, in error messages.
const WHAT: &str = "a channel";

/// The ends of channels that a rank opens in one call.
#[derive(Debug)]
pub(super) struct Channels<T: Value> {
    pub(super) previous: Option<ChannelReceiver<T>>,
    pub(super) next: Option<Sender<T>>,
}

/// What a rank has created before the offsets are exchanged.
struct Created<T: Value> {
    /// The ring of the channel from the previous rank.
    ring: Option<Channel<T>>,
    /// The end of a channel from another node.
    previous: Option<Receiver<T>>,
    /// The end of a channel to another node.
    next: Option<Sender<T>>,
}

impl Communicator {
    /// Opens a channel from the rank `previous` to this one, and one from this rank to `next`, for
    /// at least `capacity` values each. All ranks call it, and name each other.
    pub(super) fn open_channels<T: Value>(
        &self,
        call: Signature,
        previous: Option<u32>,
        next: Option<u32>,
        capacity: u64,
    ) -> Result<Channels<T>> {
        let port = self.internode().map(|internode| Port {
            internode,
            number: u64::from(internode.context().number) << 32 | self.next_port(),
        });
        let far =
            |peer: u32| port.as_ref().filter(|port| port.is_far(peer)).map(|port| (port, peer));
        let (far_previous, far_next) = (previous.and_then(far), next.and_then(far));
        let created = self.create_channels::<T>(previous, far_previous, far_next, capacity);
        let ring = created.as_ref().ok().and_then(|created| created.ring.as_ref());
        let offset = ring.map_or(Offset(0), Channel::offset);
        let failed = u64::from(created.is_err());
        // Once a rank has returned, all ends are open at their agents.
        let words = [failed, offset.0, Channel::<T>::kind().into(), 0, 0, 0];
        let all = self.allgather_words(words, call)?;
        let Created { ring, previous: far_receiver, next: far_sender } = created?;
        if let Some(rank) = all.iter().position(|words| words[0] != 0) {
            return Err(Error::CreationFailed { rank: rank as u32, what: WHAT });
        }
        let other_type = |peer: &u32| all[*peer as usize][2] != words[2];
        let peers = [far_previous, far_next].into_iter().flatten().map(|(_, peer)| peer);
        if peers.clone().any(|peer| other_type(&peer)) {
            let requested = std::any::type_name::<T>();
            return Err(CreateError::OtherType { object: "channel", offset, requested }.into());
        }
        let receive = |memory: Channel<T>| -> Result<ChannelReceiver<T>> {
            let connect = || Receiver::connect(self.segment(), memory.offset());
            let receiver = far_receiver.map_or_else(connect, Ok)?;
            Ok(WithMemory::new(receiver, memory))
        };
        let send = |next: u32| -> Result<Sender<T>> {
            let at = Offset(all[next as usize][1]);
            Ok(far_sender.map_or_else(|| Sender::connect(self.segment(), at), Ok)?)
        };
        Ok(Channels { previous: ring.map(receive).transpose()?, next: next.map(send).transpose()? })
    }

    /// Creates the rings in this rank's memory, and opens its ends of channels with other nodes.
    fn create_channels<T: Value>(
        &self,
        previous: Option<u32>,
        far_previous: Option<(&Port<'_>, u32)>,
        far_next: Option<(&Port<'_>, u32)>,
        capacity: u64,
    ) -> Result<Created<T>> {
        let create = |is_far: bool| {
            // The two rings of a channel between nodes have equal numbers of slots.
            let least = (RING_BYTES / size_of::<T>().max(8)) as u64;
            let values = if is_far && capacity > 0 { capacity.max(least) } else { capacity };
            Channel::<T>::create(self.arena(), values)
        };
        let ring = previous.map(|_| create(far_previous.is_some())).transpose()?;
        let receive = |((port, peer), ring): ((&Port<'_>, u32), &Channel<T>)| -> Result<_> {
            let receiver = ring.receiver_from(port.other_node(peer)?)?;
            port.open(ChannelEnd::ReceivesFrom(port.member(peer)), ring.offset())?;
            Ok(receiver)
        };
        let send = |(port, peer): (&Port<'_>, u32)| -> Result<_> {
            let ring = create(true)?;
            let at = ring.offset();
            let sender = ring.sender_to(port.other_node(peer)?)?;
            port.open(ChannelEnd::SendsTo(port.member(peer)), at)?;
            Ok(sender)
        };
        let receiver = far_previous.zip(ring.as_ref()).map(receive).transpose()?;
        let sender = far_next.map(send).transpose()?;
        Ok(Created { ring, previous: receiver, next: sender })
    }
}

/// Number by which the ranks of a communicator name the channels of one call.
struct Port<'a> {
    internode: &'a Arc<InternodeGroup>,
    number: u64,
}

impl Port<'_> {
    fn is_far(&self, peer: u32) -> bool {
        let own = self.internode.rank();
        self.internode.node_of(peer) != self.internode.node_of(own)
    }

    /// Number of a rank of the communicator in the job.
    fn member(&self, rank: u32) -> u32 {
        self.internode.context().members[rank as usize]
    }

    fn other_node(&self, peer: u32) -> Result<OtherNode> {
        let agent = self.internode.job().agent();
        let waits = Arc::new(AgentWaits(agent.wait_mark()));
        let peer = ChannelPeer::of(self.internode, peer);
        Ok(OtherNode { carrier: agent.event()?, waits, peer })
    }

    /// Opens an end of this rank at the agent, before this rank's next collective.
    fn open(&self, end: ChannelEnd, at: Offset) -> Result<()> {
        let agent = self.internode.job().agent();
        Ok(agent.open_channel(self.number, end, at)?)
    }
}
