//! The ranks at the other end of a port, on one node or several.

use crate::internode::group::{InternodeGroup, InternodeJob};
use engine::Exit;
use engine::communicator::Communicator as NodeCommunicator;
use network::backend::{Departures, ExitedRank};
use shm::liveness::RankLiveness;
use std::sync::{Arc, Weak};

/// The ranks at the other end of a port. A weak reference: a port does not keep the communicator
/// alive.
#[derive(Debug)]
pub(super) struct Ranks {
    group: Weak<NodeCommunicator>,
    /// The rank that receives; `None` for all other ranks, which may send.
    one: Option<u32>,
}

impl Ranks {
    pub(super) fn one(group: &Arc<NodeCommunicator>, rank: u32) -> Arc<Self> {
        Arc::new(Ranks { group: Arc::downgrade(group), one: Some(rank) })
    }

    pub(super) fn all(group: &Arc<NodeCommunicator>) -> Arc<Self> {
        Arc::new(Ranks { group: Arc::downgrade(group), one: None })
    }
}

impl RankLiveness for Ranks {
    fn exited(&self) -> Option<u32> {
        let group = self.group.upgrade()?;
        if let Some(rank) = self.one {
            return group.exit_of(rank).map(|_| rank);
        }
        let mut left = None;
        let mut all_have_one = true;
        for rank in (0..group.size()).filter(|rank| *rank != group.rank()) {
            match group.exit_of(rank) {
                None => all_have_one = false,
                Some(Exit::Left) => left = Some(rank),
                Some(_) => return Some(rank),
            }
        }
        left.filter(|_| all_have_one)
    }
}

/// The ranks at the other end of a port between nodes, as the agent of this node finds them. A weak
/// reference: a port keeps no rank in its job.
#[derive(Debug)]
pub(super) struct JobRanks {
    job: Weak<InternodeJob>,
    members: Arc<[u32]>,
    own: u32,
    /// The rank that receives; `None` for all other ranks, which may send.
    one: Option<u32>,
}

impl JobRanks {
    pub(super) fn of(internode: &InternodeGroup, one: Option<u32>) -> Arc<Self> {
        let job = Arc::downgrade(internode.job());
        let members = Arc::clone(&internode.context().members);
        Arc::new(JobRanks { job, members, own: internode.rank(), one })
    }
}

impl RankLiveness for JobRanks {
    fn exited(&self) -> Option<u32> {
        let job = self.job.upgrade()?;
        let agent = job.agent();
        let mut others = (0..self.members.len() as u32).filter(|rank| *rank != self.own);
        if agent.check_agent().is_err() {
            // Nothing arrives from another node any more.
            return self.one.or_else(|| others.clone().next());
        }
        let exited = agent.exited();
        let exit_of = |rank: u32| -> Option<&ExitedRank> {
            let member = self.members[rank as usize];
            exited.iter().find(|one| one.rank == member)
        };
        if let Some(rank) = self.one {
            return exit_of(rank).map(|_| rank);
        }
        let failed = |rank: &u32| exit_of(*rank).is_some_and(|one| one.has_failed);
        if let Some(rank) = others.clone().find(failed) {
            return Some(rank);
        }
        let all_have_left = others.clone().all(|rank| exit_of(rank).is_some());
        others.next_back().filter(|_| all_have_left)
    }
}
