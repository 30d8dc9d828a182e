//! Whether an engine gets through to all nodes, before a job goes by it.
//!
//! The kernel engine writes to the nodes' own Ethernet addresses, and packets as long as their
//! interfaces take. Behind a router, or where the network between takes less than the interfaces
//! promise, they would never arrive.

use goal::compile::compile;
use goal::graph::{Access, Graph};
use network::carrier::{Carrier, Context};
use network::nodes::Nodes;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Fills a packet of any network, or several.
const MESSAGE_BYTES: u64 = 8192;
/// All ranks are there by now, so this is for the network and for a processor that others use.
const PATIENCE: Duration = Duration::from_secs(3);
/// The communicator of the nodes' first ranks; no other one has this number.
const NUMBER: u32 = u32::MAX;

/// Ranks of two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Silence {
    /// The rank whose node has waited in vain.
    pub(crate) here: u32,
    /// A rank of the node that was not heard.
    pub(crate) there: u32,
}

/// Exchanges a message with the first rank of every other node, if this is the first rank of its
/// own. Gives a node that was not heard. All ranks must be there.
pub(crate) fn exchange(carrier: &Arc<dyn Carrier>, nodes: &Nodes, rank: u32) -> Option<Silence> {
    let members: Arc<[u32]> =
        (0..nodes.count()).filter_map(|node| nodes.members(node).next()).collect();
    let own = members.iter().position(|member| *member == rank)? as u32;
    let others: Vec<u32> = (0..members.len() as u32).filter(|other| *other != own).collect();
    let silence = |other: Option<&u32>| Some(Silence { here: rank, there: *other? });
    let mut graph = Graph::new(own, members.len() as u32);
    let input = graph.buffer(Access::Input, MESSAGE_BYTES);
    for other in &others {
        graph.send(input, *other, 0);
        let output = graph.buffer(Access::Output, MESSAGE_BYTES);
        graph.receive(output, *other, 0);
    }
    let context = Context { number: NUMBER, members: Arc::clone(&members), rank: own };
    let first_other = others.first().map(|other| members[*other as usize]);
    let begin = || {
        let prepared = carrier.prepare(&context, &compile(&graph).ok()?, 0).ok()?;
        let mut inputs = vec![&[][..]; others.len() + 1];
        let message = [0x5a; MESSAGE_BYTES as usize];
        inputs[0] = &message;
        let ticket = carrier.start(prepared, 0, &inputs).ok();
        carrier.release(prepared);
        ticket
    };
    let Some(ticket) = begin() else { return silence(first_other.as_ref()) };
    let arrived = carrier.wait(ticket, Some(Instant::now() + PATIENCE)).unwrap_or(false);
    let awaited = carrier.awaited(ticket);
    carrier.forget(ticket);
    if arrived { None } else { silence(awaited.first().or(first_other.as_ref())) }
}
