//! A communicator: ranks that run collectives together.

use crate::algorithms::{Algorithms, Levels};
use crate::buffers::SharedBuffer;
use crate::collective::plan::Course;
use crate::decisions::{self, Rules};
use crate::error::Result;
use crate::pending::Pending;
use crate::spanning::{Layout, Span};
use bytemuck::Pod;
use collectives::Tuning;
use engine::call::Call;
use engine::group::Group;
use engine::lane::Argument;
use engine::meeting::Meeting;
use engine::pending::Pending as NodePending;
use goal::compile::compile;
use goal::graph::Graph;
use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Ranks that run collectives together. Two communicators never take each other's messages.
///
/// A communicator is a handle: clones refer to the same communicator. Every call may be made from
/// any thread; collectives of one communicator must be started in the same order on all its ranks,
/// as in MPI, so threads that share one agree on an order, or each uses its own (see
/// [`dup`](Self::dup)). As in MPI a blocking call does not match a nonblocking one: long blocking
/// collectives are streamed between ranks that are all inside the call.
///
/// The collectives are in groups: [`barrier`](Self::barrier) waits, [`ibarrier`](Self::ibarrier)
/// returns a [`Request`](crate::Request), [`barrier_init`](Self::barrier_init) prepares a
/// [`Persistent`](crate::Persistent) collective that can be started again and again.
///
/// With algorithms other than `join`, the first collective of a kind and size links a schedule,
/// which waits for all ranks; so does [`Self::compile`]. What is linked is kept and used again.
#[derive(Clone, Debug)]
pub struct Communicator {
    shared: Arc<Shared>,
    algorithms: Algorithms,
}

#[derive(Debug)]
struct Shared {
    /// Those of its ranks that are on this node: as a rule all.
    group: Arc<Group>,
    /// What it has if there are others.
    span: Option<Arc<Span>>,
    rank: u32,
    size: u32,
    linked: Mutex<HashMap<LinkKey, Course>>,
    topologies: AtomicU64,
    rules: &'static Rules,
    /// Dropped requests whose buffers are still in use.
    kept: Mutex<Vec<(NodePending, Kept)>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let kept = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (pending, buffers) in kept.drain(..) {
            if !pending.is_complete() {
                // Others may still work on them, and nobody is left to free them later.
                std::mem::forget(buffers);
            }
        }
    }
}

impl Shared {
    fn lock_kept(&self) -> MutexGuard<'_, Vec<(NodePending, Kept)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the buffers of requests that are dropped early.
#[derive(Debug)]
pub(crate) struct Keeper(Arc<Shared>);

impl Keeper {
    /// Keeps buffers until their collective is complete.
    pub(crate) fn keep(&self, pending: NodePending, buffers: Box<dyn Any + Send>) {
        self.0.lock_kept().push((pending, Kept(buffers)));
    }
}

/// Buffers that wait for their collective to end.
struct Kept(#[expect(dead_code, reason = "held only to be dropped")] Box<dyn Any + Send>);

impl std::fmt::Debug for Kept {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Kept")
    }
}

/// What tells linked schedules apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinkKey {
    pub(crate) call: Call,
    pub(crate) algorithm: &'static str,
    pub(crate) tuning: Tuning,
    pub(crate) levels: Levels,
    /// Operation and type, root, or number of a topology.
    pub(crate) arguments: u64,
    /// The sizes of blocks that are not all equal; all ranks have the same.
    pub(crate) sizes: Vec<u64>,
}

impl Communicator {
    /// The communicator of all ranks of a job: those of the group, and with a span those of other
    /// nodes.
    pub(crate) fn world(group: Arc<Group>, span: Option<Arc<Span>>) -> Self {
        let table = decisions::of_job(group.member().node(), group.rank());
        let (ranks, layout) = ranks_and_layout(&group, span.as_ref());
        let rules = Rules::of(table, ranks, group.engine(), layout);
        Communicator::new(group, span, rules)
    }

    fn new(group: Arc<Group>, span: Option<Arc<Span>>, rules: &'static Rules) -> Self {
        let (rank, size) = match &span {
            None => (group.rank(), group.size()),
            Some(span) => (span.rank(), span.ranks()),
        };
        let (linked, kept) = (Mutex::default(), Mutex::default());
        let shared =
            Shared { group, span, rank, size, linked, topologies: AtomicU64::new(0), rules, kept };
        Communicator { shared: Arc::new(shared), algorithms: Algorithms::default() }
    }

    /// Those of its ranks that are on this node: all of them, unless it has a [span](Self::span).
    pub(crate) fn group(&self) -> &Arc<Group> {
        &self.shared.group
    }

    /// What it has if its ranks are on several nodes.
    pub(crate) fn span(&self) -> Option<&Arc<Span>> {
        self.shared.span.as_ref()
    }

    /// What it goes by when an algorithm is left open.
    #[inline]
    pub(crate) fn rules(&self) -> &'static Rules {
        self.shared.rules
    }

    /// Ranks of this one that are a communicator of their own, with the same algorithms.
    pub(crate) fn part(&self, group: Arc<Group>, span: Option<Arc<Span>>) -> Self {
        let (ranks, layout) = ranks_and_layout(&group, span.as_ref());
        let rules = self.rules().for_ranks(ranks, layout);
        Communicator::new(group, span, rules).with_algorithms(self.algorithms)
    }

    /// This rank, from 0.
    pub fn rank(&self) -> u32 {
        self.shared.rank
    }

    /// The number of ranks.
    pub fn size(&self) -> u32 {
        self.shared.size
    }

    /// The same communicator with other algorithms. All ranks must use the same.
    ///
    /// ```
    /// use tradewind::{Algorithms, BarrierAlgorithm};
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(4, |world| {
    ///     let algorithms = Algorithms { barrier: Some(BarrierAlgorithm::Dissemination), ..Algorithms::default() };
    ///     world.with_algorithms(algorithms).barrier()
    /// })
    /// # }
    /// ```
    #[must_use]
    pub fn with_algorithms(&self, algorithms: Algorithms) -> Self {
        Communicator { shared: Arc::clone(&self.shared), algorithms }
    }

    #[inline]
    pub(crate) fn chosen(&self) -> &Algorithms {
        &self.algorithms
    }

    /// The algorithms this handle uses.
    pub fn algorithms(&self) -> Algorithms {
        self.algorithms
    }

    /// A communicator for each `color`; its ranks are ordered by `key`, then by rank here. With no
    /// colour this rank belongs to none. A collective call that waits for all ranks.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(5, |world| {
    ///     let Some(half) = world.split(Some(world.rank() % 2), 0)? else { unreachable!("everyone has a colour") };
    ///     assert_eq!(half.size(), if world.rank() % 2 == 0 { 3 } else { 2 });
    ///     assert_eq!(half.rank(), world.rank() / 2);
    ///     half.barrier()
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// When a rank is in another collective or gone, or the segment is full.
    pub fn split(&self, color: Option<u32>, key: i64) -> Result<Option<Communicator>> {
        if let Some(span) = self.span() {
            return self.split_between_nodes(span, color, key);
        }
        let group = self.group().split(color, key)?;
        Ok(group.map(|group| self.part(group, None)))
    }

    /// Another communicator of the same ranks. A collective call that waits for all ranks.
    ///
    /// # Errors
    /// As [`split`](Self::split).
    pub fn dup(&self) -> Result<Communicator> {
        let same = self.split(Some(0), i64::from(self.rank()))?;
        Ok(same.unwrap_or_else(|| self.clone()))
    }

    /// Zeroed memory of the job's segment, for collectives to work on in place.
    ///
    /// # Errors
    /// When this rank's part of the segment is full.
    pub fn alloc<T: Pod>(&self, count: usize) -> Result<SharedBuffer<T>> {
        self.sweep();
        SharedBuffer::new(self.group(), count)
    }

    /// Who keeps the buffers of requests that are dropped early.
    pub(crate) fn keeper(&self) -> Keeper {
        Keeper(Arc::clone(&self.shared))
    }

    /// Frees buffers of dropped requests whose collectives are complete by now.
    fn sweep(&self) {
        self.shared.lock_kept().retain(|(pending, _)| !matches!(pending.test(), Ok(true)));
    }

    /// Starts a meeting of all ranks.
    #[inline]
    pub(crate) fn meet(&self, meeting: &Meeting, arguments: &[Argument<'_>]) -> Result<Pending> {
        Ok(Pending::Node(self.group().meet(meeting, arguments)?))
    }

    /// A collective's course through a graph, which is linked, or taken by an engine between nodes,
    /// now if it was not before.
    pub(crate) fn course(
        &self,
        key: LinkKey,
        draw: impl FnOnce() -> Result<Graph>,
    ) -> Result<Course> {
        let call = key.call;
        self.known_or(key, || self.link(&draw()?, call))
    }

    /// The course that is known by this key, made now if there is none.
    pub(crate) fn known_or(
        &self,
        key: LinkKey,
        make: impl FnOnce() -> Result<Course>,
    ) -> Result<Course> {
        // Not held while linking: that waits for other ranks. Two threads that link the same
        // collective at once each do.
        let known = self.lock_linked().get(&key).cloned();
        if let Some(course) = known {
            return Ok(course);
        }
        let course = make()?;
        self.lock_linked().insert(key, course.clone());
        Ok(course)
    }

    fn lock_linked(&self) -> MutexGuard<'_, HashMap<LinkKey, Course>> {
        self.shared.linked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compiles a graph and links it with those of the other ranks; between nodes an engine there
    /// takes it.
    pub(crate) fn link(&self, graph: &Graph, call: Call) -> Result<Course> {
        match self.span() {
            None => Ok(Course::Linked(self.group().link(&compile(graph)?, call)?)),
            Some(span) => Ok(Course::Carried(self.carry(span, graph, call)?)),
        }
    }

    /// The number of the next topology, the same on all ranks.
    pub(crate) fn next_topology(&self) -> u64 {
        self.shared.topologies.fetch_add(1, Ordering::Relaxed)
    }
}

fn ranks_and_layout(group: &Group, span: Option<&Arc<Span>>) -> (u32, Layout) {
    match span {
        None => (group.size(), Layout::OneNode),
        Some(span) => (span.ranks(), span.layout()),
    }
}
