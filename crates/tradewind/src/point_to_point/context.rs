//! The messages of one communicator, and a rank's end of those of all communicators.

use crate::context_numbers::ContextNumbers;
use crate::error::{Result, argument};
use engine::communicator::Communicator as NodeCommunicator;
use engine::node::membership::{Background, Member};
use engine::node::{MAILBOX_BYTES, Node};
use engine::signature::{CallKind, Signature};
use queues::matching::{Endpoint, EndpointOptions, Processes};
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
    creation: Mutex<()>,
    numbers: ContextNumbers,
}

impl RankEndpoint {
    pub(crate) fn new(group: &NodeCommunicator) -> Self {
        let last_rank = group.member().node().ranks().saturating_sub(1);
        RankEndpoint {
            member: Arc::clone(group.member()),
            arena: Arc::clone(group.arena()),
            endpoint: OnceLock::new(),
            creation: Mutex::new(()),
            numbers: ContextNumbers::new(u32::BITS - last_rank.leading_zeros()),
        }
    }

    #[inline]
    fn get(self: &Arc<Self>) -> Result<&Endpoint> {
        match self.endpoint.get() {
            Some(endpoint) => Ok(endpoint),
            None => self.create(),
        }
    }

    #[cold]
    fn create(self: &Arc<Self>) -> Result<&Endpoint> {
        // One at a time: an endpoint takes over what has been sent to the rank.
        let _creation = self.creation.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(endpoint) = self.endpoint.get() {
            return Ok(endpoint);
        }
        let node = self.member.node();
        let endpoint = Endpoint::new(EndpointOptions {
            arena: Arc::clone(&self.arena),
            rank: self.member.rank(),
            ranks: node.ranks(),
            cores: node.cores(),
            mailboxes: node.mailboxes(),
            reads_directly: None,
            processes: Arc::new(NodeProcesses(Arc::clone(node))),
        })?;
        let endpoint = self.endpoint.get_or_init(|| endpoint);
        // A sender may wait until this rank, which waits for a collective, has read its message.
        self.member.register_background(Arc::downgrade(self) as Weak<dyn Background>);
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

    /// The context of all ranks of the job.
    pub(crate) fn of_job(endpoint: Arc<RankEndpoint>) -> Self {
        MessageContext { endpoint, number: 0, reported: Mutex::default() }
    }

    /// A context for a new communicator. Waits for its ranks, which take the number that the first
    /// of them offers.
    pub(crate) fn of_group(&self, group: &NodeCommunicator) -> Result<Self> {
        let endpoint = Arc::clone(&self.endpoint);
        let offered = match group.members().first() {
            // Without a number the first rank still takes part, so that all ranks see the failure.
            Some(first) if group.rank() == 0 => endpoint.numbers.next(*first),
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
        Ok(MessageContext { endpoint, number, reported: Mutex::default() })
    }
}

impl Drop for MessageContext {
    fn drop(&mut self) {
        if let Some(endpoint) = self.endpoint.endpoint.get()
            && self.number > 0
        {
            // The number is never used again, so a message that is left costs memory only.
            if let Err(error) = endpoint.discard_context(self.number) {
                log::warn!("messages of a dropped communicator are left: {error}");
            }
        }
    }
}
