//! The messages of one communicator, and a rank's end of those of all communicators.

use super::remote;
use crate::context_numbers::ContextNumbers;
use crate::error::{Error, Result, argument};
use crate::internode::group::{InternodeGroup, InternodeJob};
use engine::communicator::Communicator as NodeCommunicator;
use engine::node::membership::{Background, Member};
use engine::node::{MAILBOX_BYTES, Node};
use engine::signature::{CallKind, Signature};
use network::error::{Error as NetworkError, RankExit};
use queues::matching::{Endpoint, EndpointOptions, MatchError, Processes, RemoteExit};
use shm::arena::Arena;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

const _: () = assert!(MAILBOX_BYTES == queues::matching::MAILBOX_BYTES);

/// A rank's end of all messages on its node, which the first use creates.
#[derive(Debug)]
pub(crate) struct RankEndpoint {
    /// Dropped before `member`, which marks the rank as one that has left: the messages of dropped
    /// sends are read first.
    endpoint: OnceLock<Endpoint>,
    member: Arc<Member>,
    arena: Arc<Arena>,
    /// Numbers of communicators that were dropped before the creation of `endpoint`.
    creation: Mutex<Vec<u32>>,
    /// Source of numbers for communicators, in a job on one node.
    numbers: ContextNumbers,
    /// The job, if it has several nodes. Behind the endpoint too: the agent carries its last
    /// messages.
    job: Option<Arc<InternodeJob>>,
}

impl RankEndpoint {
    /// The end of a rank of `group`; `internode` has all ranks of a job on several nodes.
    pub(crate) fn new(group: &NodeCommunicator, internode: Option<&Arc<InternodeGroup>>) -> Self {
        let last_rank = group.member().node().ranks().saturating_sub(1);
        RankEndpoint {
            member: Arc::clone(group.member()),
            arena: Arc::clone(group.arena()),
            endpoint: OnceLock::new(),
            creation: Mutex::default(),
            numbers: ContextNumbers::new(u32::BITS - last_rank.leading_zeros()),
            job: internode.map(|internode| Arc::clone(internode.job())),
        }
    }

    /// A number for a communicator with this first rank of the node. On several nodes the numbers
    /// come from the same source as those of communicators with ranks on several nodes.
    fn next_number(&self, first: u32) -> Result<u32> {
        let Some(job) = &self.job else { return self.numbers.next(first) };
        let own = job.agent().node();
        let member = job.nodes.members(own).nth(first as usize);
        job.numbers().next(member.unwrap_or(first))
    }

    /// Why nothing follows from the rank on another node at a place, if that is so.
    pub(super) fn remote_exit(&self, place: u32) -> Option<NetworkError> {
        let exit = self.endpoint.get()?.remote_exit(place)?;
        Some(self.exit_error(place, exit))
    }

    /// As [`remote_exit`](Self::remote_exit), without a look at the way to all such ranks.
    pub(super) fn own_remote_exit(&self, place: u32) -> Option<NetworkError> {
        let exit = self.endpoint.get()?.own_remote_exit(place)?;
        Some(self.exit_error(place, exit))
    }

    /// Returns true if nothing follows from any rank on another node.
    pub(super) fn remote_has_failed(&self) -> bool {
        self.endpoint.get().is_some_and(Endpoint::remote_has_failed)
    }

    fn exit_error(&self, place: u32, exit: RemoteExit) -> NetworkError {
        let damaged = || NetworkError::Operation("the memory of messages is damaged".into());
        match exit {
            RemoteExit::Reported(why) => network::error::decode_exit(&why).unwrap_or_else(damaged),
            RemoteExit::Invalid => {
                let how = RankExit::Failed("has sent what no rank sends".into());
                // The rank is set by the caller, which has its number in the communicator.
                NetworkError::RankFailed { rank: place, how }
            }
            RemoteExit::LinkFailed => {
                let job = self.job.as_ref();
                job.and_then(|job| job.agent().check_agent().err()).unwrap_or_else(damaged)
            }
        }
    }

    #[inline]
    fn get(self: &Arc<Self>) -> Result<&Endpoint> {
        match self.endpoint.get() {
            Some(endpoint) => Ok(endpoint),
            None => self.create(),
        }
    }

    /// Discards the messages of a dropped communicator, also those that arrive later. No other
    /// communicator has its number.
    fn drop_context(&self, number: u32) -> Result<()> {
        let mut dropped = self.creation.lock().unwrap_or_else(PoisonError::into_inner);
        match self.endpoint.get() {
            Some(endpoint) => endpoint.discard_context(number).map_err(damaged),
            None => {
                dropped.push(number);
                Ok(())
            }
        }
    }

    #[cold]
    fn create(self: &Arc<Self>) -> Result<&Endpoint> {
        // One at a time: an endpoint takes over what has been sent to the rank.
        let mut dropped = self.creation.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(endpoint) = self.endpoint.get() {
            return Ok(endpoint);
        }
        let node = self.member.node();
        let remote = self.job.as_deref().map(remote::open).transpose()?;
        let endpoint = Endpoint::new(EndpointOptions {
            arena: Arc::clone(&self.arena),
            rank: self.member.rank(),
            ranks: node.ranks(),
            cores: node.cores(),
            mailboxes: node.mailboxes(),
            reads_directly: None,
            processes: Arc::new(NodeProcesses(Arc::clone(node))),
            remote,
        })?;
        for number in dropped.drain(..) {
            endpoint.discard_context(number).map_err(damaged)?;
        }
        let endpoint = self.endpoint.get_or_init(|| endpoint);
        // A sender may wait until this rank, which waits for a collective, has read its message.
        let work = Arc::downgrade(self) as Weak<dyn Background>;
        self.member.register_background(work, endpoint.doorbell().clone());
        Ok(endpoint)
    }
}

impl Background for RankEndpoint {
    fn progress(&self) -> bool {
        let Some(endpoint) = self.endpoint.get() else { return false };
        endpoint.progress().unwrap_or_else(|error| {
            log::warn!("messages make no progress: {error}");
            false
        })
    }
}

fn damaged(error: MatchError) -> Error {
    Error::Internal(error.to_string())
}

/// The processes of the ranks of a node.
#[derive(Debug)]
struct NodeProcesses(Arc<Node>);

impl Processes for NodeProcesses {
    fn process_of(&self, rank: u32) -> u32 {
        self.0.process_of(rank)
    }

    fn has_exited(&self, rank: u32) -> bool {
        self.0.exit_of(rank).is_some()
    }
}

/// The messages of a communicator, which match no others.
#[derive(Debug)]
pub(crate) struct MessageContext {
    endpoint: Arc<RankEndpoint>,
    number: u32,
    /// Places of the ranks at the endpoint, if they are on several nodes.
    places: Option<Arc<[u32]>>,
    /// Ranks by their places, where some differ; `u32::MAX` for other ranks of the job.
    ranks: OnceLock<Box<[u32]>>,
    /// Failed ranks that a receive from any source has reported.
    reported: Mutex<BTreeSet<u32>>,
}

impl MessageContext {
    /// This rank's end of the messages of all communicators.
    #[inline]
    pub(super) fn endpoint(&self) -> Result<&Endpoint> {
        self.endpoint.get()
    }

    /// Number of the communicator in the envelopes of its messages.
    #[inline]
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn reported(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rank at a place, where `places` are those of all ranks.
    pub(super) fn rank_at(&self, place: u32, places: &[u32]) -> Option<u32> {
        let ranks = self.ranks.get_or_init(|| ranks_by_place(places));
        ranks.get(place as usize).copied().filter(|rank| *rank != u32::MAX)
    }

    /// This rank's end, whether it has sent or received anything or not.
    pub(super) fn rank_endpoint(&self) -> &RankEndpoint {
        &self.endpoint
    }

    /// Places of the ranks at the endpoint, if they are on several nodes.
    #[inline]
    pub(super) fn places(&self) -> Option<&[u32]> {
        self.places.as_deref()
    }

    fn new(endpoint: Arc<RankEndpoint>, number: u32, places: Option<Arc<[u32]>>) -> Self {
        MessageContext {
            endpoint,
            number,
            places,
            ranks: OnceLock::new(),
            reported: Mutex::default(),
        }
    }

    /// The context of all ranks of the job.
    pub(crate) fn of_job(
        endpoint: Arc<RankEndpoint>,
        internode: Option<&Arc<InternodeGroup>>,
    ) -> Self {
        let places = internode.map(|internode| remote::places(internode));
        MessageContext::new(endpoint, 0, places)
    }

    /// A context for a new communicator on several nodes with the number that its ranks have agreed
    /// on.
    pub(crate) fn of_nodes(&self, internode: &InternodeGroup) -> Self {
        let endpoint = Arc::clone(&self.endpoint);
        let number = internode.context().number;
        MessageContext::new(endpoint, number, Some(remote::places(internode)))
    }

    /// A context for a new communicator on this node. Waits for its ranks, which take the number
    /// that the first of them offers.
    pub(crate) fn of_group(&self, group: &NodeCommunicator) -> Result<Self> {
        let endpoint = Arc::clone(&self.endpoint);
        let offered = match group.members().first() {
            // Without a number the first rank still takes part, so that all ranks see the failure.
            Some(first) if group.rank() == 0 => endpoint.next_number(*first),
            _ => Ok(0),
        };
        let call = Signature::new(CallKind::Split, 0, 1);
        let own = offered.as_ref().map_or(0, |number| u64::from(*number));
        let offers = group.exchange_words([own, 0, 0, 0, 0, 0], call)?;
        offered?;
        let number = match offers.first() {
            Some([number, ..]) if *number > 0 => *number as u32,
            _ => {
                let expected = "fewer in the life of the job";
                return Err(argument("the number of communicators", "the highest", expected));
            }
        };
        Ok(MessageContext::new(endpoint, number, None))
    }
}

fn ranks_by_place(places: &[u32]) -> Box<[u32]> {
    let last = places.iter().max().map_or(0, |place| *place as usize + 1);
    let mut ranks = vec![u32::MAX; last];
    for (rank, place) in (0..).zip(places) {
        ranks[*place as usize] = rank;
    }
    ranks.into()
}

impl Drop for MessageContext {
    fn drop(&mut self) {
        if self.number > 0
            && let Err(error) = self.endpoint.drop_context(self.number)
        {
            log::warn!("messages of a dropped communicator are left: {error}");
        }
    }
}
