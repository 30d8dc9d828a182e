//! A communicator: ranks that run collectives together.

use crate::buffers::SharedBuffer;
use crate::deferred::DeferredBuffers;
use crate::error::Result;
use crate::internode::group::InternodeGroup;
use crate::link_key::LinkKey;
use crate::path::ExecutionPath;
use crate::path_cache::{PathCache, Size};
use crate::placement::Placement;
use crate::point_to_point::context::{MessageContext, RankEndpoint};
use crate::selection::algorithms::Algorithms;
use crate::selection::job_table::JobTable;
use crate::selection::rules::SelectionRules;
use bytemuck::Pod;
use engine::communicator::Communicator as NodeCommunicator;
use models::decision::rules::MachineClass;
use shm::arena::Arena;
use shm::segment::Segment;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Largest number of linked schedules in the cache of a communicator. Each has the schedules of all
/// ranks in private memory.
const MOST_LINKED: u64 = 1024;

/// Ranks that run collectives together, in a communication context of their own: messages of
/// different communicators never match.
///
/// A communicator is a handle: clones refer to the same communicator. All methods may be called
/// from any thread. As in MPI, all ranks start the collectives of one communicator in the same
/// order; threads that share one must agree on an order, or each use its own ([`dup`](Self::dup)).
/// A blocking call does not match a nonblocking one: long blocking collectives are streamed
/// between ranks that are all inside the call.
///
/// Each collective exists in three forms: [`barrier`](Self::barrier) blocks,
/// [`ibarrier`](Self::ibarrier) returns a [`Request`](crate::Request), and
/// [`barrier_init`](Self::barrier_init) prepares a [`Persistent`](crate::Persistent) collective
/// that can be started many times.
///
/// With algorithms other than `join`, the first collective of a kind and size links a schedule,
/// which stays in a cache. The cache holds the 1024 most recently used schedules, with at most half of
/// the arena; between nodes another one holds as many of collectives with block sizes that only some
/// ranks have. No nonblocking call waits for another rank, with one exception: between nodes, where the
/// kernel engine is available, the first of a collective and size waits for all ranks to agree on its
/// engine.
#[derive(Clone, Debug)]
pub struct Communicator {
    shared: Arc<Shared>,
    /// The caches of this handle's schedules: those of the communicator, or of a topology.
    paths: Arc<Paths>,
    algorithms: Algorithms,
}

/// The cached paths of a communicator or of a topology.
#[derive(Debug, Default)]
struct Paths {
    /// Those that all ranks make together, or in the same order of calls.
    common: Mutex<PathCache>,
    /// Those that this rank makes alone, when its own sizes are new. Among the common ones they would
    /// remove others than on the other ranks.
    own: Mutex<PathCache>,
}

#[derive(Debug)]
struct Shared {
    /// The ranks on this node: as a rule all.
    group: Arc<NodeCommunicator>,
    /// All ranks, if they are on several nodes.
    internode: Option<Arc<InternodeGroup>>,
    rank: u32,
    size: u32,
    topologies: AtomicU64,
    ports: AtomicU64,
    rules: &'static SelectionRules,
    /// Shared by all communicators of the job, because memory may outlive its communicator.
    deferred: DeferredBuffers,
    /// Context of the messages between two ranks.
    messages: MessageContext,
}

impl Communicator {
    /// The communicator of all ranks of a job; `internode` if they are on several nodes. `table` is
    /// the same on all ranks.
    pub(crate) fn world(
        group: Arc<NodeCommunicator>,
        internode: Option<Arc<InternodeGroup>>,
        table: JobTable,
    ) -> Self {
        let (ranks, placement) = ranks_and_placement(&group, internode.as_ref());
        let rules = SelectionRules::of(table, ranks, group.engine(), placement);
        let endpoint = Arc::new(RankEndpoint::new(&group, internode.as_ref()));
        let messages = MessageContext::of_job(endpoint, internode.as_ref());
        let deferred = DeferredBuffers::of(group.member());
        Communicator::new(group, internode, rules, messages, deferred)
    }

    fn new(
        group: Arc<NodeCommunicator>,
        internode: Option<Arc<InternodeGroup>>,
        rules: &'static SelectionRules,
        messages: MessageContext,
        deferred: DeferredBuffers,
    ) -> Self {
        let (rank, size) = match &internode {
            None => (group.rank(), group.size()),
            Some(internode) => (internode.rank(), internode.ranks()),
        };
        let shared = Shared {
            group,
            internode,
            rank,
            size,
            topologies: AtomicU64::new(0),
            ports: AtomicU64::new(0),
            rules,
            deferred,
            messages,
        };
        let shared = Arc::new(shared);
        Communicator { shared, paths: Arc::default(), algorithms: Algorithms::default() }
    }

    /// The ranks on this node: all of them, unless [`internode`](Self::internode) is some.
    pub(crate) fn group(&self) -> &Arc<NodeCommunicator> {
        &self.shared.group
    }

    /// This rank's part of the node's segment.
    pub(crate) fn arena(&self) -> &Arc<Arena> {
        self.group().arena()
    }

    /// The segment of the node.
    pub(crate) fn segment(&self) -> &Arc<Segment> {
        self.arena().segment()
    }

    /// All ranks, if they are on several nodes.
    pub(crate) fn internode(&self) -> Option<&Arc<InternodeGroup>> {
        self.shared.internode.as_ref()
    }

    /// The rules that select algorithms.
    #[inline]
    pub(crate) fn rules(&self) -> &'static SelectionRules {
        self.shared.rules
    }

    /// A communicator of some of the ranks, with the same algorithms. Waits for the ranks of the
    /// group.
    pub(crate) fn subset(
        &self,
        group: Arc<NodeCommunicator>,
        internode: Option<Arc<InternodeGroup>>,
    ) -> Result<Self> {
        let (ranks, placement) = ranks_and_placement(&group, internode.as_ref());
        let rules = self.rules().for_ranks(ranks, placement);
        let messages = match &internode {
            None => self.message_context().of_group(&group)?,
            Some(internode) => self.message_context().of_nodes(internode),
        };
        let deferred = self.deferred().clone();
        let subset = Communicator::new(group, internode, rules, messages, deferred);
        Ok(subset.with_algorithms(self.algorithms))
    }

    /// The context of the messages between two ranks.
    #[inline]
    pub(crate) fn message_context(&self) -> &MessageContext {
        &self.shared.messages
    }

    /// This rank, from 0.
    #[inline]
    pub fn rank(&self) -> u32 {
        self.shared.rank
    }

    /// Number of ranks.
    #[inline]
    pub fn size(&self) -> u32 {
        self.shared.size
    }

    /// Ends the job, like `MPI_Abort`: this process exits at once with the status, or with 1 if that would
    /// be success. Waits of the other ranks end with an error that names this rank, and the launcher
    /// ends processes that do not end by themselves. The ranks of [`local`](crate::local) jobs are
    /// threads of one process, which ends.
    pub fn abort(&self, status: u8) -> ! {
        log::error!("rank {} ends the job with status {status}", self.rank());
        std::process::exit(status.max(1).into())
    }

    /// The same communicator with other algorithms. All ranks must use the same.
    ///
    /// ```
    /// use tradewind::{Algorithm, Algorithms};
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(4, |world| {
    ///     let barrier = Some(Algorithm::Dissemination);
    ///     let algorithms = Algorithms { barrier, ..Algorithms::default() };
    ///     world.with_algorithms(algorithms).barrier()
    /// })
    /// # }
    /// ```
    #[must_use]
    pub fn with_algorithms(&self, algorithms: Algorithms) -> Self {
        Communicator { algorithms, ..self.clone() }
    }

    /// The same communicator with caches of its own, which are dropped with its last handle.
    pub(crate) fn with_own_caches(&self) -> Self {
        Communicator { paths: Arc::default(), ..self.clone() }
    }

    #[inline]
    pub(crate) fn chosen(&self) -> &Algorithms {
        &self.algorithms
    }

    /// The algorithms of this handle.
    pub fn algorithms(&self) -> Algorithms {
        self.algorithms
    }

    /// Allocates zeroed memory in the job's segment, which collectives use in place.
    ///
    /// # Errors
    /// Fails if this rank's part of the segment is full, or if elements are aligned to more than a
    /// page.
    pub fn alloc<T: Pod>(&self, count: usize) -> Result<SharedBuffer<T>> {
        self.deferred().sweep();
        SharedBuffer::new(self.group(), self.deferred(), count).or_else(|_| {
            self.deferred().sweep_all();
            SharedBuffer::new(self.group(), self.deferred(), count)
        })
    }

    /// Executes the tasks of this rank on its node, in all communicators of the job, as every wait and
    /// every test of an incomplete collective does: starts queued collectives
    /// ([`is_queued`](crate::Request::is_queued)), for instance. Never waits. Returns whether
    /// collectives are still queued, so that the call has to be repeated.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(2, |world| {
    ///     let requests: Vec<_> = (0..1000).map(|_| world.ibarrier()).collect::<Result<_, _>>()?;
    ///     while world.progress()? {
    ///         std::thread::yield_now();
    ///     }
    ///     assert!(requests.iter().all(|request| !request.is_queued()));
    ///     tradewind::wait_all(requests)?;
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if an operation of this rank fails.
    pub fn progress(&self) -> Result<bool> {
        Ok(self.group().advance_queued_runs()?)
    }

    /// The buffers of requests that were dropped before their collectives were complete, and queues
    /// that other ranks still use.
    #[inline]
    pub(crate) fn deferred(&self) -> &DeferredBuffers {
        &self.shared.deferred
    }

    /// The cached path with this key, which all ranks look up; `make` makes it if there is none.
    pub(crate) fn cached_path(
        &self,
        key: LinkKey,
        make: impl FnOnce() -> Result<ExecutionPath>,
    ) -> Result<ExecutionPath> {
        self.cached_in(&self.paths.common, key, make)
    }

    /// As [`cached_path`](Self::cached_path), for a path that other ranks may not look up.
    pub(crate) fn cached_path_of_own_sizes(
        &self,
        key: LinkKey,
        make: impl FnOnce() -> Result<ExecutionPath>,
    ) -> Result<ExecutionPath> {
        self.cached_in(&self.paths.own, key, make)
    }

    fn cached_in(
        &self,
        cache: &Mutex<PathCache>,
        key: LinkKey,
        make: impl FnOnce() -> Result<ExecutionPath>,
    ) -> Result<ExecutionPath> {
        let lock = || cache.lock().unwrap_or_else(PoisonError::into_inner);
        // The lock is not held while linking, which waits for other ranks. Two threads that link
        // the same collective at once link it twice; the later one stays in the cache.
        let cached = lock().find(&key);
        if let Some(path) = cached {
            return Ok(path);
        }
        let path = make()?;
        // Half of the arena of every rank is for other memory, even if one rank has all blocks.
        let limit = Size { bytes: self.group().arena().capacity() / 2, count: MOST_LINKED };
        let left = lock().insert(key, path.clone(), limit);
        drop(left);
        Ok(path)
    }

    /// Number of the next port of queues between nodes, the same on all ranks.
    pub(crate) fn next_port_number(&self) -> u64 {
        self.shared.ports.fetch_add(1, Ordering::Relaxed)
    }

    /// Number of the next topology, the same on all ranks.
    pub(crate) fn next_topology(&self) -> u64 {
        self.shared.topologies.fetch_add(1, Ordering::Relaxed)
    }
}

fn ranks_and_placement(
    group: &NodeCommunicator,
    internode: Option<&Arc<InternodeGroup>>,
) -> (u32, Placement) {
    match internode {
        None => {
            let node = group.member().node();
            (group.size(), Placement::OneNode(MachineClass::of(node.ranks(), node.cores())))
        }
        Some(internode) => (internode.ranks(), internode.placement()),
    }
}
