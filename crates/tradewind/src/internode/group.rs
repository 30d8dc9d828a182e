//! The ranks of a communicator on several nodes, and the backends between them.

use super::call_forms;
use super::exit::DrainOnExit;
use super::external::ExternalCollectives;
use super::liveness::LivenessWatch;
use super::translation::{rank_in, translate};
use crate::context_numbers::ContextNumbers;
use crate::error::{Error, Result};
use crate::open_numbers::OpenNumbers;
use crate::placement::{InRanks, NodeLayout, Placement};
use engine::communicator::Communicator as NodeCommunicator;
use engine::signature::Signature;
use network::agent::AgentClient;
use network::backend::{Backend, CommunicatorContext};
use network::direct::DirectBackend;
use network::error::Error as BackendError;
use network::node_map::NodeMap;
use network::transport::tcp::Timeouts;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// A job on several nodes: shared by all its communicators in this process.
#[derive(Debug)]
pub(crate) struct InternodeJob {
    /// The node of each rank of the job.
    pub(crate) nodes: NodeMap,
    pub(crate) backends: Backends,
    /// The agent, which is the general backend and carries messages.
    agent: Arc<AgentClient>,
    numbers: ContextNumbers,
    open: Mutex<OpenNumbers>,
    /// Dropped with the last communicator between nodes. `None` for ranks that are threads.
    exit: Option<Arc<DrainOnExit>>,
}

/// The backends between nodes.
#[derive(Clone, Debug)]
pub(crate) struct Backends {
    /// Accepts every schedule and detects failed ranks.
    pub(crate) general: Arc<dyn Backend>,
    /// Preferred for the schedules that they accept, in this order.
    pub(crate) special: Vec<Arc<dyn Backend>>,
    /// Runs blocking collectives instead of the general backend, if there is one.
    pub(crate) blocking: Option<Arc<DirectBackend>>,
    /// The collectives that it runs.
    pub(crate) in_ranks: InRanks,
}

impl Backends {
    /// One backend for everything.
    fn only(general: Arc<dyn Backend>) -> Self {
        Backends { general, special: Vec::new(), blocking: None, in_ranks: InRanks::Nothing }
    }
}

impl InternodeJob {
    /// A job with its ranks on these nodes and one backend.
    pub(crate) fn new(nodes: NodeMap, agent: Arc<AgentClient>) -> Arc<Self> {
        let general = Arc::clone(&agent) as Arc<dyn Backend>;
        InternodeJob::with_backends(nodes, Backends::only(general), agent, None)
    }

    /// A job of which this process is a rank. Leaving the job waits for at most `limit`.
    pub(crate) fn of_process(
        nodes: NodeMap,
        agent: Arc<AgentClient>,
        limit: Duration,
    ) -> Arc<Self> {
        let general = Arc::clone(&agent) as Arc<dyn Backend>;
        let exit = Some(Arc::new(DrainOnExit::new(Arc::clone(&general), limit)));
        InternodeJob::with_backends(nodes, Backends::only(general), agent, exit)
    }

    /// The same job, with `backend` preferred for the schedules that it accepts.
    fn preferring(&self, backend: Arc<dyn Backend>) -> Arc<Self> {
        self.drain_on_exit(&backend);
        let mut backends = self.backends.clone();
        backends.special.insert(0, backend);
        let agent = Arc::clone(&self.agent);
        InternodeJob::with_backends(self.nodes.clone(), backends, agent, self.exit.clone())
    }

    /// The same job, with `backend` for these collectives.
    pub(crate) fn in_ranks(&self, backend: Arc<DirectBackend>, in_ranks: InRanks) -> Arc<Self> {
        let drained: Arc<dyn Backend> = Arc::clone(&backend) as Arc<dyn Backend>;
        self.drain_on_exit(&drained);
        let backends = Backends { blocking: Some(backend), in_ranks, ..self.backends.clone() };
        let agent = Arc::clone(&self.agent);
        InternodeJob::with_backends(self.nodes.clone(), backends, agent, self.exit.clone())
    }

    fn drain_on_exit(&self, backend: &Arc<dyn Backend>) {
        if let Some(exit) = &self.exit {
            exit.drain_first(backend);
        }
    }

    fn with_backends(
        nodes: NodeMap,
        backends: Backends,
        agent: Arc<AgentClient>,
        exit: Option<Arc<DrainOnExit>>,
    ) -> Arc<Self> {
        let numbers = ContextNumbers::new(nodes.ranks());
        let open = Mutex::default();
        Arc::new(InternodeJob { nodes, backends, agent, numbers, open, exit })
    }

    /// Changes the communicators that this rank has. The backends learn which of them have ended.
    fn change_open(&self, change: impl FnOnce(&mut OpenNumbers)) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut open);
        let ended = open.take_ended();
        drop(open);
        let Backends { general, special, blocking, .. } = &self.backends;
        for numbers in ended {
            let in_ranks = blocking.iter().map(|direct| &**direct as &dyn Backend);
            let others = [general].into_iter().chain(special).map(|backend| &**backend);
            others.chain(in_ranks).for_each(|one| one.end_communicators(numbers.clone()));
        }
    }

    /// Begins the creation of a communicator, before this rank offers a number for it.
    pub(crate) fn begin_creation(&self) -> Creation<'_> {
        let mut least = 0;
        // Under the lock: what ends meanwhile is below, or waits.
        self.change_open(|open| {
            least = self.numbers.least();
            open.begin(least);
        });
        Creation { job: self, least }
    }

    /// Time for which a rank that leaves waits for one that reads nothing.
    pub(crate) fn leave_limit(&self) -> Duration {
        let limit = self.exit.as_ref().map(|exit| exit.limit());
        limit.unwrap_or(Timeouts::default().unanswered)
    }

    /// The agent of this rank's node.
    pub(crate) fn agent(&self) -> &Arc<AgentClient> {
        &self.agent
    }

    /// Source of numbers for communicators with any of the job's ranks, on one node or several.
    pub(crate) fn numbers(&self) -> &ContextNumbers {
        &self.numbers
    }
}

/// The creation of a communicator, which ends behind its [`InternodeGroup`].
#[derive(Debug)]
pub(crate) struct Creation<'a> {
    job: &'a InternodeJob,
    least: u32,
}

impl Drop for Creation<'_> {
    fn drop(&mut self) {
        self.job.change_open(|open| open.end_creation(self.least));
    }
}

/// The ranks of a communicator on several nodes.
#[derive(Debug)]
pub(crate) struct InternodeGroup {
    job: Arc<InternodeJob>,
    /// The ranks on this node.
    group: Arc<NodeCommunicator>,
    context: CommunicatorContext,
    /// Number of collectives started.
    sequence: AtomicU64,
    /// Number of schedules offered to a backend, accepted or not: equal on all ranks.
    programs: AtomicU64,
    /// Started when a rank first waits long on a backend that cannot detect failed ranks.
    watch: OnceLock<LivenessWatch>,
    /// Collectives that another library runs.
    external: ExternalCollectives,
}

impl InternodeGroup {
    /// All ranks of a job.
    pub(crate) fn world(
        job: Arc<InternodeJob>,
        group: &Arc<NodeCommunicator>,
        rank: u32,
    ) -> Arc<Self> {
        let members = (0..job.nodes.ranks()).collect();
        InternodeGroup::of(job, Arc::clone(group), CommunicatorContext { number: 0, members, rank })
    }

    /// Some of these ranks, in the order of the list and with the number that they have agreed on. This rank
    /// is one of them, and `group` has those on this node.
    pub(crate) fn subset(
        &self,
        group: &Arc<NodeCommunicator>,
        ranks: &[u32],
        number: u32,
    ) -> Arc<Self> {
        let members = ranks.iter().map(|rank| self.context.members[*rank as usize]).collect();
        let rank = ranks.iter().position(|rank| *rank == self.rank()).unwrap_or(0) as u32;
        let context = CommunicatorContext { number, members, rank };
        InternodeGroup::of(Arc::clone(&self.job), Arc::clone(group), context)
    }

    /// The ranks of a context; `group` has those on this node.
    fn of(
        job: Arc<InternodeJob>,
        group: Arc<NodeCommunicator>,
        context: CommunicatorContext,
    ) -> Arc<Self> {
        if context.number > 0 {
            job.change_open(|open| open.open(context.number));
        }
        let sequence = AtomicU64::new(0);
        let programs = AtomicU64::new(0);
        let watch = OnceLock::new();
        let external = ExternalCollectives::default();
        Arc::new(InternodeGroup { job, group, context, sequence, programs, watch, external })
    }

    /// The same ranks, with `backend` preferred for the schedules that it accepts. The numbers of
    /// collectives continue.
    pub(crate) fn preferring(&self, backend: Arc<dyn Backend>) -> Arc<Self> {
        self.with_job(self.job.preferring(backend))
    }

    /// The same ranks, with `backend` for these collectives. Their numbers continue.
    pub(crate) fn in_ranks(&self, backend: Arc<DirectBackend>, in_ranks: InRanks) -> Arc<Self> {
        self.with_job(self.job.in_ranks(backend, in_ranks))
    }

    fn with_job(&self, job: Arc<InternodeJob>) -> Arc<Self> {
        let copy = |count: &AtomicU64| AtomicU64::new(count.load(Ordering::Relaxed));
        Arc::new(InternodeGroup {
            job,
            group: Arc::clone(&self.group),
            context: self.context.clone(),
            sequence: copy(&self.sequence),
            programs: copy(&self.programs),
            watch: OnceLock::new(),
            external: ExternalCollectives::default(),
        })
    }

    pub(crate) fn job(&self) -> &Arc<InternodeJob> {
        &self.job
    }

    /// The ranks on this node.
    pub(crate) fn group(&self) -> &Arc<NodeCommunicator> {
        &self.group
    }

    pub(crate) fn context(&self) -> &CommunicatorContext {
        &self.context
    }

    pub(crate) fn rank(&self) -> u32 {
        self.context.rank
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.context.members.len() as u32
    }

    /// Number of the next schedule.
    pub(super) fn next_program(&self) -> u64 {
        self.programs.fetch_add(1, Ordering::Relaxed)
    }

    /// Number of the next collective; taken once a backend has started it.
    pub(super) fn sequence(&self) -> &AtomicU64 {
        &self.sequence
    }

    /// Number in the job of the node of `rank`.
    pub(crate) fn node_of(&self, rank: u32) -> Option<u32> {
        self.job.nodes.of(*self.context.members.get(rank as usize)?)
    }

    /// Node of each rank.
    pub(crate) fn nodes_of_ranks(&self) -> Vec<u32> {
        (0..self.ranks()).filter_map(|rank| self.node_of(rank)).collect()
    }

    /// Rank in this communicator of a rank of the job.
    pub(super) fn rank_of(&self, member: u32) -> Option<u32> {
        rank_in(&self.context, member)
    }

    /// Placement of the ranks.
    pub(crate) fn placement(&self) -> Placement {
        let Backends { general, special, in_ranks, .. } = &self.job.backends;
        let preferred = special.first().unwrap_or(general).name();
        Placement::Nodes(NodeLayout::new(&self.nodes_of_ranks(), preferred, *in_ranks))
    }

    /// Fails if a rank is gone without which a run of `backend` that waits for messages of the
    /// ranks `awaited` of the job cannot complete. The general backend checks its own runs, so there
    /// is nothing to do for them.
    pub(super) fn check_liveness(
        &self,
        backend: &Arc<dyn Backend>,
        awaited: impl FnOnce() -> Vec<u32>,
    ) -> Result<()> {
        let general = &self.job.backends.general;
        if Arc::ptr_eq(general, backend) {
            return Ok(());
        }
        let watch = match self.watch.get() {
            Some(watch) => watch,
            None => {
                // Two threads may start one each; the second is dropped and ends its run.
                let started = LivenessWatch::start(&self.context, general)?;
                self.watch.get_or_init(|| started)
            }
        };
        watch.check(awaited, || backend.lost())
    }

    /// Returns true if it is known why each rank that the backend has lost is gone.
    pub(super) fn explains_losses(&self, backend: &Arc<dyn Backend>) -> bool {
        self.watch.get().is_none_or(|watch| watch.explains(&backend.lost()))
    }

    /// Fails if another rank executes the collective of this number on `other`, which runs the
    /// other form of calls.
    pub(super) fn check_form(
        &self,
        other: &Arc<dyn Backend>,
        sequence: u64,
        call: Signature,
    ) -> Result<()> {
        let signature = call.blocking().digest24();
        match call_forms::mismatch(other, &self.context, sequence, signature)? {
            Some(error) => Err(self.translate(error)),
            None => Ok(()),
        }
    }

    /// Records a collective that another library runs on the same ranks.
    pub(crate) fn record_external_collective(&self) {
        // As a start, which takes its number in the same way.
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        self.external.record(sequence);
    }

    /// Fails if another rank runs one of the last of these collectives here.
    pub(crate) fn check_external_collectives(&self) -> Result<()> {
        let Backends { general, special, blocking, .. } = &self.job.backends;
        let direct = blocking.clone().map(|direct| direct as Arc<dyn Backend>);
        let backends = [general].into_iter().chain(special).chain(&direct);
        self.external.check(&self.context, backends, |error| self.translate(error))
    }

    /// Returns true if a rank of this communicator, or a node, is known to have failed.
    pub(super) fn has_failed(&self) -> bool {
        self.watch.get().is_some_and(LivenessWatch::has_failed)
    }

    /// A backend's error with the ranks of this communicator.
    pub(super) fn translate(&self, error: BackendError) -> Error {
        translate(&self.context, error)
    }
}

impl Drop for InternodeGroup {
    /// No schedule of the communicator is left, so none of its runs starts any more.
    fn drop(&mut self) {
        self.job.change_open(|open| open.close(self.context.number));
    }
}
