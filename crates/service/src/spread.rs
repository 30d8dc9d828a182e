//! Joining a job whose ranks a process manager has started on several nodes.

use crate::client::{self, Attachment, Seat};
use crate::error::ServiceError;
use crate::start;
use engine::node::EngineKind;
use launch::LaunchError;
use launch::bootstrap::{self, KeyValueSpace, Placement};
use launch::detect::name_on_node;
use launch::environment::{INTERFACE, Lookup, NODE, PMI_VERSION};
use launch::node_identity::NodeIdentity;
use launch::pmi::{self, Client, Descriptor, Version};
use network::backend::Backend;
use network::job_nodes::{JobNodes, KernelEndpoint, ServiceEndpoint};
use network::node_map::NodeMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// A rank of such a job.
#[derive(Debug)]
pub(crate) struct Spread {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    /// The process that has started this one, if known.
    pub(crate) launcher: Option<u32>,
    pub(crate) engine: EngineKind,
}

/// Meets the other ranks through the process manager behind an inherited descriptor, has this
/// node's node service started and told of the others if this rank is the first here, and joins.
pub(crate) fn enter(
    environment: &impl Lookup,
    descriptor: u32,
    spread: &Spread,
    limit: Duration,
) -> Result<Attachment, ServiceError> {
    let internode = environment.internode_engine()?;
    let inherited = || {
        // A number that is no descriptor's is found by what it leads to.
        let number = i32::try_from(descriptor).unwrap_or(-1);
        shm::inherited::adopt(number).map_err(crate::error::system("use the descriptor in PMI_FD"))
    };
    let mut client = converse(environment.number(PMI_VERSION)?, inherited, spread, limit)?;
    let name = environment.text(NODE)?;
    let interface = environment.text(INTERFACE)?;
    let here = NodeIdentity::of_this_process(name.as_deref(), interface.as_deref())?;
    let placement = bootstrap::place(&mut client, spread.rank, spread.ranks, &here)?;
    let nodes = NodeMap::new(placement.node_of_rank.iter().copied());
    let job = start::Job {
        name: name_on_node(&placement.secret, placement.node),
        ranks: placement.local_ranks,
        launcher: spread.launcher,
        engine: spread.engine,
        listen: (placement.nodes > 1).then_some(placement.address),
    };
    let endpoint = if placement.local_rank == 0 { start::start(&job)? } else { None };
    let mut addresses = Vec::new();
    if job.listen.is_some() {
        let endpoint = endpoint.map(|endpoint| endpoint.to_string());
        let endpoints = bootstrap::exchange(&mut client, &placement, endpoint.as_deref())?;
        let invitation = job_nodes(&placement, &nodes, &endpoints)?;
        client.finalize().map_err(LaunchError::from)?;
        addresses = crate::offload::addresses(&invitation);
        if placement.local_rank == 0 {
            client::invite(&job.name, &invitation)?;
        }
    } else {
        // All are on this node after all.
        KeyValueSpace::fence(&mut client)?;
        client.finalize().map_err(LaunchError::from)?;
    }
    let mut attachment = client::enter(&job.name, placement.local_rank, job.ranks, limit)?;
    if let Some(seat) = attachment.seat.take() {
        let patience = environment.node_timeout()?;
        // The job goes by the agent then, on all nodes.
        attachment.offloaded = take(seat, spread.rank, &nodes, addresses, patience);
    }
    let nodes = job.listen.map(|_| nodes);
    attachment.node_timeout = environment.node_timeout()?.unwrap_or(attachment.node_timeout);
    Ok(Attachment { rank: spread.rank, ranks: spread.ranks, internode, nodes, ..attachment })
}

/// The nodes of the job, from what their first ranks have published.
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

/// Takes a rank's place in the kernel engine.
fn take(
    seat: Seat,
    rank: u32,
    nodes: &NodeMap,
    addresses: Vec<IpAddr>,
    patience: Option<Duration>,
) -> Result<Arc<dyn Backend>, String> {
    let Seat { memory, bell: wakeup, start, slot } = seat;
    let node_of_rank = crate::offload::node_of_rank(nodes).into();
    let (addresses, timeout) = (addresses.into(), patience.unwrap_or(kernel::wire::NODE_TIMEOUT));
    let handles =
        kernel::Handles { memory, wakeup, start, slot, rank, node_of_rank, addresses, timeout };
    let entered = kernel::Rank::new(handles);
    entered
        .map(|rank| Arc::new(rank) as Arc<dyn Backend>)
        .map_err(|error| format!("a rank cannot map its memory: {error}"))
}

/// Begins the conversation with the process manager, in the version that is asked for, or in the
/// first that it knows.
fn converse(
    wanted: Option<u32>,
    inherited: impl Fn() -> Result<OwnedFd, ServiceError>,
    spread: &Spread,
    limit: Duration,
) -> Result<Client<Descriptor>, ServiceError> {
    let Spread { rank, ranks, .. } = *spread;
    let open = |version| -> Result<Client<Descriptor>, ServiceError> {
        let stream = Descriptor::new(inherited()?, limit);
        Ok(Client::open(stream, rank, ranks, version).map_err(LaunchError::from)?)
    };
    match wanted {
        Some(1) => open(Version::One),
        Some(2) => open(Version::Two),
        Some(other) => {
            let (value, expected) = (other.to_string().into(), "1 or 2");
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
