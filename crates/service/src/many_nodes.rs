//! Entry into a job of several nodes, started by a process manager.

use crate::attachment::{Attachment, KernelJob, RankEndpoint, enter_with, submit_nodes};
use crate::error::ServiceError;
use crate::kernel_offload;
use crate::spawn::{Job, spawn};
use engine::node::EngineKind;
use launch::LaunchError;
use launch::bootstrap::{self, KeyValueSpace, Placement};
use launch::detect::name_on_node;
use launch::environment::{INTERFACE, Lookup, NODE, PMI_VERSION};
use launch::node_identity::NodeIdentity;
use launch::pmi::{self, Client, Descriptor, Version};
use network::job_nodes::{JobNodes, KernelEndpoint, ServiceEndpoint};
use network::node_map::NodeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A rank of such a job.
#[derive(Debug)]
pub(crate) struct RankOfMany {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    /// The process that has started this one, if known.
    pub(crate) launcher: Option<u32>,
    pub(crate) engine: EngineKind,
}

/// Exchanges the ranks' nodes through the process manager behind an inherited descriptor, and
/// joins. The first rank of a node also spawns the node service and submits the nodes to it.
pub(crate) fn enter(
    environment: &impl Lookup,
    descriptor: u32,
    rank: &RankOfMany,
    limit: Duration,
) -> Result<Attachment, ServiceError> {
    let internode = environment.internode_engine()?;
    let inherited = || {
        // A number that is no descriptor's results in an error of the adoption.
        let number = i32::try_from(descriptor).unwrap_or(-1);
        shm::inherited::adopt(number).map_err(crate::error::system("use the descriptor in PMI_FD"))
    };
    let mut client = connect(environment.number(PMI_VERSION)?, inherited, rank, limit)?;
    let name = environment.text(NODE)?;
    let interface = environment.text(INTERFACE)?;
    let here = NodeIdentity::of_this_process(name.as_deref(), interface.as_deref())?;
    let placement = bootstrap::place(&mut client, rank.rank, rank.ranks, &here)?;
    let nodes = NodeMap::new(placement.node_of_rank.iter().copied());
    let job = Job {
        name: name_on_node(&placement.secret, placement.node),
        ranks: placement.local_ranks,
        launcher: rank.launcher,
        engine: rank.engine,
        listen: (placement.nodes > 1).then_some(placement.address),
    };
    let endpoint = if placement.local_rank == 0 { spawn(&job)? } else { None };
    let node_timeout = environment.node_timeout()?;
    let mut kernel_job = None;
    if job.listen.is_some() {
        let endpoint = endpoint.map(|endpoint| endpoint.to_string());
        let endpoints = bootstrap::exchange(&mut client, &placement, endpoint.as_deref())?;
        let all = job_nodes(&placement, &nodes, &endpoints)?;
        client.finalize().map_err(LaunchError::from)?;
        if placement.local_rank == 0 {
            submit_nodes(&job.name, &all)?;
        }
        kernel_job = Some(KernelJob {
            rank: rank.rank,
            node_of_rank: kernel_offload::node_of_rank(&nodes).into(),
            addresses: kernel_offload::addresses(&all).into(),
            timeout: node_timeout.unwrap_or(kernel::wire::NODE_TIMEOUT),
        });
    } else {
        // All ranks are on this node.
        KeyValueSpace::fence(&mut client)?;
        client.finalize().map_err(LaunchError::from)?;
    }
    let attachment = enter_with(&job.name, placement.local_rank, job.ranks, limit, kernel_job)?;
    let key = placement.secret.rank_handshake_key();
    let rank_endpoint = RankEndpoint { address: placement.address, key };
    Ok(Attachment {
        rank: rank.rank,
        ranks: rank.ranks,
        internode,
        nodes: job.listen.map(|_| nodes),
        rank_endpoint: job.listen.map(|_| rank_endpoint),
        node_timeout: node_timeout.unwrap_or(attachment.node_timeout),
        ..attachment
    })
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
        nodes: nodes.clone(),
    })
}

/// Connects to the process manager, in the requested version of PMI, or in the first version that
/// it supports.
fn connect(
    version: Option<u32>,
    inherited: impl Fn() -> Result<OwnedFd, ServiceError>,
    rank: &RankOfMany,
    limit: Duration,
) -> Result<Client<Descriptor>, ServiceError> {
    let RankOfMany { rank, ranks, .. } = *rank;
    let open = |version| -> Result<Client<Descriptor>, ServiceError> {
        let stream = Descriptor::new(inherited()?, limit);
        Ok(Client::open(stream, rank, ranks, version).map_err(LaunchError::from)?)
    };
    match version {
        Some(1) => open(Version::One),
        Some(2) => open(Version::Two),
        Some(other) => {
            let value = other.to_string().into();
            let expected = "1 or 2";
            Err(LaunchError::Variable { name: PMI_VERSION, value, expected }.into())
        }
        None => match open(Version::One) {
            Err(ServiceError::Launch(LaunchError::Pmi(pmi::Error::Version(_)))) => {
                open(Version::Two)
            }
            found => found,
        },
    }
}
