//! Entry into a job whose ranks may be on several nodes.

use crate::attachment::{Attachment, KernelJob, RankEndpoint, enter_with, submit_nodes};
use crate::error::ServiceError;
use crate::kernel_offload;
use crate::spawn::{Job, spawn};
use engine::node::EngineKind;
use launch::bootstrap::{self, Placement};
use launch::environment::{INTERFACE, Lookup, NODE};
use launch::node_identity::NodeIdentity;
use launch::process_manager::{Opened, ProcessManager};
use launch::service_name::name_on_node;
use network::job_nodes::{JobNodes, KernelEndpoint, ServiceEndpoint};
use network::node_map::NodeMap;
use network::node_network::JobNetwork;
use std::time::Duration;

/// Exchanges the ranks' nodes through a key-value space, and joins. The first rank of a node also
/// spawns the node service and submits the nodes to it.
pub(crate) fn enter(
    environment: &impl Lookup,
    manager: &ProcessManager,
    launcher: Option<u32>,
    engine: EngineKind,
    limit: Duration,
) -> Result<Attachment, ServiceError> {
    let internode = environment.internode_engine()?;
    let Opened { mut space, rank, ranks } = manager.open(environment, launcher, limit)?;
    let name = environment.text(NODE)?;
    let interface = environment.text(INTERFACE)?;
    let here = NodeIdentity::of_this_process(name.as_deref(), interface.as_deref())?;
    let placement = bootstrap::place(&mut *space, rank, ranks, &here)?;
    let nodes = NodeMap::new(placement.node_of_rank.iter().copied());
    let job = Job {
        name: name_on_node(&placement.secret, placement.node),
        ranks: placement.local_ranks,
        launcher,
        engine,
        listen: (placement.nodes > 1).then_some(placement.address),
        command: None,
    };
    let endpoint = if placement.local_rank == 0 { spawn(&job)? } else { None };
    let node_timeout = environment.node_timeout()?;
    let mut kernel_job = None;
    let mut network = None;
    if job.listen.is_some() {
        let endpoint = endpoint.map(|endpoint| endpoint.to_string());
        let endpoints = bootstrap::exchange(&mut *space, &placement, endpoint.as_deref())?;
        let all = job_nodes(&placement, &nodes, &endpoints)?;
        space.finish()?;
        // The node service reports nodes that do not agree, to all of its ranks.
        network = JobNetwork::agree(&all.networks).ok();
        if placement.local_rank == 0 {
            submit_nodes(&job.name, &all)?;
        }
        kernel_job = Some(KernelJob {
            rank,
            node_of_rank: kernel_offload::node_of_rank(&nodes).into(),
            addresses: kernel_offload::addresses(&all).into(),
            timeout: node_timeout.unwrap_or(kernel::wire::NODE_TIMEOUT),
        });
    } else {
        // All ranks are on this node.
        space.fence()?;
        space.finish()?;
    }
    let attachment = enter_with(&job.name, placement.local_rank, job.ranks, limit, kernel_job)?;
    let key = placement.secret.rank_handshake_key();
    let ports = environment.ports()?;
    let rank_endpoint = RankEndpoint { address: placement.address, ports, key };
    // Direct connections use TCP, which is not the network that was chosen.
    let is_over_tcp = matches!(network, None | Some(JobNetwork::Tcp(_)));
    let connects = job.listen.is_some() && is_over_tcp;
    Ok(Attachment {
        rank,
        ranks,
        internode,
        nodes: job.listen.map(|_| nodes),
        rank_endpoint: connects.then_some(rank_endpoint),
        network,
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
        networks: endpoints.into_iter().map(|endpoint| endpoint.network).collect(),
        nodes: nodes.clone(),
    })
}
