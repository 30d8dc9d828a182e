//! A rank's way into its job.

use crate::error::ServiceError;
use crate::job_options::job_options_from;
use crate::protocol::{Answer, Hello, INVITATION};
use crate::spread;
use crate::start;
use engine::Error;
use engine::node::membership::Member;
use engine::node::{EngineKind, Node};
use launch::LaunchError;
use launch::detect::{Launch, detect};
use launch::environment::{CORE, ENGINE, Environment, InternodeEngine, Lookup};
use network::agent::shared_region::SharedRegion;
use network::agent::{AgentAddress, AgentClient};
use network::backend::Backend;
use network::job_nodes::JobNodes;
use network::node_map::NodeMap;
use network::transport::tcp::Timeouts;
use shm::broker::{BrokerError, Connection, connect};
use shm::process::ProcessHandle;
use shm::segment::Segment;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time limit for the connection to a service. `tradewind run` listens before it starts the first
/// rank, so the limit only covers the load of all ranks that connect at the same moment.
const KNOCKING: Duration = Duration::from_secs(5);

/// Reason for a job without an engine between nodes.
const ONE_NODE: &str = "all ranks are on one node";

/// A process that has joined its job.
#[derive(Debug)]
pub struct Attachment {
    /// The membership among the ranks of this node.
    pub member: Member,
    /// This rank of the job.
    pub rank: u32,
    /// Number of ranks of the job.
    pub ranks: u32,
    /// The backend that runs its schedules with ranks on other nodes, if there are any.
    pub carrier: Option<Arc<dyn Backend>>,
    /// This rank's place in the kernel engine of its node, until it is taken.
    pub(crate) seat: Option<Seat>,
    /// The same by the kernel engine, or why this node has it not. Whether the others have it must
    /// be asked.
    pub offloaded: Result<Arc<dyn Backend>, String>,
    /// The choice of the engine between nodes; with `Kernel`, a job without the kernel engine ends.
    pub internode: InternodeEngine,
    /// Which rank of the job is where, if there are other nodes.
    pub nodes: Option<NodeMap>,
    /// Time limit for the exit of this rank: the limit for the silence of another node.
    pub node_timeout: Duration,
}

/// Joins the job that this process was started for and waits until all ranks have.
///
/// Who started the process says which job: `tradewind run`; another launcher (Slurm, or one that
/// speaks PMI or is Open MPI's), whose first rank on each node then starts the node service by
/// executing the `tradewind` command; or TRADEWIND_JOB, TRADEWIND_RANK and TRADEWIND_SIZE. Without
/// any of them the job is this process alone. Ranks on several nodes find each other through PMI.
///
/// # Errors
/// When the environment is incomplete, the service cannot be reached or started, or a rank does not
/// come within TRADEWIND_START_TIMEOUT seconds (60 if not set); then [`Error::RankFailed`] names
/// it.
pub fn attach() -> Result<Attachment, ServiceError> {
    launch::environment::warn_of_misspelt();
    attach_with(&Environment)
}

fn attach_with(environment: &impl Lookup) -> Result<Attachment, ServiceError> {
    let limit = environment.start_timeout()?;
    let attachment = match detect(environment)? {
        Launch::Single => {
            let node = Node::create(&job_options_from(environment, 1, engine_kind(environment)?)?)?;
            Attachment {
                member: node.join(0)?,
                rank: 0,
                ranks: 1,
                carrier: None,
                seat: None,
                offloaded: Err(ONE_NODE.into()),
                internode: InternodeEngine::Any,
                nodes: None,
                node_timeout: Duration::ZERO,
            }
        }
        Launch::Run { service, rank, ranks } => enter(&service, rank, ranks, limit)?,
        Launch::OneNode { name, rank, ranks, launcher } => {
            let job = start::Job {
                name,
                ranks,
                launcher,
                engine: engine_kind(environment)?,
                listen: None,
            };
            enter_foreign(&job, rank, limit)?
        }
        Launch::ManyNodes { descriptor, rank, ranks, launcher } => {
            let spread =
                spread::Spread { rank, ranks, launcher, engine: engine_kind(environment)? };
            spread::enter(environment, descriptor, &spread, limit)?
        }
    };
    if let Some(core) = environment.number(CORE)? {
        shm::process::bind_current_thread(core as usize)?;
    }
    attachment.member.wait_for_all(limit)?;
    Ok(attachment)
}

/// The engine of a job without `tradewind run`, from TRADEWIND_ENGINE.
fn engine_kind(environment: &impl Lookup) -> Result<EngineKind, ServiceError> {
    let Some(name) = environment.text(ENGINE)? else { return Ok(EngineKind::Peers) };
    name.parse().map_err(|_| {
        let value = name.into();
        LaunchError::Variable { name: ENGINE, value, expected: "peers or caller" }.into()
    })
}

/// Joins the job whose node service on this node has this name, as one of so many ranks of this
/// node, and does not wait for the others. Where the service listens for other nodes, somebody must
/// [`invite`] them.
///
/// # Errors
/// When there is no such service, or it does not let this process in within the limit.
pub fn enter(
    service: &str,
    rank: u32,
    ranks: u32,
    limit: Duration,
) -> Result<Attachment, ServiceError> {
    let connection = connect(service, KNOCKING.min(limit))?;
    match ask(&connection, rank, ranks, limit) {
        Ok(Asked::Segment(segment, shared)) => join(segment, shared, &connection, rank, ranks),
        Ok(Asked::Over) | Err(ServiceError::Broker(BrokerError::Closed)) => {
            Err(Error::ServiceFailed.into())
        }
        Err(error) => Err(error),
    }
}

/// Connects to the job's service or starts it; several ranks may do so at once, and one of them
/// succeeds.
fn enter_foreign(job: &start::Job, rank: u32, limit: Duration) -> Result<Attachment, ServiceError> {
    let deadline = Instant::now() + limit;
    loop {
        let connection = match connect(&job.name, Duration::ZERO) {
            Ok(connection) => connection,
            Err(BrokerError::NoService { .. }) => {
                start::start(job)?;
                connect(&job.name, KNOCKING.min(limit))?
            }
            Err(error) => return Err(error.into()),
        };
        match ask(&connection, rank, job.ranks, limit) {
            Ok(Asked::Segment(segment, shared)) => {
                return join(segment, shared, &connection, rank, job.ranks);
            }
            // An earlier job of the same name has just ended. Its service does too, and then the
            // name is free.
            Ok(Asked::Over) | Err(ServiceError::Broker(BrokerError::Closed)) => {
                wait_for_end(&connection, deadline, limit)?
            }
            Err(error) => return Err(error),
        }
    }
}

enum Asked {
    /// Come in; with what is shared with the agent, where there are other nodes.
    Segment(Segment, Option<Shared>),
    Over,
}

/// Resources that a rank shares with the agent in the node service.
struct Shared {
    area: Segment,
    doorbell: OwnedFd,
    home: AgentAddress,
    offload: Result<Seat, String>,
}

/// A rank's place in the kernel engine.
#[derive(Debug)]
pub struct Seat {
    pub(crate) memory: OwnedFd,
    pub(crate) bell: OwnedFd,
    pub(crate) start: OwnedFd,
    pub(crate) slot: u32,
}

/// Brings the node service of this name the invitation of the job's other nodes, and waits until
/// all are connected. One rank of each node does so.
///
/// # Errors
/// When there is no such service, or a node cannot be reached: the text names it.
pub fn invite(service: &str, invitation: &JobNodes) -> Result<(), ServiceError> {
    let connection = connect(service, KNOCKING)?;
    let file = crate::reach::write(invitation)?;
    connection.send_message(INVITATION, &[file.as_fd()])?;
    match Answer::decode(&connection.receive_message(None)?.bytes) {
        Some(Answer::Welcome) => Ok(()),
        Some(Answer::Refused(why)) => Err(ServiceError::Refused(why)),
        _ => Err(ServiceError::Answer),
    }
}

fn ask(
    connection: &Connection,
    rank: u32,
    ranks: u32,
    limit: Duration,
) -> Result<Asked, ServiceError> {
    let started = shm::process::start_time(std::process::id())?;
    connection.send_message(&Hello { rank, ranks, started }.encode(), &[])?;
    let message = connection.receive_message(Some(limit))?;
    let mut descriptors = message.descriptors.into_iter();
    let mut segment = || match descriptors.next() {
        Some(descriptor) => Ok(Segment::from_fd(descriptor).map_err(Error::from)?),
        None => Err(ServiceError::Answer),
    };
    match Answer::decode(&message.bytes) {
        Some(Answer::Welcome) => Ok(Asked::Segment(segment()?, None)),
        Some(Answer::Reachable { node, address, kernel }) => {
            let (job, area) = (segment()?, segment()?);
            let mut next = || descriptors.next().ok_or(ServiceError::Answer);
            let doorbell = next()?;
            let offload = match kernel {
                Ok(slot) => Ok(Seat { memory: next()?, bell: next()?, start: next()?, slot }),
                Err(why) => Err(why),
            };
            Ok(Asked::Segment(
                job,
                Some(Shared { area, doorbell, home: AgentAddress { node, address }, offload }),
            ))
        }
        Some(Answer::Refused(why)) => Err(ServiceError::Refused(why)),
        Some(Answer::Over) => Ok(Asked::Over),
        None => Err(ServiceError::Answer),
    }
}

fn join(
    segment: Segment,
    shared: Option<Shared>,
    connection: &Connection,
    rank: u32,
    ranks: u32,
) -> Result<Attachment, ServiceError> {
    // The process number can only be reused after the service has died. The name is then free,
    // and no service is left that could report the exit of a rank.
    let pid = connection.peer().pid.ok_or(Error::ServiceFailed)?;
    let mut member = Node::open(Arc::new(segment))?.join(rank)?;
    member.watch_service(ProcessHandle::open(pid)?);
    let mut carrier: Option<Arc<dyn Backend>> = None;
    let mut seat = Err(ONE_NODE.into());
    if let Some(Shared { area, doorbell, home, offload }) = shared {
        seat = offload;
        let (area, service) = (SharedRegion::open(Arc::new(area))?, ProcessHandle::open(pid)?);
        carrier = Some(Arc::new(AgentClient::new(area, doorbell, home, Some(service))?));
    }
    let (seat, offloaded) = match seat {
        Ok(seat) => (Some(seat), Err("nobody has taken its place in it".into())),
        Err(why) => (None, Err(why)),
    };
    Ok(Attachment {
        member,
        rank,
        ranks,
        carrier,
        seat,
        offloaded,
        internode: InternodeEngine::Any,
        nodes: None,
        node_timeout: Timeouts::default().unanswered,
    })
}

/// Waits until the process at the other end has ended.
fn wait_for_end(
    connection: &Connection,
    deadline: Instant,
    waited: Duration,
) -> Result<(), ServiceError> {
    let Some(pid) = connection.peer().pid else { return Ok(()) };
    let Ok(process) = ProcessHandle::open(pid) else { return Ok(()) };
    let ended = crate::events::Events::new()?;
    ended.add(&process, crate::events::Event::Door)?;
    while !process.has_exited() {
        if Instant::now() >= deadline {
            return Err(ServiceError::Stale { pid, waited });
        }
        ended.wait(Some(deadline))?;
    }
    Ok(())
}
