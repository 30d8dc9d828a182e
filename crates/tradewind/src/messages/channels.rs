//! Channels between ranks of one node or of two.

use super::internode::Internode;
use super::ranks::ChannelPeer;
use super::with_memory::{ChannelReceiver, WithMemory};
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use engine::signature::Signature;
use network::agent::channels::ChannelEnd;
use queues::channel::{Channel, OtherNode, Receiver, Sender, Value};
use queues::error::CreateError;
use shm::segment::Offset;

/// Bytes of the ring of a channel between nodes, if its capacity needs no more: it holds what is
/// sent while credit returns from the other node.
const RING_BYTES: usize = 64 << 10;
/// Name of the created objects in error messages.
const WHAT: &str = "a channel";

/// The ends of channels that a rank opens in one call.
#[derive(Debug)]
pub(super) struct Channels<T: Value> {
    pub(super) previous: Option<ChannelReceiver<T>>,
    pub(super) next: Option<Sender<T>>,
}

/// Objects of a rank, before the offsets are exchanged.
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
        let port = self.next_port();
        let remote = |rank| port.as_ref().and_then(|port| Peer::on_other_node(port, rank));
        let remote_previous = previous.and_then(remote);
        let remote_next = next.and_then(remote);
        let created = self.create_channels::<T>(previous, remote_previous, remote_next, capacity);
        let ring = created.as_ref().ok().and_then(|created| created.ring.as_ref());
        let offset = ring.map_or(Offset(0), Channel::offset);
        let failed = u64::from(created.is_err());
        // Once a rank has returned, all ends are open at their agents.
        let words = [failed, offset.0, Channel::<T>::kind().into(), 0, 0, 0];
        let all = self.allgather_words(words, call)?;
        let created = created?;
        if let Some(rank) = all.iter().position(|words| words[0] != 0) {
            return Err(Error::CreationFailed { rank: rank as u32, what: WHAT });
        }
        let mut peers = [remote_previous, remote_next].into_iter().flatten();
        let opened = if peers.any(|peer| all[peer.rank as usize][2] != words[2]) {
            let requested = std::any::type_name::<T>();
            Err(CreateError::OtherType { object: "channel", offset, requested }.into())
        } else {
            self.connect_channels(created, next.map(|next| Offset(all[next as usize][1])))
        };
        self.opened_by_all(WHAT, call, opened)
    }

    /// Connects to this rank's ends of channels within the node. The ring to the next rank lies at
    /// an offset.
    fn connect_channels<T: Value>(
        &self,
        created: Created<T>,
        next: Option<Offset>,
    ) -> Result<Channels<T>> {
        let Created { ring, previous: remote_receiver, next: remote_sender } = created;
        let receive = |memory: Channel<T>| -> Result<ChannelReceiver<T>> {
            let connect = || Receiver::connect(self.segment(), memory.offset());
            let receiver = remote_receiver.map_or_else(connect, Ok)?;
            Ok(WithMemory::new(receiver, memory))
        };
        let send = |at: Offset| -> Result<Sender<T>> {
            Ok(remote_sender.map_or_else(|| Sender::connect(self.segment(), at), Ok)?)
        };
        Ok(Channels { previous: ring.map(receive).transpose()?, next: next.map(send).transpose()? })
    }

    /// Creates the rings in this rank's memory, and opens its ends of channels with other nodes.
    fn create_channels<T: Value>(
        &self,
        previous: Option<u32>,
        remote_previous: Option<Peer<'_>>,
        remote_next: Option<Peer<'_>>,
        capacity: u64,
    ) -> Result<Created<T>> {
        let create = |is_remote: bool| {
            // The two rings of a channel between nodes have equal numbers of slots.
            let least = (RING_BYTES / size_of::<T>().max(8)) as u64;
            let values = if is_remote && capacity > 0 { capacity.max(least) } else { capacity };
            Channel::<T>::create(self.arena(), values)
        };
        let ring = previous.map(|_| create(remote_previous.is_some())).transpose()?;
        let receive = |(peer, ring): (Peer<'_>, &Channel<T>)| -> Result<_> {
            let receiver = ring.receiver_from(peer.node()?)?;
            peer.open(ChannelEnd::ReceivesFrom(peer.member()), ring.offset())?;
            Ok(receiver)
        };
        let send = |peer: Peer<'_>| -> Result<_> {
            let ring = create(true)?;
            let at = ring.offset();
            let sender = ring.sender_to(peer.node()?)?;
            peer.open(ChannelEnd::SendsTo(peer.member()), at)?;
            Ok(sender)
        };
        let receiver = remote_previous.zip(ring.as_ref()).map(receive).transpose()?;
        let sender = remote_next.map(send).transpose()?;
        Ok(Created { ring, previous: receiver, next: sender })
    }
}

/// Rank at the other end of a channel, on another node.
#[derive(Clone, Copy)]
struct Peer<'a> {
    port: &'a Internode<'a>,
    /// Its number in the communicator.
    rank: u32,
}

impl<'a> Peer<'a> {
    fn on_other_node(port: &'a Internode<'a>, rank: u32) -> Option<Self> {
        let group = port.group;
        let is_remote = group.node_of(rank) != group.node_of(group.rank());
        is_remote.then_some(Peer { port, rank })
    }

    /// Its number in the job.
    fn member(&self) -> u32 {
        self.port.group.context().members[self.rank as usize]
    }

    fn node(&self) -> Result<OtherNode> {
        let peer = ChannelPeer::of(self.port.group, self.rank);
        Ok(OtherNode { carrier: self.port.event()?, waits: self.port.waits(), peer })
    }

    /// Opens this rank's end at the agent, before this rank's next collective.
    fn open(&self, end: ChannelEnd, at: Offset) -> Result<()> {
        let agent = self.port.group.job().agent();
        Ok(agent.open_channel(self.port.port, end, at)?)
    }
}
