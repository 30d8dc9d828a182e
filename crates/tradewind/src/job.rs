//! Joining a job, and jobs with threads as ranks.

use crate::communicator::Communicator;
use crate::error::{Error, Result, argument};
use crate::failure::Exit;
use crate::internode::clocks;
use crate::internode::group::{InternodeGroup, InternodeJob};
use crate::internode::probe::{self, UnreachablePair};
use crate::placement::InRanks;
use crate::profile::{self, NodeOfProfile, Profile};
use crate::rank_connections::{self, MAX_RANKS};
use crate::reduction::Op;
use crate::selection::job_table::{self, JobTable};
use crate::selection::rules;
use engine::communicator::Communicator as NodeCommunicator;
use engine::node::membership::Member;
use engine::node::{EngineKind, Node};
use launch::environment::{Environment, InternodeEngine, Lookup, TRACE};
use network::backend::Backend;
use network::node_map::NodeMap;
use queues::matching::wakeup_word;
use service::attachment::Attachment;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Membership of this process in a job, as one of its ranks. Dropping it leaves the job in order.
///
/// In a job on several nodes the last rank of a node to leave waits until the other nodes have
/// received what the ranks of its node have started to send, at most the node time-out
/// (TRADEWIND_NODE_TIMEOUT). A process manager may kill the node service afterwards. Leaving does
/// not wait for ranks of other nodes to leave.
///
/// ```no_run
/// # fn main() -> Result<(), tradewind::Error> {
/// let job = tradewind::Job::init()?;
/// let world = job.world();
/// println!("rank {} of {}", world.rank(), world.size());
/// world.barrier()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Job {
    world: Communicator,
    /// Address of this node for the other nodes, if there are any.
    address: Option<IpAddr>,
    profile: Option<Profile>,
}

/// The kernel backend, or the reason why this node has none.
type KernelBackend = std::result::Result<Arc<dyn Backend>, String>;

impl Job {
    /// Joins the job that this process was started for, by `tradewind run` or another launcher, and
    /// waits for the other ranks. A process started by hand is a job of one rank.
    ///
    /// # Errors
    /// Fails if the environment is incomplete, the node service cannot be reached, or a rank does
    /// not start.
    pub fn init() -> Result<Self> {
        Job::of(service::attach::attach()?)
    }

    /// The job of a process that has entered it. Collective over all ranks.
    pub(crate) fn of(attachment: Attachment) -> Result<Self> {
        let Attachment {
            member,
            rank,
            agent,
            kernel,
            internode: wanted,
            nodes,
            node_timeout,
            rank_endpoint,
            address,
            network,
            ..
        } = attachment;
        let (group, mut profile) = enter(member, rank)?;
        let Some((backend, nodes)) = agent.zip(nodes) else {
            return Ok(Job { world: world_on_one_node(group), address, profile });
        };
        if let Some(network) = network.filter(|_| rank == 0 && rules::explanations_enabled()) {
            eprintln!("tradewind: the nodes are connected by {network}");
        }
        let job = InternodeJob::of_process(nodes.clone(), backend, node_timeout);
        let internode = InternodeGroup::world(job, &group, rank);
        // No table until all nodes have the same: ranks that choose different algorithms would wait
        // for each other for ever.
        let all = Some(Arc::clone(&internode));
        let world = Communicator::world(Arc::clone(&group), all, JobTable::None);
        let table = agree_on_table(&world, job_table::of_job(group.member().node(), group.rank()))?;
        // All ranks or none: a run uses the same backend on every rank, and all ranks take part in
        // the comparison of clocks.
        let connects = wanted != InternodeEngine::Agent && world.size() <= MAX_RANKS;
        let rank_endpoint = rank_endpoint.filter(|_| connects);
        // A node service with a core of its own takes every step while the ranks compute. Without one it
        // waits for the ranks' cores, and ranks that send everything at their start need no service.
        let node = group.member().node();
        let is_open = !matches!(wanted, InternodeEngine::Direct | InternodeEngine::Ranks);
        let own = [
            kernel.is_ok(),
            profile.is_some(),
            rank_endpoint.is_some(),
            is_open && node.cores() > node.ranks(),
            wanted == InternodeEngine::Ranks,
        ];
        let [has_kernel, is_traced, connects, leaves_steps, takes_all] = everywhere(&world, own)?;
        let ahead = match is_traced {
            true => clocks::ahead_of_first(|times| world.allgather_times(times))?,
            false => 0,
        };
        if let Some(profile) = &mut profile {
            let node = nodes.of(rank).unwrap_or(0);
            profile.node = Some(NodeOfProfile { node, nodes: nodes.clone(), ahead });
        }
        let kernel = agree_on_kernel_backend(&world, kernel, has_kernel, &nodes)?;
        if let Err(why) = &kernel {
            report_missing_kernel_backend(&world, wanted, why.clone())?;
        }
        let direct = match rank_endpoint.filter(|_| connects) {
            Some(endpoint) => rank_connections::connect(&world, endpoint, node_timeout)?,
            None => None,
        };
        // The copies continue the numbers of `world`, so all of its collectives come before.
        let mut internode = internode;
        if let Ok(kernel) = kernel {
            kernel.set_timed(profile.is_some());
            internode = internode.preferring(kernel);
        }
        if let Some(direct) = direct {
            let in_ranks = match (takes_all, leaves_steps) {
                (true, _) => InRanks::All,
                (_, true) => InRanks::Blocking(0),
                _ => InRanks::Blocking(direct.held()),
            };
            internode = internode.in_ranks(direct, in_ranks);
        }
        Ok(Job { world: Communicator::world(group, Some(internode), table), address, profile })
    }

    /// The communicator of all ranks.
    pub fn world(&self) -> &Communicator {
        &self.world
    }

    /// Address of this node for processes of other nodes; `None` for a job on one node.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// Process of the node service that this rank belongs to. Its processor time is the job's, too.
    pub fn service_process(&self) -> u32 {
        self.world.group().member().node().service_process()
    }

    /// Leaves the job and returns errors that dropping it can only log.
    ///
    /// # Errors
    /// Fails if the profile cannot be written.
    pub fn finish(mut self) -> Result<()> {
        self.write_profile()
    }

    fn write_profile(&mut self) -> Result<()> {
        match self.profile.take() {
            Some(profile) => profile.write(self.world.rank(), self.world.size()),
            None => Ok(()),
        }
    }
}

/// The decision table of rank 0 on all ranks, whatever their nodes have.
fn agree_on_table(world: &Communicator, own: JobTable) -> Result<JobTable> {
    let bytes = match (world.rank(), &own) {
        (0, JobTable::Table(used)) => used.table.to_bytes().unwrap_or_default(),
        _ => Vec::new(),
    };
    // First the length: the buffers of a broadcast must have one length on all ranks.
    let mut length = [bytes.len() as u64];
    world.bcast(&mut length, 0)?;
    let mut bytes = bytes;
    bytes.resize(length[0] as usize, 0);
    world.bcast(&mut bytes, 0)?;
    Ok(match (world.rank(), own) {
        (0, own) => own,
        // Another node's table may lie elsewhere; what counts is its content.
        (_, JobTable::Unusable(why)) if bytes.is_empty() => JobTable::Unusable(why),
        _ => JobTable::of_bytes("the table of rank 0".as_ref(), &bytes),
    })
}

/// The communicator of ranks that are all on this node.
fn world_on_one_node(group: Arc<NodeCommunicator>) -> Communicator {
    let table = job_table::of_job(group.member().node(), group.rank());
    Communicator::world(group, None, table)
}

/// Enters the communicator of the ranks on this node, with a profile if the environment names a
/// directory for it.
fn enter(mut member: Member, rank: u32) -> Result<(Arc<NodeCommunicator>, Option<Profile>)> {
    let directory = Environment.get(TRACE).filter(|directory| !directory.is_empty());
    let profile = directory.map(|directory| {
        Profile::new(profile::part(directory.as_ref(), rank), member.record_trace())
    });
    Ok((NodeCommunicator::world(Arc::new(member))?, profile))
}

/// Returns the kernel backend if every node has one and each reaches all others by it, and the
/// reason otherwise. All ranks return alike.
fn agree_on_kernel_backend(
    world: &Communicator,
    kernel: KernelBackend,
    everywhere: bool,
    nodes: &NodeMap,
) -> Result<KernelBackend> {
    let kernel = match kernel {
        Ok(kernel) if everywhere => kernel,
        Ok(_) => return Ok(Err("another node has none".to_owned())),
        missing => return Ok(missing),
    };
    let unreachable = probe::exchange(&kernel, nodes, world.rank());
    // Zero means that all messages arrived; the highest bit marks a pair, even of ranks 0 and 0.
    let pair = unreachable.map_or(0, |UnreachablePair { here, there }| {
        u64::from(here) << 32 | u64::from(there) | 1 << 63
    });
    let mut found = [0];
    world.allreduce(&[pair], &mut found, Op::Maximum)?;
    if found == [0] {
        return Ok(Ok(kernel));
    }
    let here = found[0] << 1 >> 33;
    let there = found[0] as u32;
    let why = format!(
        "the kernel backend delivers no packets from the node of rank {there} to that of rank \
         {here}; it needs all nodes on one Ethernet that takes packets as long as their \
         interfaces do (TRADEWIND_INTERNODE=agent skips the attempt)"
    );
    // Worth a warning: the attempt delays every start of the job.
    if world.rank() == 0 && !rules::explanations_enabled() {
        log::warn!("the node services run all collectives between nodes: {why}");
    }
    Ok(Err(why))
}

/// Returns which of these are true on all ranks.
fn everywhere<const N: usize>(world: &Communicator, own: [bool; N]) -> Result<[bool; N]> {
    let bits = (0..N).fold(0_u16, |bits, place| bits | u16::from(own[place]) << place);
    let mut common = [0];
    world.allreduce(&[bits], &mut common, Op::And)?;
    Ok(std::array::from_fn(|place| common[0] >> place & 1 == 1))
}

/// Fails if the kernel backend is required; otherwise explains once a node why there is none, where
/// explanations are enabled.
fn report_missing_kernel_backend(
    world: &Communicator,
    wanted: InternodeEngine,
    why: String,
) -> Result<()> {
    let node = world.node();
    if wanted == InternodeEngine::Kernel {
        return Err(service::ServiceError::NoKernelEngine { node, why }.into());
    }
    if rules::explanations_enabled() && world.group().rank() == 0 {
        eprintln!("tradewind: node {node} runs nothing in the kernel: {why}");
    }
    Ok(())
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Err(error) = self.write_profile() {
            log::warn!("{error}");
        }
    }
}

/// Runs `body` on `ranks` threads of this process, each a rank of a job of its own: for tests,
/// notebooks and examples.
///
/// ```
/// # fn main() -> Result<(), tradewind::Error> {
/// tradewind::local(4, |world| {
///     let mut sum = [0u32];
///     world.allreduce(&[world.rank()], &mut sum, tradewind::Op::Sum)?;
///     assert_eq!(sum, [0 + 1 + 2 + 3]);
///     Ok(())
/// })
/// # }
/// ```
///
/// # Errors
/// The error of the lowest rank that failed. A panic is an error, of the rank itself and of those
/// that wait for it; it precedes all others. The error that a rank has left comes last, because
/// another rank's error may be the cause.
pub fn local<F>(ranks: u32, body: F) -> Result<()>
where
    F: Fn(Communicator) -> Result<()> + Sync,
{
    local_with(ranks, EngineKind::Peers, body)
}

/// Like [`local`], with a chosen engine.
///
/// # Errors
/// The errors of [`local`].
pub fn local_with<F>(ranks: u32, engine: EngineKind, body: F) -> Result<()>
where
    F: Fn(Communicator) -> Result<()> + Sync,
{
    let node = Node::create(&service::job_options(ranks, engine)?)?;
    let members = (0..ranks).map(|rank| Ok((node.join(rank)?, None))).collect::<Result<_>>()?;
    run_ranks(members, body)
}

/// Like [`local`], on several simulated nodes in this process; `ranks` are the ranks of each node.
/// Ranks of different nodes share no memory: they communicate by the agent backend, over TCP on
/// loopback.
///
/// ```
/// # fn main() -> Result<(), tradewind::Error> {
/// tradewind::local_nodes(&[2, 1], |world| {
///     let mut sum = [0u32];
///     world.allreduce(&[world.rank()], &mut sum, tradewind::Op::Sum)?;
///     assert_eq!(sum, [0 + 1 + 2]);
///     assert_eq!(world.nodes(), 2);
///     assert_eq!(world.split_by_node()?.size(), if world.rank() < 2 { 2 } else { 1 });
///     Ok(())
/// })
/// # }
/// ```
///
/// # Errors
/// The errors of [`local`]; fails if a node has no ranks, or the system refuses sockets.
pub fn local_nodes<F>(ranks: &[u32], body: F) -> Result<()>
where
    F: Fn(Communicator) -> Result<()> + Sync,
{
    if let Some(node) = ranks.iter().position(|ranks| *ranks == 0) {
        return Err(argument(
            "the number of ranks of a node",
            format!("0 (node {node})"),
            "at least 1",
        ));
    }
    if let [one] = ranks {
        return local(*one, body);
    }
    let node_of_rank =
        (0u32..).zip(ranks).flat_map(|(node, ranks)| std::iter::repeat_n(node, *ranks as usize));
    let nodes = NodeMap::new(node_of_rank);
    let mut created = Vec::new();
    let mut words = Vec::new();
    for ranks in ranks {
        let node = Node::create(&service::job_options(*ranks, EngineKind::Peers)?)?;
        for local in 0..*ranks {
            words.push(wakeup_word(node.segment(), node.mailboxes(), local)?);
        }
        created.push((node, *ranks));
    }
    let word_of = |rank: u32| words.get(rank as usize).cloned();
    let mut agents = network::local::connect_waking(&nodes, word_of)?.into_iter();
    let mut direct = network::local::connect_directly(nodes.ranks())?.into_iter();
    let mut members = Vec::new();
    for (node, ranks) in created {
        for ((local, agent), direct) in (0..ranks).zip(agents.by_ref()).zip(direct.by_ref()) {
            let job = InternodeJob::new(nodes.clone(), Arc::new(agent));
            let in_ranks = InRanks::Blocking(direct.held());
            let job = job.in_ranks(Arc::new(direct), in_ranks);
            members.push((node.join(local)?, Some(job)));
        }
    }
    run_ranks(members, body)
}

/// Runs `body` on a thread for each member of a job.
fn run_ranks<F>(members: Vec<(Member, Option<Arc<InternodeJob>>)>, body: F) -> Result<()>
where
    F: Fn(Communicator) -> Result<()> + Sync,
{
    let mut outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
        let start = |(rank, (member, job))| {
            scope.spawn({
                let body = &body;
                move || run_rank(rank, member, job, body)
            })
        };
        let threads: Vec<_> = (0..).zip(members).map(start).collect();
        threads
            .into_iter()
            .zip(0..)
            .map(|(thread, rank)| {
                thread.join().unwrap_or_else(|panic| Err(panicked(rank, &*panic)))
            })
            .collect()
    });
    // A panic causes the errors of the other ranks, so it comes first. The error that another rank has
    // left comes last: that rank has returned, possibly with the error that is the cause.
    outcomes.sort_by_key(|outcome| match outcome {
        Err(Error::Panicked { .. }) => 0,
        Err(Error::RankFailed { how: Exit::Left, .. }) => 2,
        Ok(()) | Err(_) => 1,
    });
    outcomes.into_iter().collect()
}

fn run_rank<F>(rank: u32, member: Member, job: Option<Arc<InternodeJob>>, body: &F) -> Result<()>
where
    F: Fn(Communicator) -> Result<()> + Sync,
{
    let node = Arc::clone(member.node());
    let local = member.rank();
    let group = NodeCommunicator::world(Arc::new(member))?;
    let internode = job.map(|job| InternodeGroup::world(job, &group, rank));
    let table = job_table::of_job(&node, rank);
    let world = Communicator::world(group, internode, table);
    catch_unwind(AssertUnwindSafe(|| body(world))).unwrap_or_else(|panic| {
        node.mark(local, engine::Exit::Panicked);
        Err(panicked(rank, &*panic))
    })
}

fn panicked(rank: u32, panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or(panic.downcast_ref::<String>().cloned());
    Error::Panicked { rank, message: text.unwrap_or_else(|| "without a message".into()) }
}
