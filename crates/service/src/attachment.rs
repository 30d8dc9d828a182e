//! Entry of a rank into the job of a node service.

use crate::error::ServiceError;
use crate::protocol::{Answer, Hello, JOB_NODES, encode_keep};
use engine::Error;
use engine::node::Node;
use engine::node::membership::Member;
use launch::environment::InternodeEngine;
use launch::ports::Ports;
use network::agent::shared_region::SharedRegion;
use network::agent::{AgentAddress, AgentClient};
use network::backend::Backend;
use network::job_nodes::{JobNodes, Key};
use network::node_map::NodeMap;
use network::node_network::JobNetwork;
use network::transport::tcp::Timeouts;
use shm::broker::{BrokerError, Connection, MAX_DESCRIPTORS, connect};
use shm::process::ProcessHandle;
use shm::segment::Segment;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Time limit for the connection to a service. `tradewind run` listens before it starts the first
/// rank, so the limit only covers the load of all ranks that connect at the same moment.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Reason for a job without an engine between nodes.
pub(crate) const ONE_NODE: &str = "all ranks are on one node";

/// A process that has joined its job.
#[derive(Debug)]
pub struct Attachment {
    /// The membership among the ranks of this node.
    pub member: Member,
    /// This rank of the job.
    pub rank: u32,
    /// Number of ranks of the job.
    pub ranks: u32,
    /// The agent of this node, which runs schedules with ranks on other nodes, if there are any.
    pub agent: Option<Arc<AgentClient>>,
    /// The kernel engine of this node, or the reason why there is none. Other nodes may have none
    /// although this one has.
    pub kernel: Result<Arc<dyn Backend>, String>,
    /// The choice of the engine between nodes; with `Kernel`, a job without the kernel engine ends.
    pub internode: InternodeEngine,
    /// The node of each rank of the job, if there are other nodes.
    pub nodes: Option<NodeMap>,
    /// The end of this rank's connections with the other ranks, if there are other nodes and the
    /// network between them is TCP.
    pub rank_endpoint: Option<RankEndpoint>,
    /// The address of this node for the other nodes, if there are any.
    pub address: Option<IpAddr>,
    /// The network between the nodes, if there are other nodes.
    pub network: Option<JobNetwork>,
    /// Time limit for the exit of this rank: the limit for the silence of another node.
    pub node_timeout: Duration,
}

/// The end of a rank's connections with the other ranks of a job on several nodes.
#[derive(Clone)]
pub struct RankEndpoint {
    /// Name of the node service, and the number of the rank there.
    pub(crate) service: String,
    pub(crate) local_rank: u32,
    /// Address of the node.
    pub address: IpAddr,
    /// Ports at which the rank may listen.
    pub ports: Ports,
    /// Key of the handshake between ranks.
    pub key: Key,
}

impl RankEndpoint {
    /// Passes copies of the rank's sockets to its node service, which keeps them: a rank that is
    /// killed takes nothing back that it has handed to its system.
    ///
    /// # Errors
    /// If the service does not answer, or needs its descriptors itself.
    pub fn keep(&self, sockets: &[BorrowedFd<'_>]) -> Result<(), ServiceError> {
        for sockets in sockets.chunks(MAX_DESCRIPTORS) {
            let connection = connect(&self.service, CONNECT_LIMIT)?;
            connection.send_message(&encode_keep(self.local_rank), sockets)?;
            match Answer::decode(&connection.receive_message(Some(CONNECT_LIMIT))?.bytes) {
                Some(Answer::Welcome) => {}
                Some(Answer::Refused(why)) => return Err(ServiceError::Refused(why)),
                _ => return Err(ServiceError::Answer),
            }
        }
        Ok(())
    }
}

/// Omits the key: secrets do not belong into logs.
impl std::fmt::Debug for RankEndpoint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RankEndpoint { service, local_rank, address, ports, key: _ } = self;
        let mut shown = formatter.debug_struct("RankEndpoint");
        shown.field("service", service).field("local_rank", local_rank);
        shown.field("address", address).field("ports", ports).finish_non_exhaustive()
    }
}

/// Facts of the whole job with which a rank enters the kernel engine.
#[derive(Debug)]
pub(crate) struct KernelJob {
    /// This rank of the job.
    pub(crate) rank: u32,
    pub(crate) node_of_rank: Arc<[u32]>,
    /// Address of each node.
    pub(crate) addresses: Arc<[IpAddr]>,
    /// Time after which a silent node is unreachable.
    pub(crate) timeout: Duration,
}

impl KernelJob {
    /// Maps the memory that this rank shares with the program in the kernel.
    fn enter(self, slot: KernelSlot) -> Result<Arc<dyn Backend>, String> {
        let KernelJob { rank, node_of_rank, addresses, timeout } = self;
        let KernelSlot { memory, wakeup, start, slot } = slot;
        let handles =
            kernel::Handles { memory, wakeup, start, slot, rank, node_of_rank, addresses, timeout };
        kernel::Rank::new(handles)
            .map(|rank| Arc::new(rank) as Arc<dyn Backend>)
            .map_err(|error| format!("a rank cannot map its memory: {error}"))
    }
}

/// Response of the service to a rank.
pub(crate) enum Entry {
    /// The rank is admitted. The resources are those of a job on several nodes.
    Admitted(Segment, Option<Box<InternodeResources>>),
    /// The job has ended.
    Over,
}

/// Resources that a rank shares with the agent and with the program in the kernel.
pub(crate) struct InternodeResources {
    region: Segment,
    doorbell: OwnedFd,
    address: AgentAddress,
    slot: Result<KernelSlot, String>,
}

/// Descriptors of a rank's slot in the kernel engine.
struct KernelSlot {
    memory: OwnedFd,
    wakeup: OwnedFd,
    start: OwnedFd,
    slot: u32,
}

/// Joins the job of the node service with this name on this node, as one of `ranks` ranks of the
/// node, and does not wait for the others. If the service listens for other nodes, one process must
/// [submit them](submit_nodes).
///
/// # Errors
/// If there is no such service, or it does not admit this process within the limit.
pub fn enter(
    service: &str,
    rank: u32,
    ranks: u32,
    limit: Duration,
) -> Result<Attachment, ServiceError> {
    enter_with(service, rank, ranks, limit, None)
}

/// Joins as [`enter`] does. With `job`, the rank also enters the kernel engine if its node has it.
pub(crate) fn enter_with(
    service: &str,
    rank: u32,
    ranks: u32,
    limit: Duration,
    job: Option<KernelJob>,
) -> Result<Attachment, ServiceError> {
    let connection = connect(service, CONNECT_LIMIT.min(limit))?;
    match request_entry(&connection, rank, ranks, limit) {
        Ok(Entry::Admitted(segment, resources)) => {
            join(segment, resources, &connection, (rank, ranks), job)
        }
        // Both mean that the service ends: by an answer, or by the end of its process.
        Ok(Entry::Over) | Err(ServiceError::Broker(BrokerError::Closed)) => {
            Err(Error::ServiceFailed.into())
        }
        Err(error) => Err(error),
    }
}

/// Sends the node service of this name the job's nodes, and waits until all are connected. One rank
/// of each node does so.
///
/// # Errors
/// If there is no such service, or a node cannot be reached: the text names it.
pub fn submit_nodes(service: &str, nodes: &JobNodes) -> Result<(), ServiceError> {
    let connection = connect(service, CONNECT_LIMIT)?;
    let file = crate::protocol::write_nodes(nodes)?;
    connection.send_message(JOB_NODES, &[file.as_fd()])?;
    match Answer::decode(&connection.receive_message(None)?.bytes) {
        Some(Answer::Welcome) => Ok(()),
        Some(Answer::Refused(why)) => Err(ServiceError::Refused(why)),
        _ => Err(ServiceError::Answer),
    }
}

/// Requests the entry of this process as a rank, and waits for the response.
pub(crate) fn request_entry(
    connection: &Connection,
    rank: u32,
    ranks: u32,
    limit: Duration,
) -> Result<Entry, ServiceError> {
    let started = shm::process::start_time(std::process::id())?;
    connection.send_message(&Hello { rank, ranks, started }.encode(), &[])?;
    let message = connection.receive_message(Some(limit))?;
    // The order of the descriptors is that of `Answer::WelcomeToNodes`.
    let mut descriptors = message.descriptors.into_iter();
    let mut next = || descriptors.next().ok_or(ServiceError::Answer);
    let segment = |descriptor| Segment::from_fd(descriptor).map_err(Error::from);
    match Answer::decode(&message.bytes) {
        Some(Answer::Welcome) => Ok(Entry::Admitted(segment(next()?)?, None)),
        Some(Answer::WelcomeToNodes { node, address, kernel }) => {
            let job = segment(next()?)?;
            let region = segment(next()?)?;
            let doorbell = next()?;
            let slot = match kernel {
                Ok(slot) => {
                    Ok(KernelSlot { memory: next()?, wakeup: next()?, start: next()?, slot })
                }
                Err(why) => Err(why),
            };
            let address = AgentAddress { node, address };
            let resources = InternodeResources { region, doorbell, address, slot };
            Ok(Entry::Admitted(job, Some(Box::new(resources))))
        }
        Some(Answer::Refused(why)) => Err(ServiceError::Refused(why)),
        Some(Answer::Over) => Ok(Entry::Over),
        None => Err(ServiceError::Answer),
    }
}

/// Maps the resources of an admitted rank.
pub(crate) fn join(
    segment: Segment,
    resources: Option<Box<InternodeResources>>,
    connection: &Connection,
    (rank, ranks): (u32, u32),
    job: Option<KernelJob>,
) -> Result<Attachment, ServiceError> {
    // The process number can only be reused after the service has died. The name is then free,
    // and no service is left that could report the exit of a rank.
    let pid = connection.peer().pid.ok_or(Error::ServiceFailed)?;
    let mut member = Node::open(Arc::new(segment))?.join(rank)?;
    member.watch_service(ProcessHandle::open(pid)?);
    let mut agent = None;
    let mut kernel = Err(ONE_NODE.into());
    if let Some(resources) = resources {
        let InternodeResources { region, doorbell, address, slot } = *resources;
        let region = SharedRegion::open(Arc::new(region))?;
        let service = ProcessHandle::open(pid)?;
        agent = Some(Arc::new(AgentClient::new(region, doorbell, address, Some(service))?));
        kernel = slot.and_then(|slot| job.ok_or("this rank has not requested it")?.enter(slot));
    }
    Ok(Attachment {
        member,
        rank,
        ranks,
        agent,
        kernel,
        internode: InternodeEngine::Any,
        nodes: None,
        rank_endpoint: None,
        address: None,
        network: None,
        node_timeout: Timeouts::default().unanswered,
    })
}
