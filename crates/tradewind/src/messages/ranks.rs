//! The ranks at the other end of a port, on one node or several.

use super::port::SendersEnd;
use crate::internode::group::{InternodeGroup, InternodeJob};
use engine::Exit;
use engine::communicator::Communicator as NodeCommunicator;
use network::backend::{ExitedRank, RankExits};
use shm::liveness::{PeerExit, RankLiveness};
use std::fmt::Debug;
use std::sync::{Arc, Weak};

/// The ranks of a port, and their places. Weak references: a port keeps neither its communicator
/// alive nor a rank in its job.
#[derive(Debug)]
pub(super) struct PortRanks {
    group: Weak<NodeCommunicator>,
    own: u32,
    places: Vec<Place>,
    /// The agent's part, if there are several nodes.
    remote: Option<RemoteRanks>,
}

/// Place of a rank.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// On this node, by the number in the communicator of the node.
    Here(u32),
    /// On another node, by the number in the job.
    Elsewhere(u32),
}

#[derive(Debug)]
struct RemoteRanks {
    job: Weak<InternodeJob>,
    port: u64,
}

impl PortRanks {
    /// The ranks of a communicator on one node.
    pub(super) fn on_node(group: &Arc<NodeCommunicator>) -> Arc<Self> {
        let places = (0..group.size()).map(Place::Here).collect();
        let own = group.rank();
        Arc::new(PortRanks { group: Arc::downgrade(group), own, places, remote: None })
    }

    /// The ranks of a communicator on several nodes.
    pub(super) fn of(
        group: &Arc<NodeCommunicator>,
        internode: &InternodeGroup,
        port: u64,
    ) -> Arc<Self> {
        let nodes = &internode.job().nodes;
        let own = internode.node_of(internode.rank());
        let on_node: Vec<u32> = own.into_iter().flat_map(|own| nodes.members(own)).collect();
        let place = |member: &u32| {
            // The ranks of a node are in order.
            let local = on_node.binary_search(member).ok();
            let found = local
                .and_then(|local| group.members().iter().position(|other| *other == local as u32));
            // A rank of the communicator on this node is one of the node's communicator.
            found.map_or(Place::Elsewhere(*member), |found| Place::Here(found as u32))
        };
        Arc::new(PortRanks {
            group: Arc::downgrade(group),
            own: internode.rank(),
            places: internode.context().members.iter().map(place).collect(),
            remote: Some(RemoteRanks { job: Arc::downgrade(internode.job()), port }),
        })
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    /// The exit of a rank of this node: what it has sent lies in the rings of the receivers.
    fn exit_here(group: &NodeCommunicator, rank: u32, member: u32) -> Option<PeerExit> {
        group.exit_of(member).map(|exit| match exit {
            Exit::Left => PeerExit::Left(rank),
            _ => PeerExit::Failed(rank),
        })
    }
}

fn exit_of(exited: &[ExitedRank], rank: u32, member: u32) -> Option<PeerExit> {
    let exit = exited.iter().find(|one| one.rank == member)?;
    Some(if exit.has_failed { PeerExit::Failed(rank) } else { PeerExit::Left(rank) })
}

/// The exit of a rank on another node, or of this node's agent.
fn exit_elsewhere(job: &Weak<InternodeJob>, rank: u32, member: u32) -> Option<PeerExit> {
    let job = job.upgrade()?;
    if job.agent().check_agent().is_err() {
        return Some(PeerExit::NodeServiceEnded);
    }
    exit_of(&job.agent().exited(), rank, member)
}

/// The ranks that may send to this one.
#[derive(Debug)]
pub(super) struct SendingRanks<E> {
    pub(super) ranks: Arc<PortRanks>,
    /// The only one; `None` for all.
    pub(super) only: Option<u32>,
    /// Dropped with the last receiver.
    pub(super) _end: E,
}

impl<E: Debug + Send + Sync> RankLiveness for SendingRanks<E> {
    fn exited(&self) -> Option<PeerExit> {
        let PortRanks { group, own, places, remote } = &*self.ranks;
        let group = group.upgrade()?;
        let mut elsewhere = Vec::new();
        if let Some(RemoteRanks { job, port }) = remote {
            let job = job.upgrade()?;
            // Nothing arrives from another node without the agent.
            if job.agent().check_agent().is_err() {
                return Some(PeerExit::NodeServiceEnded);
            }
            elsewhere = job.agent().queue_exits(*port);
        }
        let mut left = None;
        let mut all_have_left = true;
        let sends = |rank: u32| self.only.map_or(rank != *own, |only| only == rank);
        for (rank, place) in (0..).zip(places).filter(|(rank, _)| sends(*rank)) {
            let exit = match *place {
                Place::Here(member) => PortRanks::exit_here(&group, rank, member),
                Place::Elsewhere(member) => exit_of(&elsewhere, rank, member),
            };
            match exit {
                None => all_have_left = false,
                Some(PeerExit::Left(_)) => left = exit,
                failed => return failed,
            }
        }
        left.filter(|_| all_have_left)
    }
}

/// The rank that receives what a sender sends.
#[derive(Debug)]
pub(super) struct ReceivingRank {
    pub(super) ranks: Arc<PortRanks>,
    pub(super) rank: u32,
    /// Dropped with the last sender of this rank, to whatever rank.
    pub(super) _end: Arc<SendersEnd>,
}

impl RankLiveness for ReceivingRank {
    fn exited(&self) -> Option<PeerExit> {
        let ReceivingRank { ranks, rank, .. } = self;
        match *ranks.places.get(*rank as usize)? {
            Place::Here(member) => PortRanks::exit_here(&*ranks.group.upgrade()?, *rank, member),
            Place::Elsewhere(member) => exit_elsewhere(&ranks.remote.as_ref()?.job, *rank, member),
        }
    }
}

/// A rank at the other end of a channel, on another node. A weak reference, as in [`PortRanks`].
#[derive(Debug)]
pub(super) struct ChannelPeer {
    job: Weak<InternodeJob>,
    /// Its number in the communicator.
    rank: u32,
    /// Its number in the job.
    member: u32,
}

impl ChannelPeer {
    pub(super) fn new(job: Weak<InternodeJob>, rank: u32, member: u32) -> Self {
        ChannelPeer { job, rank, member }
    }
}

impl RankLiveness for ChannelPeer {
    fn exited(&self) -> Option<PeerExit> {
        exit_elsewhere(&self.job, self.rank, self.member)
    }
}
