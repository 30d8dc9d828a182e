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
use queues::matching::{
    Contexts, Endpoint, EndpointOptions, MatchError, Processes, RemoteExit, wakeup_word,
};
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
    /// Communicators for which messages are received; those of `endpoint`, once that is created.
    creation: Mutex<Contexts>,
    /// Source of numbers for communicators, in a job on one node.
    numbers: ContextNumbers,
    /// The job, if it has several nodes. Behind the endpoint too: the agent carries its last
    /// messages.
    job: Option<Arc<InternodeJob>>,
}

impl RankEndpoint {
    /// The end of a rank of `group`; `internode` has all ranks of a job on several nodes.
    pub(crate) fn new(group: &NodeCommunicator, internode: Option<&Arc<InternodeGroup>>) -> Self {
        let numbers = ContextNumbers::new(group.member().node().ranks());
        let job = internode.map(|internode| Arc::clone(internode.job()));
        let count_bits = job.as_ref().map_or(&numbers, |job| job.numbers()).count_bits();
        RankEndpoint {
            member: Arc::clone(group.member()),
            arena: Arc::clone(group.arena()),
            endpoint: OnceLock::new(),
            creation: Mutex::new(Contexts::new(count_bits)),
            numbers,
            job,
        }
    }

    /// Source of numbers for all communicators with this rank, on one node or several.
    fn numbers(&self) -> &ContextNumbers {
        self.job.as_ref().map_or(&self.numbers, |job| job.numbers())
    }

    /// The number that this rank offers for a new communicator.
    fn offer(&self) -> Result<u32> {
        let rank = self.member.rank();
        let Some(job) = &self.job else { return self.numbers.offer(rank) };
        let member = job.nodes.members(job.agent().node()).nth(rank as usize);
        job.numbers().offer(member.unwrap_or(rank))
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

    /// Changes the communicators for which messages are received.
    fn change_contexts(&self, change: impl FnOnce(&mut Contexts)) -> Result<()> {
        let mut contexts = self.creation.lock().unwrap_or_else(PoisonError::into_inner);
        match self.endpoint.get() {
            Some(endpoint) => endpoint.change_contexts(change).map_err(damaged),
            None => {
                change(&mut contexts);
                Ok(())
            }
        }
    }

    #[cold]
    fn create(self: &Arc<Self>) -> Result<&Endpoint> {
        // One at a time: an endpoint takes over what has been sent to the rank.
        let contexts = self.creation.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(endpoint) = self.endpoint.get() {
            return Ok(endpoint);
        }
        let node = self.member.node();
        let wakeup = wakeup_word(node.segment(), node.mailboxes(), self.member.rank())?;
        let remote = self.job.as_deref().map(|job| remote::open(job, wakeup)).transpose()?;
        let endpoint = Endpoint::new(EndpointOptions {
            arena: Arc::clone(&self.arena),
            rank: self.member.rank(),
            ranks: node.ranks(),
            cores: node.cores(),
            mailboxes: node.mailboxes(),
            reads_directly: None,
            processes: Arc::new(NodeProcesses(Arc::clone(node))),
            remote,
            contexts: contexts.clone(),
        })?;
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

    /// A context for a new communicator on this node. Waits for its ranks.
    pub(crate) fn of_group(&self, group: &NodeCommunicator) -> Result<Self> {
        let new = self.begin()?;
        let call = Signature::new(CallKind::Split, 0, 1);
        let offers = group.exchange_words([new.offer().into(), 0, 0, 0, 0, 0], call)?;
        let number = new.take(offers.iter().map(|[number, ..]| *number as u32))?;
        Ok(MessageContext::new(Arc::clone(&self.endpoint), number, None))
    }

    /// Begins the creation of a communicator, before this rank takes part in anything that
    /// completes it on another one.
    pub(crate) fn begin(&self) -> Result<NewContext> {
        let endpoint = Arc::clone(&self.endpoint);
        // Without a number the rank still takes part, so that all ranks see the failure.
        let offer = endpoint.offer().unwrap_or_else(|error| {
            log::warn!("{error}");
            0
        });
        endpoint.change_contexts(|contexts| contexts.begin(offer))?;
        Ok(NewContext { endpoint, offer, number: None })
    }
}

/// The creation of a communicator. Its first messages may arrive before it is complete here.
#[derive(Debug)]
pub(crate) struct NewContext {
    endpoint: Arc<RankEndpoint>,
    offer: u32,
    number: Option<u32>,
}

impl NewContext {
    /// The number that this rank offers; 0 if it has none left.
    pub(crate) fn offer(&self) -> u32 {
        self.offer
    }

    /// Ends the creation with the number of the new communicator, from the offers of all its ranks.
    /// The caller passes it on to a [`MessageContext`].
    pub(crate) fn take(mut self, offers: impl IntoIterator<Item = u32>) -> Result<u32> {
        self.number = self.endpoint.numbers().take(offers);
        self.number.ok_or_else(|| {
            let expected = "fewer in the life of the job";
            argument("the number of communicators", "the highest", expected)
        })
    }
}

impl Drop for NewContext {
    /// Without a number: the creation has failed, or the communicator is without this rank.
    fn drop(&mut self) {
        let end = |contexts: &mut Contexts| contexts.end(self.number);
        if let Err(error) = self.endpoint.change_contexts(end) {
            log::warn!("early messages of a communicator are left: {error}");
        }
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
            && let Err(error) = self.endpoint.change_contexts(|contexts| contexts.drop(self.number))
        {
            log::warn!("messages of a dropped communicator are left: {error}");
        }
    }
}
