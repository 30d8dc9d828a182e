//! Joining a job whose ranks a process manager has started on several nodes.

use crate::client::{self, Attachment, Seat};
use crate::error::ServiceError;
use crate::identity::name_on_node;
use crate::rendezvous::{self, Node};
use crate::start;
use crate::variables::{INTERFACE, Lookup, NODE, PMI_VERSION};
use engine::node::EngineKind;
use network::backend::Backend;
use network::node_map::NodeMap;
use pmi::{Client, Descriptor, Version};
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
    let between_nodes = environment.between_nodes()?;
    let inherited = || {
        // A number that is no descriptor's is found by what it leads to.
        let number = i32::try_from(descriptor).unwrap_or(-1);
        shm::inherited::adopt(number).map_err(crate::error::system("use the descriptor in PMI_FD"))
    };
    let mut client = converse(environment.number(PMI_VERSION)?, inherited, spread, limit)?;
    let (name, interface) = (environment.text(NODE)?, environment.text(INTERFACE)?);
    let here = Node::of_this_process(name.as_deref(), interface.as_deref())?;
    let known = rendezvous::meet(&mut client, spread.rank, spread.ranks, &here)?;
    let job = start::Job {
        name: name_on_node(known.key(), known.node),
        ranks: known.nodes.members(known.node).count() as u32,
        launcher: spread.launcher,
        engine: spread.engine,
        listen: (known.nodes.count() > 1).then_some(known.address),
    };
    let listening = if known.local == 0 { start::start(&job)? } else { None };
    let mut addresses = Vec::new();
    if job.listen.is_some() {
        let invitation = rendezvous::exchange_addresses(&mut client, &known, listening)?;
        client.finalize()?;
        addresses = crate::offload::addresses(&invitation);
        if known.local == 0 {
            client::invite(&job.name, &invitation)?;
        }
    } else {
        // All are on this node after all.
        client.fence()?;
        client.finalize()?;
    }
    let mut attachment = client::enter(&job.name, known.local, job.ranks, limit)?;
    if let Some(seat) = attachment.seat.take() {
        let patience = environment.node_timeout()?;
        // The job goes by the agent then, on all nodes.
        attachment.offloaded = take(seat, spread.rank, &known.nodes, addresses, patience);
    }
    let nodes = job.listen.map(|_| known.nodes);
    attachment.node_timeout = environment.node_timeout()?.unwrap_or(attachment.node_timeout);
    Ok(Attachment { rank: spread.rank, ranks: spread.ranks, between_nodes, nodes, ..attachment })
}

/// Takes a rank's place in the kernel engine.
fn take(
    seat: Seat,
    rank: u32,
    nodes: &NodeMap,
    addresses: Vec<IpAddr>,
    patience: Option<Duration>,
) -> Result<Arc<dyn Backend>, String> {
    let Seat { memory, bell, start, slot } = seat;
    let node_of_rank = crate::offload::node_of_rank(nodes).into();
    let (addresses, patience) =
        (addresses.into(), patience.unwrap_or(kernel::wire::USUAL_PATIENCE));
    let handles =
        kernel::Handles { memory, bell, start, slot, rank, node_of_rank, addresses, patience };
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
        Ok(Client::open(Descriptor::new(inherited()?, limit), rank, ranks, version)?)
    };
    match wanted {
        Some(1) => open(Version::One),
        Some(2) => open(Version::Two),
        Some(other) => {
            let (value, expected) = (other.to_string().into(), "1 or 2");
            Err(ServiceError::Variable { name: PMI_VERSION, value, expected })
        }
        None => match open(Version::One) {
            Err(ServiceError::Pmi(pmi::Error::Version(_))) => open(Version::Two),
            found => found,
        },
    }
}
