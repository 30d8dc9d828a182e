//! Channels between ranks of one node or of two.

use super::peer::Peer;
use super::with_memory::{ChannelReceiver, WithMemory};
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use engine::signature::Signature;
use queues::channel::{Channel, Receiver, Sender, Value};
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
        let remote = [remote_previous.as_ref(), remote_next.as_ref()];
        let created = self.create_channels::<T>(previous, remote, capacity);
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
        let mut peers = remote.into_iter().flatten();
        let opened = if peers.any(|peer| all[peer.rank() as usize][2] != words[2]) {
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
        [remote_previous, remote_next]: [Option<&Peer>; 2],
        capacity: u64,
    ) -> Result<Created<T>> {
        let create = |is_remote: bool| {
            // The two rings of a channel between nodes have equal numbers of slots.
            let least = (RING_BYTES / size_of::<T>().max(8)) as u64;
            let values = if is_remote && capacity > 0 { capacity.max(least) } else { capacity };
            Channel::<T>::create(self.arena(), values)
        };
        let ring = previous.map(|_| create(remote_previous.is_some())).transpose()?;
        let receive = |(peer, ring): (&Peer, &Channel<T>)| peer.receiver(ring);
        let receiver = remote_previous.zip(ring.as_ref()).map(receive).transpose()?;
        let sender = remote_next.map(|peer| peer.sender(create(true)?)).transpose()?;
        Ok(Created { ring, previous: receiver, next: sender })
    }
}
