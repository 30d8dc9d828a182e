//! Joining a job, and jobs whose ranks are threads.

use crate::communicator::Communicator;
use crate::decisions;
use crate::error::{Error, Result, argument};
use crate::operation::Op;
use crate::profile::{self, Profile};
use crate::spanning::trial::{self, Silence};
use crate::spanning::{Reach, Span};
use engine::group::Group;
use engine::member::Member;
use engine::node::{EngineKind, JobOptions, Node};
use network::carrier::Carrier;
use network::nodes::Nodes;
use service::client::Attachment;
use service::variables::BetweenNodes;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// This process's membership in a job: one rank of it. Dropping it leaves the job in order.
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
    profile: Option<Profile>,
}

impl Job {
    /// Joins the job that this process was started for, by `tradewind run` or another launcher, and
    /// waits for the other ranks. A process started by hand is a job of one rank.
    ///
    /// # Errors
    /// When the environment is incomplete, the node service cannot be reached, or a rank does not
    /// start.
    pub fn init() -> Result<Self> {
        let Attachment {
            mut member,
            rank,
            carrier,
            offloaded,
            between_nodes,
            nodes,
            node_timeout,
            ..
        } = service::client::attach()?;
        let mut profile = std::env::var_os("TRADEWIND_TRACE")
            .filter(|directory| !directory.is_empty())
            .map(|directory| {
                Profile::new(profile::part(directory.as_ref(), rank), member.record_trace())
            });
        let group = Group::world(Arc::new(member))?;
        let Some((carrier, nodes)) = carrier.zip(nodes) else {
            return Ok(Job { world: Communicator::world(group, None), profile });
        };
        let reach = Reach::of_process(nodes.clone(), vec![carrier], node_timeout);
        let span = Span::world(reach, &group, rank);
        let world = Communicator::world(Arc::clone(&group), Some(Arc::clone(&span)));
        // All ranks or none: a run is carried by the same engine everywhere, and clocks are
        // compared by all.
        let mut everywhere = [0; 2];
        world.allreduce(
            &[offloaded.is_ok(), profile.is_some()].map(u8::from),
            &mut everywhere,
            Op::Minimum,
        )?;
        let [has_kernel, is_traced] = everywhere.map(|all| all == 1);
        let ahead = if is_traced { world.clock_ahead()? } else { 0 };
        if let Some(profile) = &mut profile {
            profile.place = Some(profile::Place {
                node: nodes.of(rank).unwrap_or(0),
                nodes: nodes.clone(),
                ahead,
            });
        }
        let offloaded = match settle(&world, offloaded, has_kernel, &nodes)? {
            Ok(offloaded) => offloaded,
            Err(why) => {
                without_kernel_engine(&world, between_nodes, why)?;
                return Ok(Job { world, profile });
            }
        };
        offloaded.set_timed(profile.is_some());
        Ok(Job { world: Communicator::world(group, Some(span.preferring(offloaded))), profile })
    }

    /// The communicator of all ranks.
    pub fn world(&self) -> &Communicator {
        &self.world
    }

    /// Leaves the job, reporting what dropping it would have to keep to itself.
    ///
    /// # Errors
    /// When the profile cannot be written.
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

/// The kernel engine, if it is had everywhere and all nodes hear each other by it, or why not.
fn settle(
    world: &Communicator,
    offloaded: std::result::Result<Arc<dyn Carrier>, String>,
    everywhere: bool,
    nodes: &Nodes,
) -> Result<std::result::Result<Arc<dyn Carrier>, String>> {
    let offloaded = match offloaded {
        Ok(offloaded) if everywhere => offloaded,
        missing => {
            return Ok(Err(
                missing.map_or_else(|why| why, |_| "another node has not got it".to_owned())
            ));
        }
    };
    let silence = trial::exchange(&offloaded, nodes, world.rank());
    // Zero is none.
    let pair = silence
        .map_or(0, |Silence { here, there }| u64::from(here) << 32 | u64::from(there) | 1 << 63);
    let mut found = [0];
    world.allreduce(&[pair], &mut found, Op::Maximum)?;
    if found == [0] {
        return Ok(Ok(offloaded));
    }
    let (here, there) = (found[0] << 1 >> 33, found[0] as u32);
    let why = format!(
        "the node of rank {here} hears nothing from that of rank {there} by the kernel engine, which wants all nodes on one \
         Ethernet that takes packets as long as their interfaces do (TRADEWIND_BETWEEN_NODES=agent spares the attempt)"
    );
    // The attempt has taken time, at every start of a job.
    if world.rank() == 0 && !decisions::explains() {
        eprintln!("tradewind: the node services run all collectives between nodes: {why}");
    }
    Ok(Err(why))
}

/// Not all nodes of a job have the kernel engine: that is an error where it is demanded, and said
/// where explanations are wanted, once on each node.
fn without_kernel_engine(
    world: &Communicator,
    between_nodes: BetweenNodes,
    why: String,
) -> Result<()> {
    let node = world.node();
    if between_nodes == BetweenNodes::Kernel {
        return Err(service::ServiceError::NoKernelEngine { node, why }.into());
    }
    if decisions::explains() && world.group().rank() == 0 {
        eprintln!("tradewind: node {node} runs nothing in the kernel: {why}");
    }
    Ok(())
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Err(error) = self.write_profile() {
            eprintln!("tradewind: {error}");
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
/// The first rank's error, in rank order; a rank that panicked is an error too, for itself and for
/// those that wait for it.
pub fn local<F>(ranks: u32, body: F) -> Result<()>
where
    F: Fn(Communicator) -> Result<()> + Sync,
{
    local_with(ranks, EngineKind::Peers, body)
}

/// As [`local`], with a chosen engine.
///
/// # Errors
/// As [`local`].
pub fn local_with<F>(ranks: u32, engine: EngineKind, body: F) -> Result<()>
where
    F: Fn(Communicator) -> Result<()> + Sync,
{
    let node = Node::create(&JobOptions::new(ranks, engine)?)?;
    let members = (0..ranks).map(|rank| Ok((node.join(rank)?, None))).collect::<Result<_>>()?;
    run_ranks(members, body)
}

/// As [`local`], on several nodes that are simulated in this process: `ranks` are those of each
/// node. Ranks of different nodes share nothing; between them the agent engine works, over TCP on
/// loopback.
///
/// ```
/// # fn main() -> Result<(), tradewind::Error> {
/// tradewind::local_nodes(&[2, 1], |world| {
///     let mut sum = [0u32];
///     world.allreduce(&[world.rank()], &mut sum, tradewind::Op::Sum)?;
///     assert_eq!(sum, [0 + 1 + 2]);
///     assert_eq!((world.nodes(), world.split_by_node()?.size()), (2, if world.rank() < 2 { 2 } else { 1 }));
///     Ok(())
/// })
/// # }
/// ```
///
/// # Errors
/// As [`local`]; when a node has no ranks, or the system refuses sockets.
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
    let names =
        (0u32..).zip(ranks).flat_map(|(node, ranks)| std::iter::repeat_n(node, *ranks as usize));
    let nodes = Nodes::new(names);
    let mut carriers = network::agent::local(&nodes).map_err(Error::Network)?.into_iter();
    let mut members = Vec::new();
    for ranks in ranks {
        let node = Node::create(&JobOptions::new(*ranks, EngineKind::Peers)?)?;
        for local in 0..*ranks {
            let carriers = carriers
                .next()
                .map(|carrier| Arc::new(carrier) as Arc<dyn Carrier>)
                .into_iter()
                .collect();
            members.push((node.join(local)?, Some(Reach::new(nodes.clone(), carriers))));
        }
    }
    run_ranks(members, body)
}

/// Runs `body` on a thread for each member of a job.
fn run_ranks<F>(members: Vec<(Member, Option<Arc<Reach>>)>, body: F) -> Result<()>
where
    F: Fn(Communicator) -> Result<()> + Sync,
{
    let outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
        let start = |(rank, (member, reach))| {
            scope.spawn({
                let body = &body;
                move || run_rank(rank, member, reach, body)
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
    // A panic is the cause of the other ranks' errors: it comes first.
    let (panics, rest): (Vec<_>, Vec<_>) =
        outcomes.into_iter().partition(|outcome| matches!(outcome, Err(Error::Panicked { .. })));
    panics.into_iter().chain(rest).collect()
}

fn run_rank<F>(rank: u32, member: Member, reach: Option<Arc<Reach>>, body: &F) -> Result<()>
where
    F: Fn(Communicator) -> Result<()> + Sync,
{
    let (node, local) = (Arc::clone(member.node()), member.rank());
    let group = Group::world(Arc::new(member))?;
    let span = reach.map(|reach| Span::world(reach, &group, rank));
    let world = Communicator::world(group, span);
    catch_unwind(AssertUnwindSafe(|| body(world))).unwrap_or_else(|panic| {
        node.mark(local, engine::Departure::Panicked);
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
