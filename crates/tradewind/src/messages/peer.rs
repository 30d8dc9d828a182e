//! Rank at the other end of channels, on another node.

use super::internode::Internode;
use super::port::AgentPort;
use super::ranks::ChannelPeer;
use crate::error::{Error, Result};
use crate::internode::group::InternodeJob;
use network::flows::ChannelEnd;
use queues::channel::{Channel, OtherNode, Receiver, Sender, Value};
use shm::liveness::{PeerExit, RankLiveness};
use shm::segment::Offset;
use std::sync::Arc;

/// A rank on another node, and a port of which it has the other ends. A weak reference, as in
/// [`PortRanks`](super::ranks::PortRanks).
#[derive(Clone, Debug)]
pub(super) struct Peer {
    agent: AgentPort,
    /// Its number in the communicator.
    rank: u32,
    /// Its number in the job.
    member: u32,
}

impl Peer {
    /// The peer with a number in the communicator, unless it is on this node.
    pub(super) fn on_other_node(port: &Internode<'_>, rank: u32) -> Option<Self> {
        let group = port.group;
        let is_remote = group.node_of(rank) != group.node_of(group.rank());
        let member = group.context().members[rank as usize];
        is_remote.then(|| Peer { agent: port.agent(), rank, member })
    }

    /// The same peer, with a channel of the window that has this port.
    pub(super) fn with_mark(&self, mark: u64) -> Self {
        let agent = AgentPort { port: self.agent.port | mark, ..self.agent.clone() };
        Peer { agent, ..*self }
    }

    pub(super) fn rank(&self) -> u32 {
        self.rank
    }

    fn job(&self) -> Result<Arc<InternodeJob>> {
        let left = || network::error::Error::Operation("this rank has left the job".to_owned());
        self.agent.job.upgrade().ok_or_else(|| Error::from(left()))
    }

    fn liveness(&self) -> ChannelPeer {
        ChannelPeer::new(self.agent.job.clone(), self.rank, self.member)
    }

    /// The exit of the peer, or of this node's agent.
    pub(super) fn exited(&self) -> Option<PeerExit> {
        self.liveness().exited()
    }

    fn node(&self) -> Result<OtherNode> {
        let job = self.job()?;
        let waits = Arc::new(job.agent().wait_mark());
        Ok(OtherNode { service: job.agent().event()?, waits, peer: Arc::new(self.liveness()) })
    }

    /// Opens this rank's end at the agent.
    fn open(&self, end: ChannelEnd, at: Offset) -> Result<()> {
        Ok(self.job()?.agent().open_channel(self.agent.port, end, at)?)
    }

    /// Opens the end of a channel from the peer, with this ring.
    pub(super) fn receiver<T: Value>(&self, ring: &Channel<T>) -> Result<Receiver<T>> {
        let receiver = ring.receiver_from(self.node()?)?;
        self.open(ChannelEnd::ReceivesFrom(self.member), ring.offset())?;
        Ok(receiver)
    }

    /// Opens the end of a channel to the peer, with this ring.
    pub(super) fn sender<T: Value>(&self, ring: Channel<T>) -> Result<Sender<T>> {
        let at = ring.offset();
        let sender = ring.sender_to(self.node()?)?;
        self.open(ChannelEnd::SendsTo(self.member), at)?;
        Ok(sender)
    }
}
