//! A test that a backend reaches all nodes, before a job uses it.
//!
//! The kernel backend sends to the nodes' own Ethernet addresses, in packets as long as their
//! interfaces take. Such packets are lost behind a router, or where the network between the nodes
//! takes shorter ones than the interfaces.

use goal::compile::compile;
use goal::graph::{Access, Graph};
use network::backend::{Backend, CommunicatorContext, RunId};
use network::node_map::NodeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a message: at least one full packet on every network.
const MESSAGE_BYTES: u64 = 8192;
/// Time for the messages to arrive. All ranks have started by then, so it covers the network and
/// processors that others use.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Number of the communicator of the nodes' first ranks; no other communicator has it.
const CONTEXT_NUMBER: u32 = u32::MAX;

/// Two ranks on nodes that cannot connect to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnreachablePair {
    /// The rank that waited in vain.
    pub(crate) here: u32,
    /// A rank on the node that sent no message.
    pub(crate) there: u32,
}

/// Exchanges a message with the first rank of every other node, on the first rank of each node.
/// Returns a node if its message did not arrive. All ranks must have started.
pub(crate) fn exchange(
    backend: &Arc<dyn Backend>,
    nodes: &NodeMap,
    rank: u32,
) -> Option<UnreachablePair> {
    let members: Arc<[u32]> =
        (0..nodes.count()).filter_map(|node| nodes.members(node).next()).collect();
    let own = members.iter().position(|member| *member == rank)? as u32;
    let others: Vec<u32> = (0..members.len() as u32).filter(|other| *other != own).collect();
    let first_other = others.first().map(|other| members[*other as usize]);
    let context = CommunicatorContext { number: CONTEXT_NUMBER, members, rank: own };
    let unreachable = |other: Option<u32>| Some(UnreachablePair { here: rank, there: other? });
    let Some(run) = start(backend, &context, &others) else { return unreachable(first_other) };
    let arrived = backend.wait(run, Some(Instant::now() + TIMEOUT)).unwrap_or(false);
    let awaited = backend.waiting_for(run);
    backend.discard(run);
    if arrived { None } else { unreachable(awaited.first().copied().or(first_other)) }
}

/// Starts the exchange with the ranks `others` of the context.
fn start(
    backend: &Arc<dyn Backend>,
    context: &CommunicatorContext,
    others: &[u32],
) -> Option<RunId> {
    let mut graph = Graph::new(context.rank, context.members.len() as u32);
    let input = graph.buffer(Access::Input, MESSAGE_BYTES);
    for other in others {
        graph.send(input, *other, 0);
        let output = graph.buffer(Access::Output, MESSAGE_BYTES);
        graph.receive(output, *other, 0);
    }
    let id = backend.register(context, &compile(&graph).ok()?, 0).ok()?;
    let message = [0x5a; MESSAGE_BYTES as usize];
    let mut inputs = vec![&[][..]; others.len() + 1];
    inputs[0] = &message;
    let run = backend.start(id, 0, &inputs).ok();
    backend.release(id);
    run
}
