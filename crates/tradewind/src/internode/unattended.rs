//! Nonblocking collectives that need no thread between their start and the wait for their end.
//!
//! In such a collective every rank sends all its messages when it starts, and they are no longer
//! than what the connections between the ranks hold. The ranks execute it themselves: the start
//! hands the messages to the system, and a wait or a test takes those of the others. No process is
//! woken meanwhile.
//!
//! A rank that computes after its start delays no other rank. Where the connections are full, or a
//! sender has no credit, a thread of the rank continues within 50 ms. A rank that is stopped in that
//! state delays the others, and one that is killed fails them, where the agent would complete its
//! part. In any other state it may be killed: what its system has is sent, because the node service
//! has copies of its connections.
//!
//! The choice must not depend on block sizes that only some ranks know. The ranks execute a collective of
//! one step with such sizes themselves if no two of them share a node. A background thread of the rank
//! sends the bytes that the connections do not hold.

use super::group::InternodeGroup;
use crate::error::Result;
use crate::placement::InRanks;
use goal::compile::compile;
use goal::graph::Graph;
use goal::schedule::{Kind, Schedule};
use models::prediction::MOST_RANKS_IN_ONE_STEP;
use network::direct::DirectBackend;

/// The backend for nonblocking collectives that need no thread, if another one runs the others, as by
/// default where some node has no core for its service. Then every rank builds the graphs of all ranks.
fn backend(internode: &InternodeGroup) -> Option<&DirectBackend> {
    let backends = &internode.job().backends;
    let is_one_of_two = matches!(backends.in_ranks, InRanks::Blocking(held) if held > 0)
        && internode.ranks() <= MOST_RANKS_IN_ONE_STEP;
    backends.blocking.as_deref().filter(|_| is_one_of_two)
}

/// Returns true if the choice of the engine of a nonblocking collective takes the graphs of all
/// ranks. The same on all ranks.
pub(crate) fn needs_all_graphs(internode: &InternodeGroup) -> bool {
    backend(internode).is_some()
}

/// Returns true if the ranks run a nonblocking collective themselves because it needs no thread on
/// any of them. `build` builds the graph of each, so the result is the same on all ranks. Called
/// when a plan is registered, not at its starts.
pub(crate) fn is_unattended(
    internode: &InternodeGroup,
    build: &impl Fn(u32) -> Result<Graph>,
) -> Result<bool> {
    let Some(backend) = backend(internode) else { return Ok(false) };
    for rank in 0..internode.ranks() {
        if !needs_no_thread(backend, internode, rank, &compile(&build(rank)?)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns true if the ranks run nonblocking collectives of one step themselves where only some ranks
/// know the block sizes. The result is the same on all ranks, although they exchange nothing.
pub(crate) fn runs_unknown_sizes(internode: &InternodeGroup) -> bool {
    let mut nodes = internode.nodes_of_ranks();
    nodes.sort_unstable();
    backend(internode).is_some() && nodes.is_sorted_by(|one, next| one < next)
}

/// Returns true if a rank's part of a collective needs no thread.
fn needs_no_thread(
    backend: &DirectBackend,
    internode: &InternodeGroup,
    rank: u32,
    schedule: &Schedule,
) -> bool {
    backend.needs_no_thread(schedule) && stays_between_nodes(internode, rank, schedule)
}

/// Returns true if a rank sends nothing to another one on its own node. The agent passes such
/// messages on in its memory, connections pass them through the system.
fn stays_between_nodes(internode: &InternodeGroup, rank: u32, schedule: &Schedule) -> bool {
    let node = internode.node_of(rank);
    let sends = schedule.view().operations().iter().filter(|record| record.kind() == Kind::Send);
    let mut peers = sends.map(|record| record.peer).filter(|peer| *peer != rank);
    peers.all(|peer| internode.node_of(peer) != node)
}
