//! Entry into a job with ranks on one node or several.

use crate::attachment::{Attachment, KernelJob, RankEndpoint, enter_with, submit_nodes};
use crate::error::ServiceError;
use crate::fabric_endpoint::networks_by_rate;
use crate::kernel_offload;
use crate::spawn::{Job, Lifeline, Started, spawn};
use engine::node::EngineKind;
use launch::bootstrap::{self, Placement};
use launch::environment::{INTERFACE, InternodeEngine, Lookup, NODE};
use launch::key_values::KeyValueSpace;
use launch::node_identity::NodeIdentity;
use launch::process_manager::{Opened, ProcessManager};
use launch::service_name::name_on_node;
use network::job_nodes::{JobNodes, KernelEndpoint, ServiceEndpoint};
use network::node_map::NodeMap;
use network::node_network::JobNetwork;
use std::ffi::OsString;
use std::time::Duration;

/// The node services of a job, as the first rank of each node starts them.
pub(crate) struct NodeServices {
    /// The launcher's process, if known.
    pub(crate) launcher: Option<u32>,
    pub(crate) engine: EngineKind,
    /// The `tradewind` command, if neither the environment nor PATH is to find it.
    pub(crate) command: Option<OsString>,
    pub(crate) internode: InternodeEngine,
    /// See [`Job::is_embedded`].
    pub(crate) is_embedded: bool,
}

/// A rank with a running node service.
pub(crate) struct PlacedRank {
    rank: u32,
    ranks: u32,
    placement: Placement,
    nodes: NodeMap,
    /// The job on this node.
    job: Job,
    /// All nodes, if there are others.
    all: Option<JobNodes>,
    /// Present if this rank has started the service.
    pub(crate) lifeline: Option<Lifeline>,
}

/// Exchanges the ranks' nodes through the key-value space of a process manager, and joins.
pub(crate) fn enter(
    environment: &impl Lookup,
    manager: &ProcessManager,
    launcher: Option<u32>,
    engine: EngineKind,
    limit: Duration,
) -> Result<Attachment, ServiceError> {
    let internode = environment.internode_engine()?;
    let Opened { mut space, rank, ranks } = manager.open(environment, launcher, limit)?;
    let services = NodeServices { launcher, engine, command: None, internode, is_embedded: false };
    let placed = place(environment, &mut *space, (rank, ranks), services)?;
    space.finish()?;
    placed.enter(environment, limit)
}

/// Exchanges the ranks' nodes through a key-value space. The first rank of a node also spawns the
/// node service.
pub(crate) fn place(
    environment: &impl Lookup,
    space: &mut dyn KeyValueSpace,
    (rank, ranks): (u32, u32),
    services: NodeServices,
) -> Result<PlacedRank, ServiceError> {
    let NodeServices { launcher, engine, command, internode, is_embedded } = services;
    let name = environment.text(NODE)?;
    let interface = environment.text(INTERFACE)?;
    let mut here = NodeIdentity::of_this_process(name.as_deref(), interface.as_deref())?;
    // The order in the list of the first node decides.
    if rank == 0 {
        here.prefer(&networks_by_rate(environment));
    }
    let placement = bootstrap::place(space, rank, ranks, &here)?;
    let nodes = NodeMap::new(placement.node_of_rank.iter().copied());
    let job = Job {
        name: name_on_node(&placement.secret, placement.node),
        ranks: placement.local_ranks,
        launcher,
        engine,
        listen: (placement.nodes > 1).then_some(placement.address),
        command,
        internode,
        is_embedded,
    };
    let Started { endpoint, lifeline } = match placement.local_rank {
        0 => spawn(&job)?,
        _ => Started::default(),
    };
    let all = if job.listen.is_some() {
        let endpoint = endpoint.map(|endpoint| endpoint.to_string());
        let endpoints = bootstrap::exchange(space, &placement, endpoint.as_deref())?;
        Some(job_nodes(&placement, &nodes, &endpoints)?)
    } else {
        // All ranks are on this node.
        space.fence()?;
        None
    };
    Ok(PlacedRank { rank, ranks, placement, nodes, job, all, lifeline })
}

impl PlacedRank {
    /// Enters the job. The first rank of a node also submits the nodes to its service.
    pub(crate) fn enter(
        self,
        environment: &impl Lookup,
        limit: Duration,
    ) -> Result<Attachment, ServiceError> {
        let PlacedRank { rank, ranks, placement, nodes, job, all, lifeline: _ } = self;
        let node_timeout = environment.node_timeout()?;
        if let Some(all) = all.as_ref().filter(|_| placement.local_rank == 0) {
            submit_nodes(&job.name, all)?;
        }
        let kernel_job = all.as_ref().map(|all| KernelJob {
            rank,
            node_of_rank: kernel_offload::node_of_rank(&nodes).into(),
            addresses: kernel_offload::addresses(all).into(),
            timeout: node_timeout.unwrap_or(kernel::wire::NODE_TIMEOUT),
        });
        // The node service reports nodes that do not agree, to all of its ranks.
        let network = all.as_ref().and_then(|all| JobNetwork::agree(&all.networks).ok());
        let attachment = enter_with(&job.name, placement.local_rank, job.ranks, limit, kernel_job)?;
        let key = placement.secret.rank_handshake_key();
        let ports = environment.ports()?;
        let rank_endpoint = RankEndpoint {
            service: job.name,
            local_rank: placement.local_rank,
            address: placement.address,
            ports,
            key,
        };
        // Direct connections use TCP, which is not the network that was chosen.
        let is_over_tcp = matches!(network, None | Some(JobNetwork::Tcp(_)));
        let connects = job.listen.is_some() && is_over_tcp;
        Ok(Attachment {
            rank,
            ranks,
            internode: job.internode,
            nodes: job.listen.map(|_| nodes),
            address: job.listen,
            rank_endpoint: connects.then_some(rank_endpoint),
            network,
            node_timeout: node_timeout.unwrap_or(attachment.node_timeout),
            ..attachment
        })
    }
}

/// Returns the nodes of the job, as their first ranks have published them.
fn job_nodes(
    placement: &Placement,
    nodes: &NodeMap,
    endpoints: &[String],
) -> Result<JobNodes, ServiceError> {
    let parse = |(node, text): (u32, &String)| {
        let wrong =
            |_| bootstrap::wrong_value(placement, node, text, "the address of a node service");
        text.parse::<ServiceEndpoint>().map_err(wrong)
    };
    let endpoints: Vec<ServiceEndpoint> =
        (0..).zip(endpoints).map(parse).collect::<Result<_, _>>()?;
    // Without one of them the job has no kernel engine.
    let kernel_endpoints: Option<Vec<KernelEndpoint>> =
        endpoints.iter().map(|endpoint| endpoint.kernel).collect();
    Ok(JobNodes {
        key: placement.secret.bytes(),
        node: placement.node,
        addresses: endpoints.iter().map(|endpoint| endpoint.address).collect(),
        kernel_endpoints: kernel_endpoints.unwrap_or_default(),
        networks: endpoints.into_iter().map(|endpoint| endpoint.network).collect(),
        nodes: nodes.clone(),
    })
}
